#!/usr/bin/env bash
# The demo: a real agent CLI works on a host, on a directory of yours, under a cap; two audits look at what it
# made; the receipt, and a cap that is too small. No key, no outside traffic: the host is a login to this
# machine by an ssh server of the demo's own, the provider is played by examples/upstream on loopback.
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
fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }

title "Building labproxy and the stand-in upstream"
cargo build --locked --bin labproxy --example upstream
labproxy=$PWD/target/debug/labproxy
upstream=$PWD/target/debug/examples/upstream

room=$(mktemp -d)
upstream_pid='' sshd_pid=''
end() {
    [ -n "$1" ] || return 0
    kill "$1" 2>/dev/null || true
    wait "$1" 2>/dev/null || true
}
clean_up() {
    end "$upstream_pid"
    end "$sshd_pid"
    rm -rf "$room"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# wait_for PID WHAT COMMAND...: until the command succeeds, while the process lives.
wait_for() {
    local pid=$1 what=$2
    shift 2
    for _ in $(seq 200); do
        "$@" 2>/dev/null && return 0
        kill -0 "$pid" 2>/dev/null || fail "$what did not start"
        sleep 0.05
    done
    fail "$what did not answer"
}

# A home of its own: neither the CLI nor labproxy nor ssh sees or changes yours.
mkdir -p "$room"/{home/.ssh,workspace,state,config/labproxy,runtime,host}
chmod 700 "$room"/{home/.ssh,state,runtime}
(umask 077 && printf 'sk-ant-demo-%s\n' "$(od -An -tx8 -N16 /dev/urandom | tr -d ' ')" > "$room/key")

# The host: ssh to this machine, with keys that are as short-lived as the demo.
ssh-keygen -q -t ed25519 -N '' -C demo -f "$room/host_key"
ssh-keygen -q -t ed25519 -N '' -C demo -f "$room/home/.ssh/id_ed25519"
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
cat > "$room/sshd_config" <<EOF
ListenAddress 127.0.0.1:$port
HostKey $room/host_key
AuthorizedKeysFile $room/home/.ssh/id_ed25519.pub
PidFile none
StrictModes no
UsePAM no
EOF
cat > "$room/home/.ssh/config" <<EOF
Host gpu1
    HostName 127.0.0.1
    Port $port
    User $(id -un)
    IdentityFile $room/home/.ssh/id_ed25519
    UserKnownHostsFile $room/known_hosts
EOF
printf '[127.0.0.1]:%s %s\n' "$port" "$(cut -d' ' -f1,2 "$room/host_key.pub")" > "$room/known_hosts"
[ "$(id -u)" != 0 ] || mkdir -p /run/sshd
"$(command -v sshd || echo /usr/sbin/sshd)" -D -e -f "$room/sshd_config" 2> "$room/sshd.log" &
sshd_pid=$!

# The stand-in's prices do not change, so a checkout of any age will do here.
cat > "$room/config/labproxy/config.toml" <<EOF
[pricing]
allow_stale = true

[host.gpu1]
ssh = "gpu1"
workdir = "$room/host"
EOF

export HOME=$room/home XDG_STATE_HOME=$room/state XDG_CONFIG_HOME=$room/config XDG_RUNTIME_DIR=$room/runtime

# What stands in [[ ]] tells the stand-in upstream what to play.
first='Greet me in hello.txt'
second='Improve it'
played='[[scenario: bash echo "Better now." >> hello.txt; ln -s /etc/shadow notes.txt]]'
if [ -x target/clients/node_modules/.bin/claude ]; then
    export PATH=$PWD/target/clients/node_modules/.bin:$PATH
    agent=(claude -p "$first" --permission-mode acceptEdits)
    shown="claude -p '$first' --permission-mode acceptEdits"
    again=(claude -p "$second $played" --allowedTools Bash)
    shown_again="claude -p '$second' --allowedTools Bash"
    scenario='write-file hello.txt'
else
    agent=(bash "$PWD/.ci/agent.sh" hello.txt)
    shown='bash .ci/agent.sh hello.txt'
    again=(bash "$PWD/.ci/agent.sh" hello.txt notes.txt)
    shown_again='bash .ci/agent.sh hello.txt notes.txt'
    scenario=plain
fi
"$upstream" --expect-key-file "$room/key" --ready-file "$room/url" --pace 15 \
    --scenario "$scenario" > /dev/null &
upstream_pid=$!
wait_for "$upstream_pid" 'the stand-in upstream' test -s "$room/url"
wait_for "$sshd_pid" 'the ssh server' ssh -F "$room/home/.ssh/config" -o BatchMode=yes gpu1 true
url=$(cat "$room/url")
cd "$room/workspace"
echo 'Everything here goes to the host and comes back.' > README

# said COMMAND...: runs labproxy as a user would, and shows that.
said() {
    note "\$ labproxy $*"
    "$labproxy" "$@"
}
from=(--upstream "$url" --credential "file:$room/key")

title "1. An agent on another machine, with two dollars, on this directory, with a key that it never sees"
note "\$ labproxy session start --host gpu1 --workspace . --cap 2 -- $shown"
"$labproxy" session start --host gpu1 --workspace . --cap 2 "${from[@]}" -- "${agent[@]}"
printf '\n%shello.txt came back:%s %s\n' "$bold" "$off" "$(cat hello.txt)"
session=$("$labproxy" session list --json | sed -n 's/.*"session": *"\([^"]*\)".*/\1/p' | head -n 1)

title "2. An audit: a tool looks at a proven copy of the work, in a sandbox"
said audit run -- grep -c . hello.txt README

title "3. The agent goes on, and leaves a link to /etc/shadow; the next audit refuses that and reads nothing"
note "\$ labproxy session resume $session -- $shown_again"
"$labproxy" session resume "$session" "${from[@]}" --receipt "$room/receipt.json" -- "${again[@]}"
code=0
said audit run -- grep -c . hello.txt notes.txt || code=$?
printf '\nThe audit ended with status %s.\n' "$code"
[ "$code" = 123 ]

title "4. What the agent changed between the two"
# Like diff(1): 1 says that there are differences.
code=0
said audit diff 1 2 || code=$?
[ "$code" = 1 ]
said audit list
said audit verify

title "5. The same agent with five cents, here"
code=0
note "\$ labproxy session start --cap 0.05 -- $shown"
(mkdir "$room/other" && cd "$room/other" &&
    "$labproxy" session start --cap 0.05 "${from[@]}" -- "${agent[@]}") || code=$?
printf '\nThe agent ended with status %s; no model was asked, nothing was spent.\n' "$code"
[ "$code" != 0 ]

title "6. Who counted what, and where the key is"
ours=$(sed -n 's/.*"spent_pico_usd": *\([0-9]*\).*/\1/p' "$room/receipt.json")
theirs=$(curl -fsS "$url/__standin/served" | sed -n 's/.*"pico_usd":\([0-9]*\),"by_model".*/\1/p')
printf 'labproxy charged  %16s pico-dollars\nupstream served   %16s pico-dollars\n' "$ours" "$theirs"
[ "$ours" = "$theirs" ]
good 'the same, to the last digit'
found=$({ grep -rlF --exclude=key "$(cat "$room/key")" "$room" || true; } | wc -l)
printf 'files that hold the key, beside its own: %s (homes, workspaces, the host, ledger, store, receipts)\n' "$found"
[ "$found" = 0 ]
"$labproxy" ledger verify
good 'labproxy works here. Next: export ANTHROPIC_API_KEY=… && labproxy session start --cap 2 -- claude'
