"""Opens flows through a proxy to a target of its own until it is refused, and keeps them.

    flows.py SERVER TARGET NAME:PASSWORD MOST
"""

import argparse
import asyncio
import base64
import collections

import quic

STREAMS_A_CONNECTION = 200


async def fill(args, told):
    secret = base64.b64encode(args.user.encode()).decode()
    wanted = quic.fields((":method", "CONNECT"), (":authority", args.target), ("proxy-authorization", f"Basic {secret}"))
    seen, opened, clients = collections.Counter(), 0, []
    told["seen"] = seen
    while opened < args.most:
        client = await quic.connect(args.server, args.local)
        clients.append(client)
        # The first right credential gives a connection more streams.
        for amount in (1, STREAMS_A_CONNECTION - 1):
            streams = [client.begin(wanted, end=False) for _ in range(amount)]
            client.transmit()
            await answers(client, streams, seen)
        opened += STREAMS_A_CONNECTION
        if seen[200] < opened:
            break
    quic.ready()
    await asyncio.Future()


async def answers(client, streams, seen):
    for _ in range(1000):
        if client.ended or all(stream in client.heard for stream in streams):
            break
        await asyncio.sleep(0.01)
    for stream in streams:
        seen[quic.status(client.heard.get(stream, b""))] += 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("target")
    parser.add_argument("user")
    parser.add_argument("most", type=int)
    parser.add_argument("--local", default="127.0.0.66")
    args = parser.parse_args()
    quic.run(lambda told: fill(args, told))


main()
