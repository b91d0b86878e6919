"""Sends one request and prints the status and the body; or sends the head and a first part of an upload, and waits.

    ask.py SERVER METHOD PATH [--field NAME=VALUE ...] [--part BYTES]
"""

import argparse
import asyncio
import sys

import quic


async def ask(args):
    client = await quic.connect(args.server, args.local)
    pairs = [pair.split("=", 1) for pair in args.field]
    wanted = quic.request(args.method, args.path, *pairs)
    content = sys.stdin.buffer.read() if args.method == "PUT" else b""
    answer, how = await client.ask(wanted + (quic.frame(quic.DATA, content) if content else b""))
    print(quic.status(answer), how, flush=True)
    sys.stdout.buffer.write(quic.body(answer))
    client._quic.close(error_code=0x100)
    client.transmit()


async def part(args, _):
    """An upload that goes on with a byte a second."""
    client = await quic.connect(args.server, args.local)
    pairs = [pair.split("=", 1) for pair in args.field]
    stream = client.begin(quic.request(args.method, args.path, *pairs), end=False)
    client._quic.send_stream_data(stream, quic.frame(quic.DATA, b"u" * args.part))
    client.transmit()
    quic.ready()
    while True:
        await asyncio.sleep(1)
        client._quic.send_stream_data(stream, quic.frame(quic.DATA, b"u"))
        client.transmit()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("method")
    parser.add_argument("path")
    parser.add_argument("--field", action="append", default=[])
    parser.add_argument("--part", type=int)
    parser.add_argument("--local", default="127.0.0.2")
    args = parser.parse_args()
    if args.part:
        quic.run(lambda told: part(args, told))
    asyncio.run(ask(args))


main()
