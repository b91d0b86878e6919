"""Hostile and honest clients of HTTP/3 on aioquic: each byte that they send is counted, and credit is given by hand."""

import asyncio
import json
import os
import signal
import socket
import ssl

import pylsqpack
from aioquic.asyncio import QuicConnectionProtocol
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.connection import QuicConnection
from aioquic.quic.events import ConnectionTerminated, StreamDataReceived, StreamReset
from aioquic.quic.packet import QuicFrameType

DATA, HEADERS, SETTINGS, CONTROL = 0x00, 0x01, 0x04, 0x00
# A MAX_STREAM_DATA frame: the type and two integers of up to 8 bytes.
CREDIT_FRAME = 17
PLENTY = 1 << 40


def integer(value):
    """A QUIC variable-length integer."""
    for length, mark in ((1, 0), (2, 1), (4, 2), (8, 3)):
        if value < 1 << (8 * length - 2):
            return (value | mark << (8 * length - 2)).to_bytes(length, "big")
    raise ValueError(value)


def prefixed(value, bits, mark):
    """A QPACK integer with a prefix of so many bits."""
    most = (1 << bits) - 1
    if value < most:
        return bytes([mark | value])
    value, encoded = value - most, [mark | most]
    while value >= 128:
        encoded.append(value % 128 | 128)
        value //= 128
    return bytes([*encoded, value])


def frame(kind, payload):
    return integer(kind) + integer(len(payload)) + payload


def fields(*pairs):
    """A HEADERS frame of literal fields, without the dynamic table."""
    block = b"\0\0"
    for name, value in pairs:
        name, value = name.encode(), value.encode() if isinstance(value, str) else value
        block += prefixed(len(name), 3, 0x20) + name + prefixed(len(value), 7, 0) + value
    return frame(HEADERS, block)


def request(method, path, *more, authority="localhost"):
    return fields((":method", method), (":scheme", "https"), (":authority", authority), (":path", path), *more)


class ByHand(QuicConnection):
    """A connection that gives credit to streams only when it is told to."""

    def _write_stream_limits(self, builder, space, stream):
        if stream.max_stream_data_local_sent == stream.max_stream_data_local:
            return
        buffer = builder.start_frame(
            QuicFrameType.MAX_STREAM_DATA,
            capacity=CREDIT_FRAME,
            handler=self._on_max_stream_data_delivery,
            handler_args=(stream,),
        )
        buffer.push_uint_var(stream.stream_id)
        buffer.push_uint_var(stream.max_stream_data_local)
        stream.max_stream_data_local_sent = stream.max_stream_data_local


class Counted:
    """A socket that counts the bytes that leave through it."""

    sent = 0

    def __init__(self, transport):
        self.transport = transport

    def sendto(self, data, _):
        Counted.sent += len(data)
        self.transport.sendto(data)

    def close(self):
        self.transport.close()


