#!/bin/bash
# A standby by streaming replication: copied from the primary the first time, which then sends what it writes.
set -euo pipefail
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    password=$(< "${SECRETS:-/run/secrets}/database_replication_password")
    address="host=$PRIMARY_HOST port=${PRIMARY_PORT:-5432} user=recollect_replication password=$password"
    pg_basebackup --dbname="$address" --pgdata="$PGDATA" --write-recovery-conf --checkpoint=fast
    chmod 700 "$PGDATA"
fi
# A long search is not cancelled at once because the primary has removed what it still reads.
exec postgres -D "$PGDATA" -c max_standby_streaming_delay=10s -c hot_standby_feedback=on "$@"
