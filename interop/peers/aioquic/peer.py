"""HTTP/0.9 and HTTP/3 on aioquic, with the command line that all peers have, and --alpn."""

import asyncio
import os
import re
import ssl
import sys
from urllib.parse import urlparse

from aioquic.asyncio import QuicConnectionProtocol, connect, serve
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamDataReceived, StreamReset
from aioquic.quic.packet import QuicProtocolVersion

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import common

HQ, H3 = "hq-interop", "h3"
# Bytes received before each step of a drill.
BYTES_BETWEEN = 512 << 10
NOT_FOUND = 404
# Of a request for one part of a file.
PART = re.compile(r"bytes=(\d+)-(\d*)")
VERSIONS = {"v1": QuicProtocolVersion.VERSION_1, "v2": QuicProtocolVersion.VERSION_2}


class Server(QuicConnectionProtocol):
    """Answers requests with files."""

    def __init__(self, *args, directory, **kwargs):
        super().__init__(*args, **kwargs)
        self._directory = directory
        self._requests = {}

    def quic_event_received(self, event):
        if not isinstance(event, StreamDataReceived):
            return
        request = self._requests.get(event.stream_id, b"")
        # The end of the stream may come after the line.
        if request.endswith(b"\n"):
            return
        request += event.data
        self._requests[event.stream_id] = request
        if event.end_stream or request.endswith(b"\n"):
            self._answer(event.stream_id, request.decode())

    def _answer(self, stream, request):
        method, _, name = request.strip().partition(" /")
        file = os.path.join(self._directory, name)
        if method != "GET" or ".." in name or not os.path.isfile(file):
            self._quic.reset_stream(stream, NOT_FOUND)
        else:
            with open(file, "rb") as content:
                self._quic.send_stream_data(stream, content.read(), end_stream=True)
        self.transmit()


class HttpServer(QuicConnectionProtocol):
    """Answers requests of HTTP/3 with files."""

    def __init__(self, *args, directory, **kwargs):
        super().__init__(*args, **kwargs)
        self._directory = directory
        self._http = H3Connection(self._quic)

    def quic_event_received(self, event):
        for received in self._http.handle_event(event):
            if isinstance(received, HeadersReceived):
                self._answer(received.stream_id, dict(received.headers))

    def _answer(self, stream, fields):
        name = fields[b":path"].decode().lstrip("/")
        file = os.path.join(self._directory, name)
        if fields[b":method"] != b"GET" or ".." in name or not os.path.isfile(file):
            self._http.send_headers(stream, [(b":status", b"404")], end_stream=True)
        else:
            with open(file, "rb") as content:
                body = content.read()
            tag = f'"{os.stat(file).st_mtime_ns:x}"'.encode()
            status, more = b"200", [(b"accept-ranges", b"bytes"), (b"etag", tag)]
            part = PART.fullmatch(fields.get(b"range", b"").decode())
            if part and fields.get(b"if-range", tag) == tag:
                first, last = int(part[1]), min(int(part[2] or len(body)), len(body) - 1)
                status = b"206"
                more.append((b"content-range", f"bytes {first}-{last}/{len(body)}".encode()))
                body = body[first : last + 1]
            more.append((b"content-length", str(len(body)).encode()))
            self._http.send_headers(stream, [(b":status", status)] + more)
            self._http.send_data(stream, body, end_stream=True)
        self.transmit()


