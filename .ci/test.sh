#!/usr/bin/env bash
# The whole suite: nextest where it is, else cargo's own runner; then the doc tests, which nextest
# does not run. The real clients are a suite of their own (clients.sh).
set -euo pipefail
cd "$(dirname "$0")/.."

if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --locked -E 'not binary(clients)' --no-fail-fast
    cargo test --locked --quiet --doc
else
    cargo test --locked --lib --bins --examples
    for file in tests/*.rs tests/*/main.rs; do
        [ -e "$file" ] || continue
        name=$(basename "${file%/main.rs}" .rs)
        [ "$name" = clients ] || cargo test --locked --test "$name"
    done
    cargo test --locked --doc
fi
