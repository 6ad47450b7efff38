#!/usr/bin/env bash
# Names each test that a plain run leaves out, with its reason from .ci/skipped; fails when one has none.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo nextest list --locked --run-ignored only -T oneline 2>/dev/null |
    sed 's/^labproxy:://' > target/left-out.log
[ -s target/left-out.log ] || { echo 'CI: the list of skipped tests is empty' >&2; exit 1; }

unexplained=0
while read -r name; do
    reason=''
    while IFS='|' read -r pattern why; do
        if [[ $name =~ ^${pattern% }$ ]]; then
            reason=$why
        fi
    done < <(grep -v '^#' .ci/skipped)
    echo "skipped: $name:${reason:- NO REASON GIVEN}"
    [ -n "$reason" ] || unexplained=1
done < target/left-out.log
if [ "$unexplained" = 1 ]; then
    echo 'CI: a test above should have run' >&2
    exit 1
fi
