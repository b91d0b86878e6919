"""A client that connects to a server and closes with the reason of server.py.

    closing.py SERVER [--code N]
"""

import argparse
import asyncio

import quic
from server import REASON


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("server")
    parser.add_argument("--code", type=lambda text: int(text, 0), default=0x100)
    args = parser.parse_args()
    client = await quic.connect(args.server, "127.0.0.66")
    wanted = quic.request("GET", "/" + "".join(f"%{byte:02x}" for byte in REASON.encode()))
    await client.ask(wanted)
    client._quic.close(error_code=args.code, frame_type=None if args.code >= 0x100 else 0, reason_phrase=REASON)
    client.transmit()
    await asyncio.sleep(0.2)


asyncio.run(main())
