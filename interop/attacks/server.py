"""A hostile server of HTTP/3 on aioquic. It prints `listening on PORT`, and on SIGTERM a JSON object with what it heard.

    server.py CERT KEY close [--code N]          answers each request by closing, with a reason of escape sequences
    server.py CERT KEY lists --list FILE         answers each directory with this list, and each file with a line
    server.py CERT KEY endless                   answers each directory with another list of 10,000 long names and its next page
    server.py CERT KEY redirect --to URL         leads everybody elsewhere
    server.py CERT KEY listen                    answers with 200 and notes the header fields
    server.py CERT KEY prefer --at ADDR:PORT     names a preferred address
"""

import argparse
import asyncio
import ipaddress
import json
import os
import signal

from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection, QuicConnectionId
from aioquic.quic.events import HandshakeCompleted

import quic

# Title and clipboard (OSC 0 and 52), colours, a C1 control sequence, a bell, ends of lines, and changes of direction.
REASON = "\x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b[31m\u009b31m\x9d0;owned\x9c\r\nFORGED line\u2028FORGED\u202egnihtyna\u2066\x08\x7f"
PREFERRED_ADDRESS = 0x0D
NAMES_A_LIST, LONG = 10_000, 200


class Preferring(QuicConnection):
    """A server's connection that prefers another address."""

    at = None

    def _serialize_transport_parameters(self):
        cid, token = os.urandom(8), os.urandom(16)
        self._host_cids.append(QuicConnectionId(cid=cid, sequence_number=1, stateless_reset_token=token, was_sent=True))
        self._host_cid_seq = 2
        host, port = self.at.rsplit(":", 1)
        address = ipaddress.ip_address(host.strip("[]"))
        four, six = bytes(6), bytes(18)
        if address.version == 4:
            four = address.packed + int(port).to_bytes(2, "big")
        else:
            six = address.packed + int(port).to_bytes(2, "big")
        value = four + six + bytes([len(cid)]) + cid + token
        return super()._serialize_transport_parameters() + quic.integer(PREFERRED_ADDRESS) + quic.integer(len(value)) + value


class Hostile(QuicConnectionProtocol):
    def __init__(self, connection, args, told, stream_handler=None):
        super().__init__(connection)
        self.args, self.told, self.http = args, told, None
        if args.what == "prefer":
            connection.__class__ = Preferring
            Preferring.at = args.at

    def quic_event_received(self, event):
        if isinstance(event, HandshakeCompleted):
            self.told["connections"] = self.told.get("connections", 0) + 1
            self.http = H3Connection(self._quic)
        if self.http is None:
            return
        for received in self.http.handle_event(event):
            if isinstance(received, HeadersReceived):
                self.answer(received.stream_id, {name.decode(): value.decode() for name, value in received.headers})

    def answer(self, stream, fields):
        self.told.setdefault("requests", []).append(fields)
        what, path = self.args.what, fields.get(":path", "")
        if what == "close":
            self._quic.close(error_code=self.args.code, frame_type=None if self.args.code >= 0x100 else 0, reason_phrase=REASON)
            self.transmit()
        elif what == "redirect":
            self.say(stream, 302, b"", ("location", self.args.to))
        elif what == "prefer":
            # Until then the client may try the address.
            self._loop.call_later(1, self.say, stream, 200, b"late\n")
        elif what in ("lists", "endless") and path.partition("?")[0].endswith("/"):
            self.say(stream, 200, self.list(), ("content-type", "application/json"))
        else:
            self.say(stream, 200, b"written by a hostile server\n", ("content-type", "text/plain"))

    def list(self):
        if self.args.what == "lists":
            with open(self.args.list, "rb") as file:
                return file.read()
        number = self.told["lists"] = self.told.get("lists", 0) + 1
        names = (f"{number:0>{LONG}}-{entry}" for entry in range(NAMES_A_LIST))
        entries = [{"name": name, "type": "directory", "mtime": "Fri, 27 Nov 2026 00:00:00 GMT"} for name in names]
        entries.append({"name": f"{number:0>{LONG}}~", "type": "more"})
        return json.dumps(entries).encode()

    def say(self, stream, code, content, *more):
        pairs = [(b":status", str(code).encode()), *((name.encode(), value.encode()) for name, value in more)]
        self.http.send_headers(stream, pairs)
        self.http.send_data(stream, content, True)
        self.transmit()


async def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("cert")
    parser.add_argument("key")
    parser.add_argument("what", choices=["close", "lists", "endless", "redirect", "listen", "prefer"])
    for name in ("list", "to", "at"):
        parser.add_argument(f"--{name}")
    parser.add_argument("--code", type=lambda text: int(text, 0), default=0x100)
    parser.add_argument("--listen", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    args = parser.parse_args()
    told, stop = {}, asyncio.Event()
    configuration = QuicConfiguration(alpn_protocols=["h3"], is_client=False)
    configuration.load_cert_chain(args.cert, args.key)
    create = lambda connection, **more: Hostile(connection, args, told, **more)
    server = await serve(args.listen, args.port, configuration=configuration, create_protocol=create)
    print(f"listening on {server._transport.get_extra_info('sockname')[1]}", flush=True)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    print(json.dumps(told), flush=True)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main())
