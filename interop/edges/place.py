"""A case's directory and programs, the register of cases, and helpers of all cases, for interop/edges/run."""

import asyncio
import contextlib
import hashlib
import os
import pathlib
import socket
import struct
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
os.environ.setdefault("MPQUIC", str(HERE.parents[1] / "target/debug/mpquic"))
sys.path.append(str(HERE.parent / "attacks"))
import quic  # noqa: E402
import rig  # noqa: E402
from links import inside  # noqa: E402

CASES = []
URL = "https://127.0.0.1:4733"
SERVE = "127.0.0.1:4733"


def case(*rows):
    """Registers a case of these rows of `table.py`; without a row it is beyond the table."""

    def add(function):
        CASES.append((function, rows))
        return function

    return add


def expect(condition, text):
    if not condition:
        raise rig.Fault(text)


class Place(rig.Place):
    """A case's directory, and the programs that it has started."""

    def __init__(self):
        super().__init__(quick=True)
        self.pin = ""

    def tool(self, *arguments, namespace=None, env=None, prefix=(), **more):
        """Starts the tool, its output and its errors in one file."""
        prefix = [*inside(namespace, []), *prefix]
        return self.mpquic(*arguments, prefix=prefix, env={**self.env, **(env or {})}, together=True, **more)

    def serve(self, folder, *options, namespace=None, listen=SERVE, **more):
        """Starts a server of this folder; afterwards `pin` is its fingerprint, unless it has a certificate of the case."""
        server = super().serve(folder, *options, listen=listen, prefix=inside(namespace, []), together=True, **more)
        self.pin = "" if "--cert" in options else server.wait_for(r"sha256:[0-9a-f:]+")[0].decode()
        return server

    def trust(self):
        return ["--pin", self.pin] if self.pin else ["--insecure"]

    def begin_get(self, *arguments, **more):
        return self.tool("get", *self.trust(), *arguments, **more)

    def begin_put(self, *arguments, **more):
        return self.tool("put", *self.trust(), *arguments, **more)

    def get(self, *arguments, seconds=60, **more):
        """Runs `get` and answers its exit code, its seconds and its output."""
        began = time.monotonic()
        code, text = finish(self.begin_get(*arguments, **more), seconds)
        return code, time.monotonic() - began, text

    def put(self, *arguments, seconds=60, **more):
        return finish(self.begin_put(*arguments, **more), seconds)

    def fetched(self, url, *options, **more):
        """The content that `get` stores; the case fails if it does not say success."""
        got = self / "fetched"
        got.unlink(missing_ok=True)
        code, _, text = self.get("-q", *options, "-o", got, url, **more)
        expect(code == 0, f"{url}: exit {code}: {text[-300:]}")
        return got.read_bytes()


def finish(program, seconds):
    """The exit code and the output of a program that must end in time."""
    code = program.wait(seconds)
    expect(code is not None, f"it still runs after {seconds} s: {program.said()[-300:]}")
    return code, program.said()


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def background(function, *arguments):
    """Runs a function beside the case; it ends with its socket."""

    def quietly():
        with contextlib.suppress(OSError):
            function(*arguments)

    threading.Thread(target=quietly, daemon=True).start()


def echo(address="127.0.0.1", port=0):
    """A UDP socket that sends everything back."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    udp = socket.socket(family, socket.SOCK_DGRAM)
    udp.bind((address, port))

    def answer():
        while True:
            data, peer = udp.recvfrom(70000)
            udp.sendto(data, peer)

    background(answer)
    return udp


def tcp_server(serve, address="127.0.0.1"):
    """A TCP server that calls `serve` with each connection; answers its port."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.create_server((address, 0), family=family)

    def accept():
        while True:
            background(serve, listener.accept()[0])

    background(accept)
    return listener.getsockname()[1]


def asked(*requests, server=SERVE):
    """What a server answers to these requests in bytes: the status of each answer, how it ended, and its bytes. A request that
    ends the connection has the code of this end; the next request has a new connection."""

    async def ask():
        client, answers = await quic.connect(server, "127.0.0.1"), []
        for request in requests:
            if client.ended:
                client = await quic.connect(server, "127.0.0.1")
            answer, how = await asyncio.wait_for(client.ask(request), 10)
            answers.append((quic.status(answer), client.ended.error_code if client.ended else how, answer))
        client._quic.close(error_code=0x100)
        client.transmit()
        return answers

    return asyncio.run(ask())


def proxy(place, *options, server=(), listen="127.0.0.1:4740", namespaces=(None, None)):
    """A proxy's server and client; the client is connected. `namespaces` are those of server and client."""
    far = place.tool("proxy", "server", "--open", "--listen", listen, "--drain-timeout", 1, *server, namespace=namespaces[0])
    pin = far.wait_for(r"sha256:[0-9a-f:]+")[0].decode()
    near = place.tool("proxy", "client", f"https://{listen}", "--pin", pin, *options, namespace=namespaces[1])
    near.wait_for("connected to", 15)
    return far, near


def socks_target(host, port):
    """A target of SOCKS 5, from an address or a name."""
    for version, kind in ((socket.AF_INET, b"\1"), (socket.AF_INET6, b"\4")):
        with contextlib.suppress(OSError):
            return kind + socket.inet_pton(version, host) + struct.pack(">H", port)
    name = host.encode()
    return b"\3" + bytes([len(name)]) + name + struct.pack(">H", port)


@contextlib.contextmanager
def socks(entrance, command, target, patience=10):
    """A request to a SOCKS entrance: the connection and the whole reply, which is empty if there is none."""
    with socket.create_connection(entrance) as stream:
        stream.settimeout(patience)
        stream.sendall(b"\5\1\0")
        expect(stream.recv(2) == b"\5\0", "the SOCKS entrance wants a password")
        stream.sendall(b"\5" + bytes([command]) + b"\0" + target)
        reply = b""
        with contextlib.suppress(TimeoutError, ConnectionError):
            # Not a byte more: bytes of the target may follow at once.
            reply = stream.recv(4, socket.MSG_WAITALL)
            address = {1: 4, 4: 16}.get(reply[3] if len(reply) == 4 else 0, 0)
            reply += stream.recv(address + 2, socket.MSG_WAITALL) if address else b""
        yield stream, reply


def socks_reply(entrance, host, port):
    """The number in the reply to CONNECT, or `None` without a reply."""
    with socks(entrance, 1, socks_target(host, port)) as (_, reply):
        return reply[1] if len(reply) > 1 else None
