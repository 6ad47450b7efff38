#!/usr/bin/env bash
# Puts what a release consists of into target/dist: the binary, completions, manual pages, licences.
set -euo pipefail
cd "$(dirname "$0")/.."

dist=target/dist
rm -rf "$dist"
mkdir -p "$dist/completions" "$dist/man"
cp target/release/labproxy README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$dist/"
for shell in bash zsh fish; do
    "$dist/labproxy" completions "$shell" > "$dist/completions/labproxy.$shell"
done
"$dist/labproxy" man --dir "$dist/man"
(cd "$dist" && find . -type f ! -name SHA256SUMS -print0 | sort -z | xargs -0 sha256sum > SHA256SUMS)
echo "$dist: $("$dist/labproxy" --version), $(find "$dist" -type f | wc -l) files"
