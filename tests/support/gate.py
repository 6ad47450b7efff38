"""A way to a server that stops where a test says: `ProxyCommand python3 gate.py HOST PORT DIRECTORY`.

A file `up` or `down` in the directory has a number. The first connection that passed so many bytes to
the server, or from it, passes no further one in that direction: it renames the file to `held`, after it
wrote its own pid and its parent's (ssh's) into it. It goes on when there is a file `open`, and ends with
either side.
"""

import os
import select
import socket
import sys

PART = 65536
# Between two looks for `open`, milliseconds.
LOOK = 10


class Way:
    """One direction: so many bytes may pass."""

    def __init__(self, source, target, limit):
        self.source, self.target, self.limit, self.passed = source, target, limit, 0

    def left(self):
        try:
            with open(self.limit) as file:
                return max(0, int(file.read()) - self.passed)
        except (FileNotFoundError, ValueError):
            return PART

    def hold(self, directory):
        """Whether this connection is the one that stops here."""
        with open(self.limit + ".by", "w") as file:
            file.write(f"{os.getpid()} {os.getppid()}\n")
        try:
            os.rename(self.limit, self.limit + ".was")
        except FileNotFoundError:
            return False
        os.rename(self.limit + ".by", os.path.join(directory, "held"))
        return True

    def pass_on(self, count):
        """Whether there was something."""
        part = os.read(self.source, min(PART, count))
        rest = part
        while rest:
            rest = rest[os.write(self.target, rest):]
        self.passed += len(part)
        return bool(part)


def main():
    host, port, directory = sys.argv[1:]
    server = socket.create_connection((host, int(port)))
    at = lambda name: os.path.join(directory, name)
    ways = {0: Way(0, server.fileno(), at("up")), server.fileno(): Way(server.fileno(), 1, at("down"))}
    held = None
    while True:
        poll = select.poll()
        for source, way in ways.items():
            poll.register(source, 0 if way is held else select.POLLIN)
        poll.register(1, 0)
        for source, event in poll.poll(None if held is None else LOOK):
            way = ways.get(source)
            if way is None or (way is held and event & (select.POLLHUP | select.POLLERR)):
                return
            if way is held:
                continue
            left = way.left()
            if left > 0:
                if not way.pass_on(left):
                    return
            elif way.hold(directory):
                held = way
        if held is not None and os.path.exists(at("open")):
            held = None


try:
    main()
except (BrokenPipeError, ConnectionError):
    pass