class Client(QuicConnectionProtocol):
    """Fetches files."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self._files = {}
        self._done = {}
        self._drill = []
        self._bytes = 0

    async def fetch(self, names, out, drill, part):
        if part:
            raise ValueError("HTTP/0.9 knows no parts of files")
        self._drill = list(drill)
        for name in names:
            stream = self._quic.get_next_available_stream_id()
            self._files[stream] = open(os.path.join(out, name), "wb")
            self._done[stream] = asyncio.get_running_loop().create_future()
            self._quic.send_stream_data(stream, f"GET /{name}\r\n".encode(), end_stream=True)
        self.transmit()
        await asyncio.gather(*self._done.values())

    def quic_event_received(self, event):
        if isinstance(event, StreamDataReceived) and event.stream_id in self._files:
            self._files[event.stream_id].write(event.data)
            self._bytes += len(event.data)
            if event.end_stream:
                self._files.pop(event.stream_id).close()
                self._done[event.stream_id].set_result(None)
            self._do_drill()
        elif isinstance(event, StreamReset):
            self._fail(f"stream {event.stream_id} was reset", [event.stream_id])
        elif isinstance(event, ConnectionTerminated):
            self._fail(f"connection lost: {event.reason_phrase}", list(self._done))

    def _fail(self, why, streams):
        for stream in streams:
            if stream in self._done and not self._done[stream].done():
                self._done[stream].set_exception(ConnectionError(why))

    def _do_drill(self):
        if not self._drill or self._bytes < BYTES_BETWEEN:
            return
        self._bytes = 0
        step, _, value = self._drill.pop(0).partition("=")
        if step == "update-keys":
            self.request_key_update()
        elif step == "move":
            self.change_connection_id()
            asyncio.get_running_loop().create_task(self._move(value))
        else:
            raise ValueError(f"unknown step {step}")

    async def _move(self, address):
        old = self._transport
        loop = asyncio.get_running_loop()
        # aioquic has IPv6 sockets, which reach IPv4 by mapped addresses.
        local = "::ffff:" + address
        await loop.create_datagram_endpoint(lambda: self, local_addr=(local, 0))
        old.close()

    def connection_lost(self, exc):
        """Of the old socket after a move; not the end."""


class HttpClient(Client):
    """Fetches files by HTTP/3."""

    async def fetch(self, names, out, drill, part):
        self._http = H3Connection(self._quic)
        self._status = b"206" if part else b"200"
        for name in names:
            stream = self._quic.get_next_available_stream_id()
            self._files[stream] = open(os.path.join(out, name), "wb")
            self._done[stream] = asyncio.get_running_loop().create_future()
            fields = [(":method", "GET"), (":scheme", "https"), (":authority", "localhost")]
            fields.append((":path", f"/{name}"))
            if part:
                fields.append(("range", f"bytes={part}"))
            fields = [(key.encode(), value.encode()) for key, value in fields]
            self._http.send_headers(stream, fields, end_stream=True)
        self.transmit()
        await asyncio.gather(*self._done.values())
        # By HTTP/3's name for it.
        self._quic.close(error_code=0x100)

    def quic_event_received(self, event):
        if not isinstance(event, StreamDataReceived):
            super().quic_event_received(event)
            return
        for received in self._http.handle_event(event):
            stream = received.stream_id
            if isinstance(received, HeadersReceived):
                fields = dict(received.headers)
                if fields.get(b":status") not in (self._status, None):
                    self._fail(f"stream {stream} was answered {fields}", [stream])
            elif isinstance(received, DataReceived):
                self._files[stream].write(received.data)
            if received.stream_ended:
                self._files.pop(stream).close()
                self._done[stream].set_result(None)


async def run_server(args):
    configuration = QuicConfiguration(
        alpn_protocols=[args.alpn],
        is_client=False,
        supported_versions=[VERSIONS[name] for name in args.quic_version.split(",")],
    )
    configuration.load_cert_chain(args.cert, args.key)
    host, _, port = args.listen.rpartition(":")
    tickets = {}
    protocol = HttpServer if args.alpn == H3 else Server
    server = await serve(
        host.strip("[]"),
        int(port),
        configuration=configuration,
        create_protocol=lambda *a, **k: protocol(*a, directory=args.dir, **k),
        session_ticket_fetcher=lambda label: tickets.get(label),
        session_ticket_handler=lambda ticket: tickets.update({ticket.ticket: ticket}),
        retry=args.retry,
    )
    address = server._transport.get_extra_info("sockname")
    host = f"[{address[0]}]" if ":" in address[0] else address[0]
    print(f"listening on {host}:{address[1]}", flush=True)
    await asyncio.Future()


async def run_client(args):
    urls = [urlparse(url) for url in args.urls]
    versions = [VERSIONS[name] for name in args.quic_version.split(",")]
    configuration = QuicConfiguration(
        alpn_protocols=[args.alpn],
        is_client=True,
        verify_mode=ssl.CERT_NONE,
        original_version=min(versions),
        supported_versions=versions,
    )
    configuration.server_name = "localhost"
    drill = args.drill.split(",") if args.drill else []
    for _ in range(args.connections):
        known = configuration.session_ticket is not None
        async with connect(
            urls[0].hostname,
            urls[0].port,
            configuration=configuration,
            create_protocol=HttpClient if args.alpn == H3 else Client,
            session_ticket_handler=lambda ticket: setattr(configuration, "session_ticket", ticket),
            wait_connected=not (args.early_data and known),
        ) as client:
            names = [url.path.lstrip("/") for url in urls]
            await client.fetch(names, args.out, drill, args.range)


def arguments():
    parser, server, client = common.parsers(__doc__)
    client.add_argument("--drill")
    client.add_argument("--range")
    for role in (server, client):
        role.add_argument("--quic-version", default="v1,v2")
        role.add_argument("--alpn", default=HQ, choices=[HQ, H3])
    return parser.parse_args()


def main():
    args = arguments()
    try:
        asyncio.run(run_server(args) if args.role == "server" else run_client(args))
    except OSError as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
