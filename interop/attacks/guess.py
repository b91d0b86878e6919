"""Guesses passwords of a proxy's users, or asks politely beside somebody who guesses.

    guess.py SERVER mix         wrong passwords of bob, and alice's own after each four, for --seconds
    guess.py SERVER neighbour   a wrong password twice a second, of --name (a new name each time if it is `new`), until SIGTERM
    guess.py SERVER polite      alice's own password once a second for --seconds; --keep keeps one connection

It prints how often each status came.
"""

import argparse
import asyncio
import base64
import collections
import contextlib
import time

import quic

TARGET = "127.0.0.1:9"


def connecting(name, password, target):
    secret = base64.b64encode(f"{name}:{password}".encode()).decode()
    return quic.fields((":method", "CONNECT"), (":authority", target), ("proxy-authorization", f"Basic {secret}"))


async def ask(client, data):
    """The status of the answer to a request, which ends then."""
    stream = client.begin(data, end=False)
    client.transmit()
    began = time.monotonic()
    while not (code := quic.status(client.heard.get(stream, b""))):
        if client.ended or time.monotonic() > began + 10:
            return 0
        await asyncio.sleep(0.001)
    with contextlib.suppress(RuntimeError, ValueError):
        # It may have been refused, and reset, before.
        client._quic.send_stream_data(stream, b"", end_stream=True)
        client.transmit()
    client.heard.pop(stream, None)
    return code


async def fresh(args, data):
    """The same over a connection of its own."""
    try:
        client = await quic.connect(args.server, args.local)
    except (ConnectionError, TimeoutError, asyncio.TimeoutError):
        return 0
    code = await ask(client, data)
    client._quic.close(error_code=0x100)
    client.transmit()
    client.vanish()
    return code


async def mix(args, told):
    client, end = await quic.connect(args.server, args.local), time.monotonic() + args.seconds
    guesses, own = collections.Counter(), collections.Counter()
    number = 0
    while time.monotonic() < end and not client.ended:
        for _ in range(4):
            guesses[await ask(client, connecting("bob", f"guess{number}", args.target))] += 1
            number += 1
        own[await ask(client, connecting("alice", "wonderland", args.target))] += 1
    told.update(guesses=guesses, own=own)


async def neighbour(args, told):
    seen, number = collections.Counter(), 0
    told["seen"] = seen
    for _ in range(6):
        seen[await fresh(args, connecting("mallory" if args.name == "new" else args.name, f"x{number}", args.target))] += 1
        number += 1
    quic.ready()
    while True:
        name = f"name{number}" if args.name == "new" else args.name
        seen[await fresh(args, connecting(name, f"x{number}", args.target))] += 1
        number += 1
        await asyncio.sleep(0.5)


async def polite(args, told):
    end, seen = time.monotonic() + args.seconds, collections.Counter()
    told["seen"] = seen
    data = connecting("alice", "wonderland", args.target)
    client = await quic.connect(args.server, args.local) if args.keep else None
    while time.monotonic() < end:
        code = await (ask(client, data) if client else fresh(args, data))
        seen[code] += 1
        if code == 200:
            told.setdefault("first", args.seconds - (end - time.monotonic()))
        await asyncio.sleep(1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("what", choices=["mix", "neighbour", "polite"])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--name", default="new")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--target", default=TARGET)
    parser.add_argument("--local", default="127.0.0.66")
    args = parser.parse_args()
    quic.run(lambda told: {"mix": mix, "neighbour": neighbour, "polite": polite}[args.what](args, told))


main()
