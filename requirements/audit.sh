#!/bin/sh
# Looks up the locked packages in the Python advisory database: `make audit`. Ends with status 0 only if each was found there
# without a known vulnerability. More arguments are pip-audit's.
set -u
cd "$(dirname "$0")/.."
said=$(mktemp)
trap 'rm -f "$said"' EXIT
found=$("${UV:-.venv/bin/uv}" tool run --quiet --from pip-audit==2.10.1 pip-audit --strict --require-hashes --disable-pip \
    --requirement requirements/server.txt --requirement requirements/local.txt --requirement requirements/dev.txt "$@" 2> "$said")
status=$?
if [ "$status" -eq 0 ]; then
    cat "$said"
    exit 0
fi
# pip-audit ends with the same status when it finds something and when it cannot ask; only then it prints nothing.
if [ -n "$found" ]; then
    printf '%s\n' "$found"
    echo "A locked package has a known vulnerability: the table above names it." >&2
else
    tail -n 1 "$said" >&2
    echo "The packages could not all be looked up, so it is not known whether one has a vulnerability: the line above says why." >&2
fi
exit 1
