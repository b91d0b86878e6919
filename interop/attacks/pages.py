"""Asks for pages of a long directory and takes 4 bytes of each in 3 s, or asks for their heads all the time.

    pages.py SERVER PATH CONNECTIONS STREAMS [--head RATE]
"""

import argparse
import asyncio

import quic

SIP, PAUSE = 4, 3
# Enough for the answer's header fields.
FIRST = 64


async def slow(args, told):
    clients = []
    for _ in range(args.connections):
        client = await quic.connect(args.server, args.local, by_hand=True, keep=False, credit=FIRST)
        for _ in range(args.streams):
            client.begin(quic.request("GET", args.path))
        client.transmit()
        clients.append(client)
    quic.ready()
    while True:
        await asyncio.sleep(PAUSE)
        for client in clients:
            for stream in list(client.waiting):
                client.give(stream, SIP)
            client.transmit()
        told["waiting"] = sum(len(client.waiting) for client in clients if not client.ended)


async def heads(args, told):
    """Asks for the head so many times a second, whether answers come or not."""
    client = await quic.connect(args.server, args.local)
    wanted, told["requests"] = quic.request("HEAD", args.path), 0
    quic.ready()
    while not client.ended:
        client.begin(wanted)
        client.transmit()
        told["requests"] += 1
        await asyncio.sleep(1 / args.head)
    told["closed"] = str(client.ended)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("path")
    parser.add_argument("connections", type=int)
    parser.add_argument("streams", type=int)
    parser.add_argument("--head", type=float)
    parser.add_argument("--local", default="127.0.0.66")
    args = parser.parse_args()
    quic.run(lambda told: (heads if args.head else slow)(args, told))


main()
