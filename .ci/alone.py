#!/usr/bin/env python3
"""Runs a program and looks for what it left running.

    alone.py [--grace SECONDS] PROGRAM [ARG...]

Every process that descends from the program is seen, however it was started: from a deleted file or an
anonymous descriptor, with another name and environment, in a session or PID namespace of its own. The
kernel gives orphans to their nearest subreaper, and that is this process; so what still descends from
it when the program has ended was left behind. What a service of the machine starts on request is not
seen.

The status is the program's own (128 + n for a signal), but 1 when that is 0 and something was left. What
was left when the grace was over is named on stderr and then ended.
"""

import ctypes
import os
import signal
import sys
import time

# From linux/prctl.h.
PR_SET_CHILD_SUBREAPER = 36
# What was told to end may still be at it: a login that lost its connection, a killed tree.
GRACE = 10
# Killed processes are gone at once, but for one in the middle of a system call.
KILLED = 10


def parents():
    """The parent of each process that can be seen here."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:
                # The name in brackets may hold anything, brackets too.
                rest = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        state, parent = rest[0], int(rest[1])
        if state not in (b"Z", b"X"):
            found[int(name)] = parent
    return found


def descendants():
    """What descends from this process."""
    all_parents = parents()
    found, layer = [], {os.getpid()}
    while layer:
        layer = {pid for pid, parent in all_parents.items() if parent in layer}
        found.extend(sorted(layer))
    return found


def shown(pid):
    """One line about a process: its id, its program, its arguments without control characters."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().replace(b"\0", b" ").decode(errors="replace").strip()
        program = os.readlink(f"/proc/{pid}/exe")
    except OSError as error:
        words, program = "", error.strerror
    line = f"{pid} {words} ({program})"
    return "".join(letter if letter.isprintable() else "?" for letter in line)


def reap():
    """Takes what has ended; whether anything is left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def ended_within(seconds):
    """Waits until no child is left; whether that came in time."""
    until = time.monotonic() + seconds
    while reap():
        rest = until - time.monotonic()
        if rest <= 0:
            return False
        signal.sigtimedwait([signal.SIGCHLD], rest)
    return True


def end_all():
    """Ends what is left. Only children are killed: until they are waited for, their numbers are theirs."""
    until = time.monotonic() + KILLED
    while reap() and time.monotonic() < until:
        own = os.getpid()
        for pid in [pid for pid, parent in parents().items() if parent == own]:
            try:
                os.kill(pid, signal.SIGKILL)
            except PermissionError:
                pass
        signal.sigtimedwait([signal.SIGCHLD], 0.1)


def start(words):
    pid = os.fork()
    if pid:
        return pid
    # The last two are ignored by this interpreter itself, and would be by all that the program runs.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
    try:
        os.execvp(words[0], words)
    except OSError as error:
        print(f"{words[0]}: {error.strerror}", file=sys.stderr)
    os._exit(127)


def main(words):
    grace = GRACE
    if words[:1] == ["--grace"] and len(words) > 1:
        grace, words = float(words[1]), words[2:]
    if not words:
        sys.exit("usage: alone.py [--grace SECONDS] PROGRAM [ARG...]")
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit("alone.py: this system has no child subreapers (Linux 3.4)")
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    # A terminal tells the program too; what it leaves is then looked for all the same.
    signal.signal(signal.SIGINT, lambda *_: None)
    program = start(words)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(program, signal.SIGTERM))
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == program:
            break
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    code = os.waitstatus_to_exitcode(status)
    code = code if code >= 0 else 128 - code
    if ended_within(grace):
        return code
    left = descendants()
    print(f"left behind by {words[0]}:", file=sys.stderr)
    for pid in left:
        print(f"  {shown(pid)}", file=sys.stderr)
    end_all()
    return code or 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
