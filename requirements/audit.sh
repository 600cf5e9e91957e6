#!/bin/sh
# Looks up the locked packages in the Python advisory database, and the library that draws diagrams in npm's: `make audit`.
# Ends with status 0 only if each was found there without a known vulnerability. More arguments are pip-audit's.
set -u
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# Both clients end with the same status when they find something and when they cannot ask; only then they print nothing.
judge() {
    found=$("$@" 2> "$folder/said") && { cat "$folder/said"; return 0; }
    if [ -n "$found" ]; then
        printf '%s\n' "$found"
        echo "A locked package has a known vulnerability: the table above names it." >&2
    else
        grep -v "complete log" "$folder/said" | tail -n 1 >&2
        echo "The packages could not all be looked up, so it is not known whether one has a vulnerability: the line above says why." >&2
    fi
    return 1
}
library() {
    "${NPM:-npm}" install --silent --package-lock-only --prefix "$folder" "$(sed -n 's/^package=//p' requirements/vendor.sh)" >&2 &&
        "${NPM:-npm}" audit --prefix "$folder"
}

judge "${UV:-.venv/bin/uv}" tool run --quiet --from pip-audit==2.10.1 pip-audit --strict --require-hashes --disable-pip \
    --requirement requirements/server.txt --requirement requirements/local.txt --requirement requirements/dev.txt "$@" &&
    judge library
