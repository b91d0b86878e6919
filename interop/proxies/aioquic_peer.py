"""A client and a server of CONNECT (RFC 9114 section 4.4) and CONNECT-UDP (RFC 9298) on aioquic, which has no such thing of
its own: the server among its examples opens no connections for others. The same command line as `main.go`."""

import argparse
import asyncio
import os
import ssl
import sys

from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, DatagramReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import StreamReset

TEMPLATE = "/.well-known/masque/udp/"
# Bytes that go through CONNECT, and back.
AMOUNT = 5_000_000
# Payloads that go through CONNECT-UDP, and how large they are.
PAYLOADS, PAYLOAD_SIZE = 100, 1000
PATIENCE = 20
MAX_DATAGRAM = 65536


class Http(QuicConnectionProtocol):
    """HTTP/3, and for each stream a queue of what came on it: fields, pieces, datagrams, and `None` for the end."""

    def __init__(self, *args, answer=None, **kwargs):
        super().__init__(*args, **kwargs)
        # Only so does it announce HTTP datagrams.
        self.http = H3Connection(self._quic, enable_webtransport=True)
        self.queues, self.answer, self.tasks = {}, answer, set()

    def quic_event_received(self, event):
        if isinstance(event, StreamReset):
            self.heard(event.stream_id, None)
        for received in self.http.handle_event(event):
            stream = received.stream_id
            if isinstance(received, HeadersReceived):
                fields = {name.decode(): value.decode() for name, value in received.headers}
                if self.answer and stream not in self.queues:
                    self.queues[stream] = asyncio.Queue()
                    task = asyncio.ensure_future(self.answer(self, stream, fields))
                    self.tasks.add(task)
                    task.add_done_callback(self.tasks.discard)
                else:
                    self.heard(stream, fields)
            elif isinstance(received, DataReceived) and received.data:
                self.heard(stream, received.data)
            elif isinstance(received, DatagramReceived):
                self.heard(stream, received.data)
            if getattr(received, "stream_ended", False):
                self.heard(stream, None)

    def heard(self, stream, what):
        if stream in self.queues:
            self.queues[stream].put_nowait(what)

    def fields(self, stream, fields):
        encoded = [(name.encode(), value.encode()) for name, value in fields]
        self.http.send_headers(stream, encoded)
        self.transmit()

    def send(self, stream, data, end=False):
        self.http.send_data(stream, data, end)
        self.transmit()

    def send_datagram(self, stream, data):
        self.http.send_datagram(stream, data)
        self.transmit()

    async def request(self, fields):
        """A stream for which the answer was 200, or the status."""
        stream = self._quic.get_next_available_stream_id()
        self.queues[stream] = asyncio.Queue()
        self.fields(stream, [(":method", "CONNECT"), *fields])
        answer = await self.queues[stream].get()
        return stream, answer and answer[":status"]


async def ask(args):
    """Asks a proxy for flows to targets that echo."""
    trust = QuicConfiguration(alpn_protocols=["h3"], verify_mode=ssl.CERT_NONE, max_datagram_frame_size=MAX_DATAGRAM)
    host, port = args.proxy.rsplit(":", 1)
    async with connect(host, int(port), configuration=trust, create_protocol=Http) as http:
        # Nobody gets in without a password.
        _, status = await http.request([(":authority", args.tcp)])
        assert status == "407", status
        may = ("proxy-authorization", args.credentials)
        stream, status = await http.request([(":authority", args.tcp), may])
        assert status == "200", status
        data, heard = os.urandom(AMOUNT), bytearray()
        http.send(stream, data, end=True)
        while piece := await http.queues[stream].get():
            heard += piece
        assert heard == data, f"{len(heard)} bytes came back, and not those that were sent"
        print(f"CONNECT: {AMOUNT} bytes there and back")
        path = TEMPLATE + args.udp.replace(":", "/") + "/"
        at = [(":protocol", "connect-udp"), (":scheme", "https"), (":authority", args.proxy), (":path", path)]
        stream, status = await http.request([*at, ("capsule-protocol", "?1"), may])
        assert status == "200", status
        for number in range(PAYLOADS):
            # The context ID is 0.
            payload = b"\0" + os.urandom(PAYLOAD_SIZE)
            http.send_datagram(stream, payload)
            assert await http.queues[stream].get() == payload, f"payload {number} came back changed"
        print(f"CONNECT-UDP: {PAYLOADS} payloads there and back")
        http._quic.close(error_code=0x100)


async def answer(http, stream, fields):
    """Answers a request of a client."""
    target = fields.get(":path", "").removeprefix(TEMPLATE).strip("/").split("/")
    if fields.get(":protocol") == "connect-udp" and len(target) == 2:
        await carry_datagrams(http, stream, target)
    elif fields[":method"] == "CONNECT" and ":protocol" not in fields:
        await carry_stream(http, stream, fields[":authority"].rsplit(":", 1))
    else:
        http.fields(stream, [(":status", "405")])
        http.send(stream, b"", end=True)


async def carry_stream(http, stream, target):
    reader, writer = await asyncio.open_connection(target[0], int(target[1]))
    http.fields(stream, [(":status", "200")])

    async def outwards():
        while piece := await http.queues[stream].get():
            writer.write(piece)
            await writer.drain()
        writer.write_eof()

    sending = asyncio.ensure_future(outwards())
    while piece := await reader.read(65536):
        http.send(stream, piece)
    http.send(stream, b"", end=True)
    await sending
    writer.close()


async def carry_datagrams(http, stream, target):
    class Target(asyncio.DatagramProtocol):
        def datagram_received(self, data, _):
            http.send_datagram(stream, b"\0" + data)

    loop = asyncio.get_running_loop()
    outside, _ = await loop.create_datagram_endpoint(Target, remote_addr=(target[0], int(target[1])))
    http.fields(stream, [(":status", "200"), ("capsule-protocol", "?1")])
    while datagram := await http.queues[stream].get():
        # Payloads have the context ID 0.
        if datagram[0] == 0:
            outside.sendto(datagram[1:])
    outside.close()


async def run_server(args):
    configuration = QuicConfiguration(alpn_protocols=["h3"], is_client=False, max_datagram_frame_size=MAX_DATAGRAM)
    configuration.load_cert_chain(args.cert, args.key)
    create = lambda *a, **k: Http(*a, answer=answer, **k)
    server = await serve("127.0.0.1", 0, configuration=configuration, create_protocol=create)
    host, port = server._transport.get_extra_info("sockname")[:2]
    print(f"listening on {host.removeprefix('::ffff:')}:{port}", flush=True)
    await asyncio.Future()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["client", "server"])
    for name in ("proxy", "tcp", "udp", "credentials", "cert", "key"):
        parser.add_argument(f"-{name}")
    args = parser.parse_args()
    asyncio.run(run_server(args) if args.role == "server" else asyncio.wait_for(ask(args), PATIENCE))


if __name__ == "__main__":
    sys.exit(main())
