"""Keeps silent TCP connections open, and opens a new one for each that was closed. Standard library only.

    silent.py HOST:PORT COUNT [--local ADDR]
"""

import argparse
import json
import resource
import select
import signal
import socket
import sys
import time

# New connections a second, once all are open.
MOST_NEW = 100
TOLD = {"sent": 0, "opened": 0}


def stop(*_):
    print(json.dumps(TOLD), flush=True)
    sys.stdout.flush()
    raise SystemExit


def opened(address, local):
    stream = socket.socket()
    stream.setblocking(False)
    if local:
        stream.bind((local, 0))
    stream.connect_ex(address)
    TOLD["opened"] += 1
    return stream


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("count", type=int)
    parser.add_argument("--local")
    args = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGTERM, stop)
    host, port = args.address.rsplit(":", 1)
    address, streams, poll = (host, int(port)), {}, select.poll()

    def add():
        stream = opened(address, args.local)
        streams[stream.fileno()] = stream
        poll.register(stream, select.POLLIN | select.POLLHUP)

    for _ in range(args.count):
        add()
    print("ready", flush=True)
    while True:
        for descriptor, _ in poll.poll(100):
            poll.unregister(descriptor)
            streams.pop(descriptor).close()
            add()
            time.sleep(1 / MOST_NEW)


main()
