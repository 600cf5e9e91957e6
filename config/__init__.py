"""Assembles the project: settings, URLs, the web process, the workers, the embedded servers."""
