"""Begins requests at a proxy, or at a server, without end and without credentials.

    strangers.py SERVER CONNECTIONS STREAMS          each request is a part of a frame
    strangers.py SERVER CONNECTIONS 0 --reset PATH   each request is complete, and cancelled at once
"""

import argparse
import asyncio

import quic

# H3_REQUEST_CANCELLED.
CANCELLED = 0x10C


async def begin(args, told):
    clients = []
    half = quic.request("CONNECT", "/")[:5]
    for _ in range(args.connections):
        client = await quic.connect(args.server, args.local, keep=False)
        for _ in range(args.streams):
            client.begin(half, end=False)
        client.transmit()
        clients.append(client)
    quic.ready()
    while True:
        await asyncio.sleep(1)
        told["open"] = sum(not client.ended for client in clients)
        told["streams"] = sum(client._quic._remote_max_streams_bidi for client in clients)


async def resets(args, told):
    told.update(requests=0, closed=0)

    async def one():
        while True:
            try:
                client = await quic.connect(args.server, args.local, keep=False)
            except (ConnectionError, TimeoutError, asyncio.TimeoutError):
                await asyncio.sleep(0.5)
                continue
            wanted = quic.request("GET", args.reset)
            while not client.ended:
                for _ in range(20):
                    stream = client.begin(wanted, end=False)
                    client.transmit()
                    client.waiting.pop(stream, None)
                    begun = client._quic._streams.get(stream)
                    if begun is None or begun.is_blocked:
                        break
                    client._quic.stop_stream(stream, CANCELLED)
                    client._quic.reset_stream(stream, CANCELLED)
                    told["requests"] += 1
                client.transmit()
                await asyncio.sleep(0.02)
            told["closed"] += 1
            client.vanish()
            await asyncio.sleep(0.1)

    tasks = [asyncio.ensure_future(one()) for _ in range(args.connections)]
    await asyncio.sleep(0.5)
    quic.ready()
    await asyncio.gather(*tasks)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("connections", type=int)
    parser.add_argument("streams", type=int)
    parser.add_argument("--reset")
    parser.add_argument("--local", default="127.0.0.66")
    args = parser.parse_args()
    quic.run(lambda told: (resets if args.reset else begin)(args, told))


main()
