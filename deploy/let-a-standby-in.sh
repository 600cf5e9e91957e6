#!/bin/bash
# Run once by the primary's image, after make-database.sh: a role that may replicate and do nothing else.
set -euo pipefail
DATABASE_REPLICATION_PASSWORD=$(< "${SECRETS:-/run/secrets}/database_replication_password")
export DATABASE_REPLICATION_PASSWORD
psql --no-psqlrc --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" --dbname=postgres <<'SQL'
\getenv password DATABASE_REPLICATION_PASSWORD
CREATE ROLE recollect_replication LOGIN REPLICATION PASSWORD :'password';
SQL
echo "host replication recollect_replication all scram-sha-256" >> "$PGDATA/pg_hba.conf"
