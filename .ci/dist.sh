#!/usr/bin/env bash
# Puts what a release consists of into target/dist: the binary, completions, manual pages, documents,
# licences.
set -euo pipefail
cd "$(dirname "$0")/.."

dist=target/dist
rm -rf "$dist"
mkdir -p "$dist/completions" "$dist/man"
cp target/release/labproxy README.md CHANGELOG.md ARCHITECTURE.md CONTRIBUTING.md LICENSE-APACHE LICENSE-MIT "$dist/"
cp -r docs "$dist/docs"
# Whoever has only the archive can follow what its README names.
grep -o '](\([^)#:]*\))' README.md | tr -d ']()' | while read -r link; do
    [ -e "$dist/$link" ] || { echo "dist: README.md links to $link, which is not in the archive" >&2; exit 1; }
done
for shell in bash zsh fish; do
    "$dist/labproxy" completions "$shell" > "$dist/completions/labproxy.$shell"
done
"$dist/labproxy" man --dir "$dist/man"
(cd "$dist" && find . -type f ! -name SHA256SUMS -print0 | sort -z | xargs -0 sha256sum > SHA256SUMS)
echo "$dist: $("$dist/labproxy" --version), $(find "$dist" -type f | wc -l) files"
