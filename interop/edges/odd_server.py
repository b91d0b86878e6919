"""A server of HTTP/3 on aioquic whose answers are bytes: everything that a server must not say can be said.

Its pages are byte strings, which end the stream, or functions of a `Request`. It runs in a thread of its own.
"""

import asyncio
import threading

import quic
from aioquic.asyncio import QuicConnectionProtocol, serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import HandshakeCompleted, StreamDataReceived


def answer(content, *more, status="200"):
    """The bytes of an ordinary answer."""
    return quic.fields((":status", status), *more) + quic.frame(quic.DATA, content)


class Request:
    """A request of which all bytes have arrived: its fields, its content, and the ways to answer it."""

    def __init__(self, peer, stream, data):
        self.peer, self.stream = peer, stream
        self.fields = {name.decode(): value.decode(errors="replace") for name, value in next(quic.sections(data), {}).items()}
        self.content = quic.body(data)

    def send(self, data, end=True):
        self.peer._quic.send_stream_data(self.stream, data, end)
        self.peer.transmit()

    def reset(self, code):
        self.peer._quic.reset_stream(self.stream, code)
        self.peer.transmit()

    def close(self, code, application=True, reason=""):
        """Ends the connection."""
        self.peer._quic.close(error_code=code, frame_type=None if application else 0, reason_phrase=reason)
        self.peer.transmit()

    def later(self, seconds, function, *arguments):
        self.peer._loop.call_later(seconds, function, *arguments)


class Peer(QuicConnectionProtocol):
    """A connection of the server."""

    def __init__(self, connection, server, stream_handler=None):
        super().__init__(connection)
        self.server, self.heard = server, {}
        server.prepare(connection)

    def quic_event_received(self, event):
        if isinstance(event, HandshakeCompleted):
            self.control = self._quic.get_next_available_stream_id(is_unidirectional=True)
            self._quic.send_stream_data(self.control, bytes([quic.CONTROL]) + quic.frame(quic.SETTINGS, self.server.settings))
            self.server.opened(self)
        elif isinstance(event, StreamDataReceived) and event.stream_id % 4 == 0:
            self.heard[event.stream_id] = self.heard.get(event.stream_id, b"") + event.data
            if event.end_stream:
                self.asked(Request(self, event.stream_id, self.heard.pop(event.stream_id)))

    def asked(self, request):
        self.server.asked.append(request.fields)
        page = self.server.pages.get(request.fields.get(":path"), answer(b"no such page", status="404"))
        page(request) if callable(page) else request.send(page)

    def unidirectional(self, data):
        """A stream with these bytes."""
        stream = self._quic.get_next_available_stream_id(is_unidirectional=True)
        self._quic.send_stream_data(stream, data)


class OddServer:
    """The server: `asked` has the fields of all requests. `prepare` changes a new connection, and `opened` acts on one
    whose handshake is complete."""

    def __init__(self, place, pages, settings=b"", prepare=lambda _: None, opened=lambda _: None):
        self.pages, self.settings, self.prepare, self.opened, self.asked = pages, settings, prepare, opened, []
        self.configuration = QuicConfiguration(alpn_protocols=["h3"], is_client=False)
        self.configuration.load_cert_chain(*place.identity())
        self.loop, self.ready = asyncio.new_event_loop(), threading.Event()

    def run(self):
        asyncio.set_event_loop(self.loop)
        create = lambda connection, **more: Peer(connection, self, **more)
        self.server = self.loop.run_until_complete(serve("127.0.0.1", 0, configuration=self.configuration, create_protocol=create))
        self.port = self.server._transport.get_extra_info("sockname")[1]
        self.ready.set()
        self.loop.run_forever()
        self.server.close()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.loop.close()

    def url(self, path):
        return f"https://127.0.0.1:{self.port}{path}"

    def paths(self):
        """The paths of all requests."""
        return [fields.get(":path") for fields in self.asked]

    def __enter__(self):
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        self.ready.wait(10)
        return self

    def __exit__(self, *_):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)
