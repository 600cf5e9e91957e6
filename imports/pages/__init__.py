"""The import page, which uses the REST API of imports."""
