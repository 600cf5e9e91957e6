#!/bin/sh
# Fetches the one file of another project that is served from this repository, and refuses any other bytes: `make vendor`.
# A new version: its name and digest here, its version in config/ops/endpoints.py (`SHIPPED_FILES`), then `make audit`.
set -eu
cd "$(dirname "$0")/.."
package=mermaid@11.17.2
digest=581ed7d74bd9048d0e3a91363927d72ef22942d7722546b27f7cc29e35390eb8
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm pack --silent --pack-destination "$folder" "$package" > /dev/null
tar -xzf "$folder"/*.tgz -C "$folder"
echo "$digest  $folder/package/dist/mermaid.min.js" | sha256sum --check --quiet
mkdir -p config/vendored/mermaid
cp "$folder/package/dist/mermaid.min.js" "$folder/package/LICENSE" config/vendored/mermaid/
