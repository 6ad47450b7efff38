#!/usr/bin/env bash
# A very small agent, for the demo where Claude Code cannot be had: asks once, writes the answer into
# the file. With LINK it leaves a link to what is none of its business. Usage: agent.sh FILE [LINK]
set -euo pipefail

answer=$(curl -sS -w '\n%{http_code}' "$ANTHROPIC_BASE_URL/v1/messages" \
    -H "x-api-key: $ANTHROPIC_API_KEY" -H 'anthropic-version: 2023-06-01' \
    -H 'content-type: application/json' \
    -d '{"model":"claude-opus-5-5","max_tokens":4000,"messages":[{"role":"user","content":"Say hello."}]}')
status=${answer##*$'\n'}
body=${answer%$'\n'*}
if [ "$status" != 200 ]; then
    printf 'agent: %s: %s\n' "$status" "$(printf '%s' "$body" | sed 's/.*"message":"\([^"]*\)".*/\1/')" >&2
    exit 1
fi
printf '%s' "$body" | sed 's/.*"text":"\([^"]*\)".*/\1\n/' >> "$1"
[ -z "${2:-}" ] || ln -s /etc/shadow "$2"
echo "$1 is written."
