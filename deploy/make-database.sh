#!/bin/bash
# Run once by the postgres image, on an empty volume: an owner for the migrations, and the roles that the application and
# its workers log in as (docs/isolation.md). No one of them is a superuser, since row-level security does not bind one,
# and every database has pgvector from the start.
set -euo pipefail
for name in database_owner_password database_password database_worker_password database_backup_password; do
    export "${name^^}=$(< "${SECRETS:-/run/secrets}/$name")"
done
psql --no-psqlrc --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" --dbname=template1 <<'SQL'
\getenv owner_password DATABASE_OWNER_PASSWORD
\getenv web_password DATABASE_PASSWORD
\getenv worker_password DATABASE_WORKER_PASSWORD
\getenv backup_password DATABASE_BACKUP_PASSWORD
CREATE EXTENSION IF NOT EXISTS vector;
CREATE ROLE recollect LOGIN PASSWORD :'owner_password';
CREATE ROLE recollect_web LOGIN NOINHERIT PASSWORD :'web_password';
CREATE ROLE recollect_worker LOGIN NOINHERIT PASSWORD :'worker_password';
CREATE ROLE recollect_backup LOGIN BYPASSRLS PASSWORD :'backup_password';
GRANT pg_read_all_data TO recollect_backup;
CREATE ROLE recollect_staff NOLOGIN NOINHERIT;
CREATE ROLE recollect_bound NOLOGIN NOINHERIT;
GRANT recollect_staff, recollect_bound TO recollect_web;
\connect postgres
CREATE DATABASE recollect OWNER recollect;
-- Django sends statements with their values in them: no word of a person goes into the server's log (core.W006).
ALTER DATABASE recollect SET log_min_error_statement = 'panic';
ALTER DATABASE recollect SET log_parameter_max_length = 0;
ALTER DATABASE recollect SET log_parameter_max_length_on_error = 0;
ALTER DATABASE recollect SET log_error_verbosity = 'terse';
SQL
