"""Assembles the project: settings, URLs, the web process, the workers, the embedded servers."""

from core import telemetry

# Each process of the project imports this package first, or its settings; only they import what reports to its vendor.
telemetry.switch_off()

# The product's version, which pyproject.toml and all else read here. `make release` writes it.
VERSION = "1.0.0"
