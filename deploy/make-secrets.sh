#!/bin/sh
# Makes the files under secrets/ that docker-compose.yml mounts, each with a random value; a file that exists is kept.
set -eu
cd "${1:-$(dirname "$0")/..}"
# Others on this machine cannot enter the folder. The files themselves can be read by the containers' accounts.
mkdir -p secrets
chmod 700 secrets
for name in secret_key postgres_password database_owner_password database_password database_worker_password \
    database_backup_password; do
    [ -s "secrets/$name" ] || LC_ALL=C tr -dc A-Za-z0-9 < /dev/urandom | head -c 50 > "secrets/$name"
    chmod 444 "secrets/$name"
done
