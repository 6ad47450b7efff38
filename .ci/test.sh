#!/usr/bin/env bash
# The whole suite: nextest where it is, else cargo's own runner; then the doc tests, which nextest
# does not run. The real clients are a suite of their own (clients.sh); here they are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

# Every run tries the same generated cases, so that a failure is the change's; the soak tries others.
export PROPTEST_RNG_SEED=${PROPTEST_RNG_SEED:-20261129}

if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --locked --no-fail-fast
    cargo test --locked --quiet --doc
else
    cargo test --locked --no-fail-fast
fi

# Trees, store and journal once more on each other disk that is here, in memory and where target/ is:
# what one file system does, another need not do.
first=$(stat -c %d "${TMPDIR:-/tmp}")
for disk in /dev/shm "$PWD/target"; do
    [ -w "$disk" ] && [ "$(stat -c %d "$disk")" != "$first" ] || continue
    place=$(mktemp -d "$disk/disk-XXXXXX")
    # Tests with a second user must get through it.
    chmod 755 "$place"
    echo "trees on $(stat -f -c %T "$place")"
    TMPDIR=$place cargo test --locked --quiet --test tree --test mirror
    rm -rf "$place"
done
