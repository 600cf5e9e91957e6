"""`manage.py distribute`: the schema on a Citus cluster, checked first and placed in one transaction."""
