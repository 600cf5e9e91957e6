"""The database engine (`DATABASES`): Django's for PostgreSQL, whose pool recovers at once after a restart."""
