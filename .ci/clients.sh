#!/usr/bin/env bash
# Real clients through a real `labproxy session start`, against the stand-in upstream.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --locked --quiet --example upstream
LABPROXY_CLIENTS=target/clients cargo test --locked --test clients -- --test-threads=2
