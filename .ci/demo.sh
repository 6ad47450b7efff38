#!/usr/bin/env bash
# The demo: a real agent CLI under a cap, its receipt, and a cap that is too small. No key, no
# outside traffic: the provider is played by examples/upstream on loopback.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then
    bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' off=$'\e[0m'
else
    bold='' dim='' green='' off=''
fi
title() { printf '\n%s%s%s\n' "$bold" "$*" "$off"; }
note() { printf '%s%s%s\n' "$dim" "$*" "$off"; }
good() { printf '%s%s%s\n' "$green" "$*" "$off"; }

title "Building labproxy and the stand-in upstream"
cargo build --locked --bin labproxy --example upstream
labproxy=$PWD/target/debug/labproxy
upstream=$PWD/target/debug/examples/upstream

room=$(mktemp -d)
upstream_pid=''
clean_up() {
    if [ -n "$upstream_pid" ]; then
        kill "$upstream_pid" 2>/dev/null || true
        wait "$upstream_pid" 2>/dev/null || true
    fi
    rm -rf "$room"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# A home of its own: neither the CLI nor labproxy sees or changes yours.
mkdir -p "$room"/{home,workspace,state,config,runtime}
chmod 700 "$room"/{state,runtime}
mkdir "$room/config/labproxy"
# The stand-in's prices do not change, so a checkout of any age will do here.
printf '[pricing]\nallow_stale = true\n' > "$room/config/labproxy/config.toml"
(umask 077 && printf 'sk-ant-demo-%s\n' "$(od -An -tx8 -N16 /dev/urandom | tr -d ' ')" > "$room/key")
export HOME=$room/home XDG_STATE_HOME=$room/state XDG_CONFIG_HOME=$room/config XDG_RUNTIME_DIR=$room/runtime

prompt='Greet me in hello.txt'
if [ -x target/clients/node_modules/.bin/claude ]; then
    export PATH=$PWD/target/clients/node_modules/.bin:$PATH
    scenario='write-file hello.txt'
    agent=(claude -p "$prompt" --permission-mode acceptEdits)
    shown="claude -p '$prompt' --permission-mode acceptEdits"
else
    scenario=plain
    agent=(bash "$PWD/.ci/agent.sh" hello.txt)
    shown='bash .ci/agent.sh hello.txt'
fi

"$upstream" --expect-key-file "$room/key" --ready-file "$room/url" --pace 15 \
    --scenario "$scenario" > /dev/null &
upstream_pid=$!
for _ in $(seq 100); do
    [ -s "$room/url" ] && break
    kill -0 "$upstream_pid" 2>/dev/null || { echo "the stand-in upstream did not start" >&2; exit 1; }
    sleep 0.05
done
url=$(cat "$room/url")

# session CAP: runs the agent in a session with that cap, as a user would.
session() {
    note "\$ labproxy session start --cap $1 -- $shown"
    (cd "$room/workspace" && "$labproxy" session start --cap "$1" --upstream "$url" \
        --credential "file:$room/key" --receipt "$room/receipt-$1.json" -- "${agent[@]}")
}

title "1. An agent with two dollars, and a key that it never sees"
session 2
printf '\n%shello.txt:%s %s\n' "$bold" "$off" "$(cat "$room/workspace/hello.txt")"
rm "$room/workspace/hello.txt"

title "2. The same agent with five cents"
code=0
session 0.05 || code=$?
printf '\nThe agent ended with status %s; no model was asked, nothing was spent.\n' "$code"
[ "$code" != 0 ]

title "3. Who counted what, and where the key is"
ours=$(sed -n 's/.*"spent_pico_usd": *\([0-9]*\).*/\1/p' "$room/receipt-2.json")
theirs=$(curl -fsS "$url/__standin/served" | sed -n 's/.*"pico_usd":\([0-9]*\),"by_model".*/\1/p')
printf 'labproxy charged  %16s pico-dollars\nupstream served   %16s pico-dollars\n' "$ours" "$theirs"
[ "$ours" = "$theirs" ]
good 'the same, to the last digit'
found=$({ grep -rlF --exclude=key "$(cat "$room/key")" "$room" || true; } | wc -l)
printf 'files that hold the key, beside its own: %s (agent home, workspace, ledger, receipts)\n' "$found"
[ "$found" = 0 ]
"$labproxy" ledger verify
good 'labproxy works here. Next: export ANTHROPIC_API_KEY=… && labproxy session start --cap 2 -- claude'
