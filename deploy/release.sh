#!/bin/sh
# Makes a release of a clean tree: `make release VERSION=1.1.0` (CONTRIBUTING.md). It pushes nothing, and until the commit a
# failure leaves the tree as it was. Only the bill of materials asks the package index, for the tool that writes it.
set -eu
cd "$(dirname "$0")/.."
version=${1:-}
refuse() { echo "$1" >&2; exit 1; }

last=$(sed -n 's/^VERSION = "\(.*\)"$/\1/p' config/__init__.py)
echo "$version" | grep -Eqx '[0-9]+\.[0-9]+\.[0-9]+' ||
    refuse "\"$version\" is not a version: name one, as in \`make release VERSION=1.1.0\`."
[ "$version" != "$last" ] && [ "$(printf '%s\n' "$last" "$version" | sort -V | tail -n 1)" = "$version" ] ||
    refuse "Version $version is not above $last, the version of config/__init__.py."
changed=$(git status --porcelain)
[ -z "$changed" ] || refuse "Not everything is committed: commit it, or remove it. $changed"
[ -z "$(git tag --list "v$version")" ] || refuse "The tag v$version exists: choose the next version."
sed '1,/^## Unreleased$/d; /^## /,$d' CHANGELOG.md | grep -q '^- ' ||
    refuse 'CHANGELOG.md has no line under "Unreleased": write what is new for those who upgrade.'

trap 'git checkout --quiet HEAD -- CHANGELOG.md config/__init__.py' EXIT
sed -i.old "s/^## Unreleased\$/&\\
\\
## $version - $(date -u +%Y-%m-%d)/" CHANGELOG.md
sed -i.old "s/^VERSION = .*/VERSION = \"$version\"/" config/__init__.py
rm CHANGELOG.md.old config/__init__.py.old

wheel=recollect_server-$version-py3-none-any.whl
bill=recollect-$version.cdx.json
.venv/bin/python -m config.ops.wheel dist
.venv/bin/uv tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py requirements --spec-version 1.6 \
    --output-reproducible --output-file "dist/$bill" requirements/local.txt
(cd dist && sha256sum "$wheel" "$bill" > "recollect-$version.sha256")
git commit --quiet --message "Release $version" CHANGELOG.md config/__init__.py
git tag --annotate --message "Recollect $version" "v$version"
echo "Committed and tagged v$version. To publish it: git push origin HEAD v$version"
