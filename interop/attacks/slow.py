"""Reads answers, or writes uploads, as slowly as a server lets it; or pauses once in an honest download.

    slow.py read SERVER PATH CONNECTIONS STREAMS     16 bytes of credit for each stream every 0.35 s
    slow.py write SERVER PATH CONNECTIONS STREAMS    a byte on each stream every 0.4 s, and a new upload for each that ended
    slow.py mute SERVER PATH CONNECTIONS STREAMS     grants all credit, then neither reads nor acknowledges
    slow.py pause SERVER PATH 1 1                    stops reading for 2.5 s, then takes the rest
"""

import argparse
import asyncio
import time

import quic

SIP, SIPS = 16, 0.35
DROPS = 0.4
# A pause comes after so many bytes.
FIRST, PAUSE = 100_000, 2.5


def told_fields(args):
    return [pair.split("=", 1) for pair in args.field]


async def one_reader(args, told):
    """A connection that keeps all its requests open, and comes again when it ends."""
    while True:
        try:
            client = await quic.connect(args.server, args.local, by_hand=True, keep=False, credit=64)
        except (ConnectionError, TimeoutError, asyncio.TimeoutError):
            await asyncio.sleep(1)
            continue
        while not client.ended:
            while len(client.waiting) < args.streams:
                client.begin(quic.request("GET", args.path, *told_fields(args)))
                told["begun"] += 1
            for stream in list(client.waiting):
                client.give(stream, SIP)
            client.transmit()
            await asyncio.sleep(SIPS)
        client.vanish()


async def one_writer(args, told):
    while True:
        try:
            client = await quic.connect(args.server, args.local, keep=False)
        except (ConnectionError, TimeoutError, asyncio.TimeoutError):
            await asyncio.sleep(1)
            continue
        while not client.ended:
            while len(client.waiting) < args.streams:
                name = f"{args.path}{told['begun']}"
                client.begin(quic.request("PUT", name, *told_fields(args)), end=False)
                told["begun"] += 1
            for stream in list(client.waiting):
                client._quic.send_stream_data(stream, quic.frame(quic.DATA, b"x"))
            client.transmit()
            await asyncio.sleep(DROPS)
        client.vanish()


async def one_mute(args, told):
    """A connection that grants all credit, and then neither reads nor acknowledges."""
    client = await quic.connect(args.server, args.local, by_hand=True, keep=False, credit=64 << 20)
    for _ in range(args.streams):
        client.begin(quic.request("GET", args.path, *told_fields(args)))
        told["begun"] += 1
    client.transmit()
    client.datagram_received = lambda *_: None
    while True:
        await asyncio.sleep(5)
        client._quic.send_ping(0)
        client.transmit()


async def many(one, args, told):
    told["begun"] = 0
    tasks = []
    for _ in range(args.connections):
        tasks.append(asyncio.ensure_future(one(args, told)))
        await asyncio.sleep(0.05)
    await asyncio.sleep(1)
    quic.ready()
    await asyncio.gather(*tasks)


async def pause(args, told):
    client = await quic.connect(args.server, args.local, by_hand=True, credit=FIRST)
    began, stream = time.monotonic(), client.begin(quic.request("GET", args.path, *told_fields(args)))
    waiter = client.waiting[stream]
    client.transmit()
    quic.ready()
    while client.read(stream) < FIRST and not waiter.done():
        await asyncio.sleep(0.02)
    await asyncio.sleep(PAUSE)
    client.give(stream, 64 << 20)
    client.transmit()
    told["how"] = await waiter
    told["bytes"] = len(quic.body(client.heard[stream]))
    told["seconds"] = time.monotonic() - began
    print("done", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["read", "write", "mute", "pause"])
    parser.add_argument("server")
    parser.add_argument("path")
    parser.add_argument("connections", type=int)
    parser.add_argument("streams", type=int)
    parser.add_argument("--local", default="127.0.0.66")
    parser.add_argument("--field", action="append", default=[])
    args = parser.parse_args()
    if args.what == "pause":
        quic.run(lambda told: pause(args, told))
    one = {"read": one_reader, "write": one_writer, "mute": one_mute}
    quic.run(lambda told: many(one[args.what], args, told))


main()
