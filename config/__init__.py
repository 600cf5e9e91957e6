"""Assembles the project: settings, URLs, the web process, the workers, the embedded servers."""

# The product's version. pyproject.toml names the same one, for the package of the command line.
VERSION = "1.0.0"
