#!/bin/bash
# PgBouncer in transaction mode: a request has a connection for as long as its transaction lasts.
set -euo pipefail
umask 077
secrets=${SECRETS:-/run/secrets}
folder=${PGBOUNCER_FOLDER:-/tmp/pgbouncer}
mkdir -p "$folder"
cat > "$folder/users" <<USERS
"recollect_web" "$(< "$secrets/database_password")"
"recollect_worker" "$(< "$secrets/database_worker_password")"
USERS
cat > "$folder/pgbouncer.ini" <<SETTINGS
[databases]
* = host=$DATABASE_HOST port=${DATABASE_PORT:-5432}
[pgbouncer]
listen_addr = ${LISTEN_ON:-0.0.0.0}
listen_port = ${PORT:-6432}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = $folder/users
pool_mode = transaction
default_pool_size = ${POOL_SIZE:-20}
max_client_conn = 1000
ignore_startup_parameters = extra_float_digits,options
SETTINGS
exec pgbouncer "$folder/pgbouncer.ini"