class Client(QuicConnectionProtocol):
    """A connection: what came on each stream, and whether it ended."""

    def __init__(self, quic, keep=True):
        super().__init__(quic)
        self.keep, self.heard, self.waiting, self.ended = keep, {}, {}, None

    def connection_made(self, transport):
        self._transport = Counted(transport)

    def error_received(self, error):
        pass

    def quic_event_received(self, event):
        if isinstance(event, StreamDataReceived):
            if self.keep:
                self.heard[event.stream_id] = self.heard.get(event.stream_id, b"") + event.data
            if event.end_stream:
                self.finish(event.stream_id, "end")
        elif isinstance(event, StreamReset):
            self.finish(event.stream_id, event.error_code)
        elif isinstance(event, ConnectionTerminated):
            self.ended = event
            for stream in list(self.waiting):
                self.finish(stream, "closed")

    def finish(self, stream, how):
        waiter = self.waiting.pop(stream, None)
        if waiter and not waiter.done():
            waiter.set_result(how)

    def settings(self):
        control = self._quic.get_next_available_stream_id(is_unidirectional=True)
        self._quic.send_stream_data(control, bytes([CONTROL]) + frame(SETTINGS, b""))

    def begin(self, data, end=True):
        """Begins a request; answers its stream."""
        stream = self._quic.get_next_available_stream_id()
        self._quic.send_stream_data(stream, data, end)
        self.waiting[stream] = self._loop.create_future()
        return stream

    async def ask(self, data, end=True):
        """Sends a request and waits for the end of the answer; answers its bytes and how it ended."""
        stream = self.begin(data, end)
        waiter = self.waiting[stream]
        self.transmit()
        how = await waiter
        return self.heard.pop(stream, b""), how

    def give(self, stream, amount):
        """Gives a stream further credit."""
        found = self._quic._streams.get(stream)
        if found:
            found.max_stream_data_local += amount

    def read(self, stream):
        """How many bytes came on a stream."""
        found = self._quic._streams.get(stream)
        return found.receiver.highest_offset if found else 0

    def vanish(self):
        """Says nothing any more."""
        if self._timer:
            self._timer.cancel()
        self._transport.close()


def frames(stream):
    """The types and the payloads of the frames of a stream."""
    at = 0
    while at + 2 <= len(stream):
        kind, at = take(stream, at)
        length, at = take(stream, at)
        yield kind, stream[at : at + length]
        at += length


def sections(stream):
    """A dictionary of bytes for each HEADERS frame of a stream."""
    for kind, payload in frames(stream):
        if kind == HEADERS:
            yield dict(pylsqpack.Decoder(0, 0).feed_header(0, payload)[1])


def status(answer):
    """The status of an answer, by a search of the HEADERS frames in it; 0 without one."""
    codes = (int(found.get(b":status", b"0")) for found in sections(answer))
    return next((code for code in codes if code >= 200), 0)


def take(data, at):
    length = 1 << (data[at] >> 6)
    value = int.from_bytes(data[at : at + length], "big") & ((1 << (8 * length - 2)) - 1)
    return value, at + length


def body(answer):
    """The bytes of the DATA frames of an answer."""
    return b"".join(payload for kind, payload in frames(answer) if kind == DATA)


async def connect(server, local, *, by_hand=False, keep=True, credit=1 << 20, alpn="h3", patience=10):
    """A connection from this local address to `HOST:PORT`."""
    host, port = server.rsplit(":", 1)
    trust = QuicConfiguration(
        alpn_protocols=[alpn], verify_mode=ssl.CERT_NONE, server_name="localhost",
        max_data=PLENTY if by_hand else 16 << 20, max_stream_data=credit, idle_timeout=60,
    )
    quic = (ByHand if by_hand else QuicConnection)(configuration=trust)
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    udp.bind((local, 0))
    udp.connect((host, int(port)))
    udp.setblocking(False)
    loop = asyncio.get_running_loop()
    _, client = await loop.create_datagram_endpoint(lambda: Client(quic, keep), sock=udp)
    client.connect((host, int(port)))
    try:
        await asyncio.wait_for(client.wait_connected(), patience)
    except BaseException:
        client.vanish()
        raise
    client.settings()
    client.transmit()
    return client


def run(attack):
    """Runs a hostile program: `attack(told)` begins, says `ready` when all is in place, and goes on. SIGTERM ends it without
    a word to the server; then it prints the bytes sent and what it has put into `told`."""

    async def main():
        told, stop = {}, asyncio.Event()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        task = asyncio.ensure_future(attack(told))
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait([task, stopping], return_when=asyncio.FIRST_COMPLETED)
        if task.done() and task.exception():
            raise task.exception()
        if task.done():
            ready()
            await stopping
        print(json.dumps({"sent": Counted.sent, **told}), flush=True)
        # Nothing of what waits is sent.
        os._exit(0)

    asyncio.run(main())


def ready():
    print("ready", flush=True)
