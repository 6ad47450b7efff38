#!/usr/bin/env python3
"""A hook of Claude Code that has labproxy audit the work of a remote agent, and blocks when it is not good.

    audit_hook.py NAME                        as a Stop hook: nobody is done before the audit passes
    audit_hook.py NAME --before 'git push'    as a PreToolUse hook: before commands that match

NAME is a tool of labproxy's configuration, [audit.tool.NAME]. The session is the one whose workspace is the
working directory, or --session ID. Exit status 2 blocks, and Claude reads why on standard error.
"""

import argparse
import json
import re
import subprocess
import sys

# What Claude is told at most, in characters: the end of it, where tools sum up.
TOLD_MAX = 8_000


def judge():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("name", help="the tool: [audit.tool.NAME]")
    parser.add_argument("--before", metavar="REGEX", help="only before Bash commands that match")
    parser.add_argument("--session", metavar="ID", help="the session, where the directory does not say it")
    arguments = parser.parse_args()
    event = json.load(sys.stdin)
    if arguments.before:
        command = event.get("tool_input", {}).get("command", "")
        if not re.search(arguments.before, command):
            return 0

    words = ["labproxy", "audit", "run", arguments.name]
    if arguments.session:
        words += ["--session", arguments.session]
    audit = subprocess.run(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    if audit.returncode == 0:
        return 0
    said = audit.stdout.decode(errors="replace")[-TOLD_MAX:]
    print(f"The audit '{arguments.name}' of the work did not pass ({audit.returncode}):\n{said}", file=sys.stderr)
    # Claude was sent on by this hook once already: a second time the user decides, and no loop spends money.
    return 1 if event.get("stop_hook_active") else 2


def main():
    try:
        return judge()
    except Exception as error:  # Any other status than 2 would let it pass.
        print(f"The work was not audited: {error!r}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
