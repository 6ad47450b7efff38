#!/usr/bin/env bash
# Installs what a fresh Debian machine lacks, once, and says so. As a normal user it says what to
# install instead.
#
#   setup.sh build | demo | clients | bench | bench-tunnel | bench-mirror | bench-session
set -euo pipefail
cd "$(dirname "$0")/.."

# The versions that the tests were made with. Another one is a change to be looked at.
CLAUDE_CODE=2.1.332
ANTHROPIC_TS=1.14.0
ANTHROPIC_PY=2.14.0
AGENT_SDK_TS=0.3.332
AGENT_SDK_PY=0.2.189
# The proxy of 1.110.2 needs a package that is not published; this one installs and answers.
LITELLM=1.81.10

RUST_NEEDED=1.95
CLIENTS=target/clients

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# Package servers hiccup; three tries, then the error stands.
retry() {
    local try
    for try in 1 2 3; do
        "$@" && return 0
        [ "$try" = 3 ] || { say "'$1' failed, once more in 5 s"; sleep 5; }
    done
    return 1
}

# apt_need COMMAND PACKAGE: makes COMMAND available.
apt_need() {
    command -v "$1" >/dev/null 2>&1 && return 0
    [ "$(id -u)" = 0 ] || fail "'$1' is missing: install the package $2 (apt-get install $2)"
    command -v apt-get >/dev/null 2>&1 || fail "'$1' is missing: install it with your package manager"
    say "installing $2"
    if [ ! -e /var/lib/apt/lists/lock ] || ! apt-cache show "$2" >/dev/null 2>&1; then
        retry apt-get update -qq >&2
    fi
    DEBIAN_FRONTEND=noninteractive retry apt-get install -y -qq --no-install-recommends "$2" >/dev/null
}

build() {
    apt_need cc gcc
    # The tests ask it what an ignore file means.
    apt_need git git
    # The mirror's tests compare with what it makes of a tree; for that any version does.
    apt_need rsync rsync
    [ -e /usr/include/stdio.h ] || apt_need no-libc-headers libc6-dev
    command -v cargo >/dev/null 2>&1 || fail "cargo is missing: install Rust $RUST_NEEDED or newer (rustup)"
    local have
    have=$(rustc --version | cut -d' ' -f2)
    [ "$(printf '%s\n%s\n' "$RUST_NEEDED" "$have" | sort -V | head -n 1)" = "$RUST_NEEDED" ] ||
        fail "Rust $have is too old: $RUST_NEEDED or newer is needed"
    retry cargo fetch --quiet --locked
}

# A server to log in to, and a sandbox.
login() {
    # Demo and tests start servers of their own; where systemd runs, the package starts one for the machine.
    apt_need sshd openssh-server
    apt_need ssh openssh-client
    apt_need python3 python3
    # What keeps the tools of audits in.
    apt_need bwrap bubblewrap
}

# Networks of our own to reach a server by, and who may log in how.
network() {
    login
    apt_need ip iproute2
    apt_need nsenter util-linux
    # The login shells that users have.
    apt_need zsh zsh
    apt_need fish fish
    apt_need csh csh
    # A login that may become root.
    apt_need sudo sudo
}

# npm_need FOLDER PACKAGE VERSION: puts exactly that version under target/clients.
npm_need() {
    local manifest=$CLIENTS/node_modules/$1/package.json
    if [ -e "$manifest" ] && grep -q "\"version\": \"$2\"" "$manifest"; then
        return 0
    fi
    say "installing $1 $2 into $CLIENTS"
    mkdir -p "$CLIENTS"
    [ -e "$CLIENTS/package.json" ] || printf '{"private": true}\n' > "$CLIENTS/package.json"
    retry npm install --prefix "$CLIENTS" --silent --no-audit --no-fund --save-exact --no-package-lock \
        "$1@$2" >&2
}

claude_code() {
    npm_need @anthropic-ai/claude-code "$CLAUDE_CODE"
    # Some versions of npm leave install scripts out; this one only links the binary.
    if ! DISABLE_AUTOUPDATER=1 "$CLIENTS/node_modules/.bin/claude" --version >/dev/null 2>&1; then
        (cd "$CLIENTS/node_modules/@anthropic-ai/claude-code" && node install.cjs >/dev/null)
    fi
}

python_package() {
    local venv=$CLIENTS/$1 package=$2 version=$3
    "$venv/bin/pip" show "${package%%[*}" 2>/dev/null | grep -qx "Version: $version" && return 0
    apt_need python3 python3
    # A login that may become root.
    apt_need sudo sudo
    python3 -c 'import ensurepip' 2>/dev/null || apt_need no-ensurepip python3-venv
    say "installing $package $version into $venv"
    [ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
    retry "$venv/bin/pip" install --quiet --disable-pip-version-check "$package==$version"
}

case "${1:-}" in
build)
    build
    network
    ;;
demo)
    apt_need curl curl
    build
    login
    if command -v npm >/dev/null 2>&1; then
        claude_code
    else
        say "npm is not here: the demo uses its small scripted agent instead of Claude Code"
    fi
    ;;
clients)
    build
    network
    apt_need npm npm
    apt_need tmux tmux
    apt_need strace strace
    claude_code
    npm_need @anthropic-ai/sdk "$ANTHROPIC_TS"
    npm_need @anthropic-ai/claude-agent-sdk "$AGENT_SDK_TS"
    python_package venv anthropic "$ANTHROPIC_PY"
    python_package venv claude-agent-sdk "$AGENT_SDK_PY"
    ;;
bench)
    build
    apt_need nginx nginx-light
    python_package venv-litellm 'litellm[proxy]' "$LITELLM"
    ;;
bench-tunnel)
    build
    network
    apt_need socat socat
    ;;
bench-mirror | bench-session)
    build
    network
    apt_need rsync rsync
    ;;
*) fail "usage: setup.sh build | demo | clients | bench | bench-tunnel | bench-mirror | bench-session" ;;
esac
