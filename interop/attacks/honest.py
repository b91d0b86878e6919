"""An honest client that makes requests one after the other, and prints a JSON object with the seconds of each.

    honest.py SERVER PATH --count N [--pause SECONDS] [--local ADDR] [--tcp | --socks TARGET] [--field NAME=VALUE ...]

Each request has a connection of its own. A request that fails or takes longer than ten seconds counts as ten seconds.
"""

import argparse
import asyncio
import http.client
import json
import socket
import ssl
import time

import quic

PATIENCE = 10


async def by_quic(args):
    client = await quic.connect(args.server, args.local, patience=PATIENCE)
    try:
        pairs = [pair.split("=", 1) for pair in args.field]
        if args.connect:
            wanted = quic.fields((":method", "CONNECT"), (":authority", args.connect), *pairs)
            stream = client.begin(wanted, end=False)
            client.transmit()
            while not client.heard.get(stream) and not client.ended:
                await asyncio.sleep(0.001)
            answer = client.heard.get(stream, b"")
        else:
            answer, _ = await client.ask(quic.request("GET", args.path, *pairs))
        return quic.status(answer), len(quic.body(answer))
    finally:
        client._quic.close(error_code=0x100)
        client.transmit()
        client.vanish()


def by_tcp(args):
    host, port = args.server.rsplit(":", 1)
    context = ssl._create_unverified_context()
    connection = http.client.HTTPSConnection(host, int(port), timeout=PATIENCE, source_address=(args.local, 0), context=context)
    try:
        connection.request("GET", args.path)
        answer = connection.getresponse()
        return answer.status, len(answer.read())
    finally:
        connection.close()


def by_socks(args):
    """Asks a SOCKS entrance for its target, which answers with its name."""
    host, port = args.server.rsplit(":", 1)
    to, at = args.socks.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as stream:
        stream.sendall(b"\5\1\0")
        assert stream.recv(2) == b"\5\0"
        stream.sendall(b"\5\1\0\1" + socket.inet_aton(to) + int(at).to_bytes(2, "big"))
        answer = stream.recv(10)
        assert answer[1:2] == b"\0", answer
        stream.sendall(b"hello")
        return 200, len(stream.recv(5))


async def one(args):
    """The seconds of a request, and its status; 0 for none."""
    began = time.monotonic()
    try:
        if args.tcp or args.socks:
            code, _ = await asyncio.wait_for(asyncio.to_thread(by_tcp if args.tcp else by_socks, args), PATIENCE)
        else:
            code, _ = await asyncio.wait_for(by_quic(args), PATIENCE)
    except (OSError, TimeoutError, asyncio.TimeoutError, ConnectionError, AssertionError, http.client.HTTPException):
        code = 0
    seconds = time.monotonic() - began
    return (seconds if code == 200 else max(seconds, PATIENCE)), code


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("path")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--pause", type=float, default=0.05)
    parser.add_argument("--local", default="127.0.0.2")
    parser.add_argument("--tcp", action="store_true")
    parser.add_argument("--socks")
    parser.add_argument("--connect")
    parser.add_argument("--field", action="append", default=[])
    args = parser.parse_args()
    # The first request warms up this program.
    await one(args)
    seconds, codes = [], []
    for _ in range(args.count):
        took, code = await one(args)
        seconds.append(took)
        codes.append(code)
        await asyncio.sleep(args.pause)
    print(json.dumps({"seconds": seconds, "codes": codes}))


if __name__ == "__main__":
    asyncio.run(main())
