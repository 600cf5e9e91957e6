#!/bin/bash
# Run once by the postgres image, on an empty volume: the application's role is no superuser, since row-level security
# does not bind one, and every database has pgvector from the start.
set -euo pipefail
psql --no-psqlrc --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" --dbname=template1 <<'SQL'
\getenv password DATABASE_PASSWORD
CREATE EXTENSION IF NOT EXISTS vector;
CREATE ROLE recollect LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEROLE PASSWORD :'password';
\connect postgres
CREATE DATABASE recollect OWNER recollect;
SQL
