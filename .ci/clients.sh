#!/usr/bin/env bash
# Real clients through a real `labproxy session start`, against the stand-in upstream.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo test --locked --test clients -- --ignored --test-threads=2
