#!/usr/bin/env bash
# The long runs that a change need not wait for: 1,000 kills under load, 400 of a mirror's ends, 1,000
# scans of a tree that changes, a minute without work for the threads of a session, a gibibyte each way through ssh, 200,000 changed
# conversations of a mirror, the properties with SEEDS (50) other seeds, then each fuzz target for
# FUZZ_SECONDS (600), whose finds stay in fuzz/artifacts.
set -euo pipefail
cd "$(dirname "$0")/.."

LABPROXY_SOAK_KILLS=${LABPROXY_SOAK_KILLS:-1000} \
    cargo test --locked --test ledger killed_at_any_moment -- --nocapture

LABPROXY_SOAK_MIRROR_KILLS=${LABPROXY_SOAK_MIRROR_KILLS:-400} \
    cargo test --locked --test mirror_commands m64_killed_at_any_moment -- --nocapture

LABPROXY_SOAK_SCANS=${LABPROXY_SOAK_SCANS:-1000} \
    cargo test --locked --test tree m09_no_outside_name_in_any_scan

LABPROXY_SOAK_IDLE_SECONDS=${LABPROXY_SOAK_IDLE_SECONDS:-60} \
    cargo test --locked --test session outlives_labproxys_idle_threads

LABPROXY_SOAK_MIB=${LABPROXY_SOAK_MIB:-1024} \
    cargo test --locked --test remote_session much_both_ways_at_once -- --nocapture

LABPROXY_SOAK_MUTATIONS=${LABPROXY_SOAK_MUTATIONS:-200000} \
    cargo test --locked --test mirror_hostile mutations -- --nocapture

for seed in $(seq "${SEEDS:-50}"); do
    echo "soak: properties with seed $seed"
    PROPTEST_RNG_SEED=$seed cargo test --locked --quiet --lib --test gate --test pricing --test proxy
done

if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "soak: the fuzz targets need cargo-fuzz (cargo install cargo-fuzz) and a nightly toolchain" >&2
    exit 1
fi
for target in sse_reader price_file gate ledger host_link mirror_peer mirror_host; do
    # A scratch folder first: new inputs go there, and the seeds in the repository stay small.
    scratch=$(mktemp -d)
    cargo +nightly fuzz run --sanitizer none "$target" "$scratch" "fuzz/corpus/$target" -- \
        -max_total_time="${FUZZ_SECONDS:-600}"
    rm -rf "$scratch"
done
