"""A long way: passes packets between two TUN devices, each after a fixed time.

Usage: delay.py ONE OTHER MILLISECONDS. Makes the devices in the network namespace that it runs in
(the second may then be moved elsewhere), prints a line, and ends at the end of standard input.
"""

import collections
import fcntl
import os
import select
import struct
import sys
import time

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
# Waiting at once in one direction: far more than a connection at this speed has under way.
BYTES_MAX = 64 * 1024 * 1024


def device(name):
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    return descriptor


class Way:
    """One direction: packets and the moments at which they arrive."""

    def __init__(self, source, target, delay):
        self.source, self.target, self.delay = source, target, delay
        self.packets, self.bytes = collections.deque(), 0

    def take(self):
        now = time.monotonic()
        for _ in range(256):
            try:
                packet = os.read(self.source, 65536)
            except BlockingIOError:
                return
            if self.bytes < BYTES_MAX:
                self.packets.append((now + self.delay, packet))
                self.bytes += len(packet)

    def give(self):
        now = time.monotonic()
        while self.packets and self.packets[0][0] <= now:
            _, packet = self.packets.popleft()
            self.bytes -= len(packet)
            try:
                os.write(self.target, packet)
            except OSError:
                pass  # the device is down or full: a packet that is lost

    def next(self):
        return self.packets[0][0] if self.packets else None


def main():
    one, other = device(sys.argv[1]), device(sys.argv[2])
    delay = float(sys.argv[3]) / 1000
    ways = {one: Way(one, other, delay), other: Way(other, one, delay)}
    print("ready", flush=True)
    while True:
        moments = [way.next() for way in ways.values() if way.packets]
        wait = max(0, min(moments) - time.monotonic()) if moments else None
        ready, _, _ = select.select([0, one, other], [], [], wait)
        if 0 in ready and not os.read(0, 64):
            return
        for descriptor in ready:
            if descriptor in ways:
                ways[descriptor].take()
        for way in ways.values():
            way.give()


main()
