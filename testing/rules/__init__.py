"""The house rules, which `make check` runs as tests: what source, documents and translations keep to."""
