"""Requests files, and uploads others, as fast as it can, until SIGTERM. Counts answers that contain the word `outside`.

    crowd.py SERVER --get PATH ... --put PREFIX ...
"""

import argparse
import asyncio
import collections

import quic

AT_A_TIME = 12


async def crowd(args, told):
    told.update(gets=collections.Counter(), puts=collections.Counter(), outside=0)
    numbers = iter(range(1 << 40))

    async def one(client):
        while not client.ended:
            number = next(numbers)
            paths = args.get + args.put
            path = paths[number % len(paths)]
            if path in args.get:
                answer, how = await client.ask(quic.request("GET", path))
                told["gets"][quic.status(answer) if how == "end" else how] += 1
                told["outside"] += b"outside" in quic.body(answer)
            else:
                data = quic.request("PUT", f"{path}{number % 1000}") + quic.frame(quic.DATA, b"by the crowd")
                answer, how = await client.ask(data)
                told["puts"][quic.status(answer) if how == "end" else how] += 1

    quic.ready()
    while True:
        client = await quic.connect(args.server, args.local)
        await asyncio.gather(*(one(client) for _ in range(AT_A_TIME)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("--get", action="append", default=[])
    parser.add_argument("--put", action="append", default=[])
    parser.add_argument("--local", default="127.0.0.2")
    args = parser.parse_args()
    quic.run(lambda told: crowd(args, told))


main()
