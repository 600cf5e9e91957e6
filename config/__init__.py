"""Assembles the project: settings, URLs, the web process, the workers, the embedded servers."""

# The product's version, which pyproject.toml and all else read here. `make release` writes it.
VERSION = "1.0.0"
