#!/usr/bin/env python3
"""An agent in a terminal: tells its size, every Ctrl-C and every new size, until it reads a line.

The handlers run however late a signal comes: it wakes the wait. A shell's trap beside `read` may sleep on.
"""

import os
import select
import signal
import sys

caught = 0


def count(_signal, _frame):
    global caught
    caught += 1
    print("caught", caught, flush=True)


def tell(word):
    size = os.get_terminal_size(0)
    print(f"{word}{size.lines}x{size.columns}", flush=True)


woken, wakes = os.pipe()
os.set_blocking(wakes, False)
signal.set_wakeup_fd(wakes)
signal.signal(signal.SIGINT, count)
signal.signal(signal.SIGWINCH, lambda _signal, _frame: tell("size "))
tell("ready-")
while True:
    ready, _, _ = select.select([0, woken], [], [])
    if woken in ready:
        os.read(woken, 64)
    if 0 in ready:
        print("read", os.read(0, 1024).decode().strip(), flush=True)
        sys.exit(5)
