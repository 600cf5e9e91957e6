"""The database engine (`DATABASES`): Django's for PostgreSQL, with a pool that outlives restarts."""
