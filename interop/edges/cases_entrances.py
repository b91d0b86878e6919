"""Cases about the entrances of `proxy client` and the programs that use them, and about targets that are forbidden."""

import contextlib
import os
import signal
import socket
import struct
import time

from links import CLIENT, SERVER, SERVER_V4, SERVER_V6, Links, entered
from place import case, echo, expect, proxy, socks, socks_reply, socks_target, tcp_server, write

SOCKS, HTTP = ("127.0.0.1", 4743), ("127.0.0.1", 4741)
LOOPBACK = ("--allow", "127.0.0.0/8", "--allow", "::1")
ENTRANCES = ("--socks", "127.0.0.1:4743", "--http", "127.0.0.1:4741")


def hello(connection):
    """A target that says hello, and then what it has heard."""
    connection.sendall(b"hello ")
    while data := connection.recv(65536):
        connection.sendall(data)
    connection.close()


def read_to_end(stream, patience=3):
    heard = b""
    stream.settimeout(patience)
    with contextlib.suppress(TimeoutError, ConnectionError):
        while more := stream.recv(65536):
            heard += more
    return heard


# --- SOCKS -----------------------------------------------------------------------------------------------------


@case("SOCKS")
def requests_in_single_bytes_and_with_early_data(place):
    port = tcp_server(hello)
    proxy(place, *ENTRANCES, server=LOOPBACK)
    message = b"\5\1\0\5\1\0" + socks_target("127.0.0.1", port) + b"early"
    for pieces in ([message], [bytes([byte]) for byte in message]):
        with socket.create_connection(SOCKS) as stream:
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in pieces:
                stream.sendall(piece)
                time.sleep(0.01)
            stream.shutdown(socket.SHUT_WR)
            heard = read_to_end(stream)
        expect(heard[:4] == b"\5\0\5\0" and sorted(heard[12:]) == sorted(b"hello early"), f"{len(pieces)} pieces: {heard}")


@case("SOCKS")
def greetings_and_commands_that_are_refused(place):
    proxy(place, *ENTRANCES, server=LOOPBACK)
    answers = {}
    for name, message, wanted in (
        ("many methods", b"\5\xff" + bytes(range(255)), b"\5\0"), ("no method that we have", b"\5\1\2", b"\5\xff"), ("no method at all", b"\5\0", b"\5\xff"),
        ("SOCKS 4", b"\4\1\0\x50\x7f\0\0\1user\0", b""), ("HTTP", b"GET / HTTP/1.1\r\n\r\n", b""),
    ):
        with socket.create_connection(SOCKS) as stream:
            stream.sendall(message)
            answers[name] = read_to_end(stream, 1)[:2]
            expect(answers[name] == wanted, f"{name}: {answers[name]}, wanted {wanted}")
    for command in (2, 9):
        with socks(SOCKS, command, socks_target("127.0.0.1", 80)) as (_, reply):
            expect(reply[1:2] == b"\7", f"command {command}: {reply}, wanted 7")
    with socks(SOCKS, 1, b"\7" + b"\1\2\3\4\0\x50") as (_, reply):
        expect(reply[1:2] == b"\x08", f"an unknown kind of address: {reply}, wanted 8")


@contextlib.contextmanager
def association(entrance=SOCKS):
    """A UDP socket, and a function that sends a payload to a target through the entrance and answers what comes back."""
    with socks(entrance, 3, socks_target("0.0.0.0", 0)) as (_, reply), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        expect(reply[1:2] == b"\0", f"UDP ASSOCIATE: {reply}")
        relay = (entrance[0], struct.unpack(">H", reply[-2:])[0])

        def ask(host, port, payload, fragment=0, tries=3, patience=1.0):
            udp.settimeout(patience)
            for _ in range(tries):
                udp.sendto(bytes([0, 0, fragment]) + socks_target(host, port) + payload, relay)
                with contextlib.suppress(TimeoutError):
                    return udp.recv(70000)[len(b"\0\0\0" + socks_target(host, port)) :]
            return None

        yield ask


@case("SOCKS", "zero", "25d")
def payloads_of_an_association(place):
    target = echo()
    port = target.getsockname()[1]
    six = echo("::1")
    proxy(place, *ENTRANCES, server=LOOPBACK)
    with association() as ask:
        for payload in (b"x", b"", b"y" * 1200, b"z" * 9000):
            expect(ask("127.0.0.1", port, payload) == payload, f"{len(payload)} bytes do not come back")
        expect(ask("127.0.0.1", port, b"part", fragment=1, tries=1) is None, "a fragment was sent on")
        for name in ("::1", "localhost"):
            host = six.getsockname()[1] if name == "::1" else port
            expect(ask(name, host, b"name") is not None, f"{name}: nothing comes back")
        expect(ask("[::1]", six.getsockname()[1], b"name") is not None, "[::1]: nothing comes back")


@case("13b")
def an_association_with_300_targets(place):
    targets = [echo() for _ in range(300)]
    proxy(place, *ENTRANCES, server=LOOPBACK)
    with association() as ask:
        answered = sum(ask("127.0.0.1", target.getsockname()[1], b"%d" % number) == b"%d" % number for number, target in enumerate(targets))
    expect(answered == 300, f"{answered} of 300 targets answered")


@case("25d", "25e")
def addresses_in_brackets_and_in_replies(place):
    port = tcp_server(hello, "::1")
    proxy(place, "--socks", "[::]:4743", server=LOOPBACK)
    for name in ("[::1]", "::1"):
        target = b"\3" + bytes([len(name)]) + name.encode() + struct.pack(">H", port)
        with socks(SOCKS, 1, target) as (stream, reply):
            expect(reply[1:2] == b"\0" and stream.recv(6) == b"hello ", f"{name}: {reply}")
            expect(reply[3:4] == b"\1" and len(reply) == 10, f"the client has an IPv4 address, and the reply is {reply}")
    with socks(("::1", 4743), 3, socks_target("::", 0)) as (_, reply):
        expect(reply[3:4] == b"\4", f"the client has an IPv6 address, and the reply is {reply}")


@case("24")
def both_wildcards_of_an_entrance(place):
    port = tcp_server(hello)
    proxy(place, "--socks", "0.0.0.0:4743", "--socks", "[::]:4743", server=LOOPBACK)
    time.sleep(0.5)
    replies = [socks_reply((host, 4743), "127.0.0.1", port) for host in ("127.0.0.1", "::1")]
    expect(replies == [0, 0], f"replies {replies}")


# --- HTTP ------------------------------------------------------------------------------------------------------


def keeping(seen, answer):
    """An HTTP server that notes the heads of requests, and answers each connection once."""

    def serve(connection):
        waiting = b""
        while b"\r\n\r\n" not in waiting:
            more = connection.recv(65536)
            if not more:
                return
            waiting += more
        seen.append(waiting)
        answer(connection)

    return tcp_server(serve)


def plain(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


def over_http(message, patience=1):
    with socket.create_connection(HTTP) as stream:
        stream.sendall(message)
        return read_to_end(stream, patience)


@case("25c")
def websocket_through_the_http_entrance(place):
    seen = []

    def switch(connection):
        connection.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        hello(connection)

    port = keeping(seen, switch)
    proxy(place, *ENTRANCES, server=LOOPBACK)
    with socket.create_connection(HTTP) as stream:
        stream.settimeout(3)
        fields = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        stream.sendall(b"GET http://127.0.0.1:%d/chat HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n%s\r\n" % (port, port, fields))
        time.sleep(0.5)
        stream.sendall(b"there")
        stream.shutdown(socket.SHUT_WR)
        heard = read_to_end(stream)
    expect(seen and b"upgrade: websocket" in seen[0].lower(), f"the target heard {seen}")
    expect(heard.startswith(b"HTTP/1.1 101") and heard.endswith(b"hello there"), f"the program heard {heard}")


@case("25j", "HTTP entrance")
def odd_requests_of_programs(place):
    seen = []
    port = keeping(seen, plain)
    proxy(place, *ENTRANCES, server=LOOPBACK)
    host, target = b"Host: 127.0.0.1:%d\r\n" % port, b"http://127.0.0.1:%d" % port
    taken = {
        "a backtick": b"GET " + target + b"/a`b HTTP/1.1\r\n" + host + b"\r\n", "a quote": b"GET " + target + b'/?q="x" HTTP/1.1\r\n' + host + b"\r\n",
        "brackets and bars": b"GET " + target + b"/a[1]|{x}^ HTTP/1.1\r\n" + host + b"\r\n", "HTTP/1.0": b"GET " + target + b"/ HTTP/1.0\r\n\r\n",
        "Expect": b"POST " + target + b"/ HTTP/1.1\r\n" + host + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\nhi",
        "an empty path": b"GET " + target + b" HTTP/1.1\r\n" + host + b"\r\n",
    }
    for name, message in taken.items():
        seen.clear()
        heard = over_http(message)
        expect(heard.startswith(b"HTTP/1.1 200") and heard.endswith(b"ok") and len(seen) == 1, f"{name}: {heard[:80]}, the target heard {seen}")
    seen.clear()
    refused = {
        "a blank before the colon": b"GET " + target + b"/ HTTP/1.1\r\n" + host + b"X : y\r\n\r\n",
        "a folded line": b"GET " + target + b"/ HTTP/1.1\r\n" + host + b"X: y\r\n z\r\n\r\n",
        "two lengths": b"POST " + target + b"/ HTTP/1.1\r\n" + host + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\nhi!", "an origin's form": b"GET / HTTP/1.1\r\n\r\n",
        "no port in CONNECT": b"CONNECT 127.0.0.1 HTTP/1.1\r\n\r\n",
        "a user in CONNECT": b"CONNECT a@127.0.0.1:%d HTTP/1.1\r\n\r\n" % port,
        "https": b"GET https" + target[4:] + b"/ HTTP/1.1\r\n" + host + b"\r\n\r\n",
        "a length and chunks": b"POST " + target + b"/ HTTP/1.1\r\n" + host + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    }
    for name, message in refused.items():
        heard = over_http(message)
        code = heard[9:12]
        expect(code[:1] in (b"4", b"5") and heard.count(b"HTTP/1.") == 1 and not seen, f"{name}: {heard[:80]}, the target heard {seen}")
    # RFC 9112 section 2.2 lets a server take lines that end with LF alone.
    heard = over_http(b"GET " + target + b"/ HTTP/1.1\n" + host.replace(b"\r", b"") + b"\n")
    expect(heard[9:12] in (b"200", b"400") or not heard, f"lines that end with LF: {heard[:80]}")


# --- forbidden targets -----------------------------------------------------------------------------------------

LOCAL_NAMES = (
    "127.1", "127.0.1", "0x7f.1", "0x7f000001", "2130706433", "017700000001", "0177.0.0.1", "127.0.0.1.", "localhost", "LOCALHOST", "localhost.", "0", "0.0.0.0",
    "::1", "[::1]", "::ffff:127.0.0.1", "[::ffff:7f00:1]", "::ffff:0:127.0.0.1", "::127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b:1::127.0.0.1", "2002:7f00:1::",
    "2001:0:7f00:1::", "::", "[::]", "0:0:0:0:0:0:0:1", "127.0.0.1%00.example", "127.0.0.1 ", " 127.0.0.1", "\uff11\uff12\uff17.0.0.1", "127\u30020\u30020\u30021",
    "ip6-localhost", "localhost.localdomain", "127.255.255.254", "fe80::1%lo",
)


@case("SSRF", "14b")
def this_machine_in_all_spellings(place):
    reached = []
    ports = [tcp_server(lambda connection: reached.append(connection.getpeername()), address) for address in ("127.0.0.1", "::1")]
    proxy(place, *ENTRANCES)
    taken = []
    for name in LOCAL_NAMES:
        encoded = name.encode()
        for port in ports:
            reply = None
            with socks(SOCKS, 1, b"\3" + bytes([len(encoded)]) + encoded + struct.pack(">H", port)) as (_, answer):
                reply = answer[1] if len(answer) > 1 else None
            heard = over_http(b"CONNECT %s:%d HTTP/1.1\r\n\r\n" % (encoded, port), 5)
            if reply == 0 or heard.startswith((b"HTTP/1.1 2", b"HTTP/1.0 2")):
                taken.append(f"{name} (reply {reply}, {heard[:20]})")
    expect(not taken and not reached, f"taken: {taken}, reached: {reached}")


@case("14b")
def private_addresses_within_ipv6_addresses(place):
    proxy(place, *ENTRANCES)
    forms = ("10.0.0.1", "::ffff:10.0.0.1", "::10.0.0.1", "::ffff:0:10.0.0.1", "64:ff9b::10.0.0.1",
             "64:ff9b:1::10.0.0.1", "2002:a00:1::1", "2001::a00:1", "2001:0:a00:1::1", "fe80::5efe:10.0.0.1")
    replies = {name: socks_reply(SOCKS, name, 80) for name in forms}
    expect(all(reply == 2 for reply in replies.values()), f"replies {replies}, wanted 2 for each")


# --- namespaces ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def far_proxy(place, *options, listen, mtu=None, server=()):
    """A proxy whose server and client are in namespaces with two links between them."""
    with Links() as links:
        if mtu:
            links.mtu(mtu)
        rules = ("--allow", "10.77.0.0/16", "--allow", "203.0.113.0/24", *server)
        far, near = proxy(place, *options, listen=listen, server=rules, namespaces=(SERVER, CLIENT))
        try:
            yield links, near
        finally:
            near.stop()
            far.stop()


@case("8")
def large_payloads_over_small_links(place):
    """Payloads of UDP that no packet of the paths can carry, through SOCKS and through a device."""
    for mtu, listen in ((1280, f"[{SERVER_V6}]:4460"), (1280, f"{SERVER_V4}:4460"), (1420, f"[{SERVER_V6}]:4460")):
        with far_proxy(place, "--socks", "127.0.0.1:1085", listen=listen, mtu=mtu):
            with entered(SERVER):
                target = echo(SERVER_V4, 7007)
            with entered(CLIENT), association(("127.0.0.1", 1085)) as ask:
                lost = [length for length in (1000, 1180, 1190, 1200, 1252, 1350, 1472, 4000) if ask(SERVER_V4, 7007, b"y" * length) != b"y" * length]
            target.close()
        expect(not lost, f"MTU {mtu}, {listen}: payloads of {lost} bytes are lost")


def device_asks(payload, tries=4, host="203.0.113.5"):
    """Whether an echo comes back through the device."""
    with entered(CLIENT), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.settimeout(1)
        for _ in range(tries):
            with contextlib.suppress(OSError):
                udp.sendto(payload, (host, 7007))
                if udp.recv(70000) == payload:
                    return True
    return False


@contextlib.contextmanager
def device(place, **more):
    """A proxy client with a device for 203.0.113.0/24, and an echo there."""
    with far_proxy(place, "--tun", "--route", "203.0.113.0/24", listen=f"{SERVER_V4}:4460", **more) as (links, near):
        near.wait_for("tun on", 15)
        links.run(SERVER, "ip", "addr", "add", "203.0.113.5/32", "dev", "lo")
        with entered(SERVER):
            target = echo("203.0.113.5", 7007)
        yield links, near
        target.close()


@case("8")
def large_packets_of_a_device_over_small_links(place):
    with device(place, mtu=1280):
        lost = [length for length in (100, 1200, 1252, 1300, 1372) if not device_asks(b"y" * length)]
    expect(not lost, f"payloads of {lost} bytes are lost")


@case("13c")
def a_device_with_563_flows(place):
    with device(place):
        answered = sum(device_asks(b"%d" % number) for number in range(563))
    expect(answered == 563, f"{answered} of 563 flows were answered")


@case("20")
def a_device_under_nohup(place):
    with Links():
        write(place / "s/f", b"x")
        far = place.tool("proxy", "server", "--open", "--listen", f"{SERVER_V4}:4460", namespace=SERVER)
        pin = far.wait_for(r"sha256:[0-9a-f:]+")[0].decode()
        url = f"https://{SERVER_V4}:4460"
        near = place.tool("proxy", "client", url, "--pin", pin, "--tun", "--route", "203.0.113.0/24", namespace=CLIENT, prefix=["nohup"])
        near.wait_for("tun on", 15)
        near.process.send_signal(signal.SIGHUP)
        expect(near.wait(2) is None, f"SIGHUP ended the client: {near.said()[-300:]}")
        near.process.send_signal(signal.SIGTERM)
        expect(near.wait(5) is not None, "SIGTERM did not end the client")
        far.stop()


@case("19")
def names_that_hang(place):
    """The resolver is silent. 600 lookups of one user delay no lookup of another one."""
    users = place.users("alice", "bob")
    with Links() as links:
        links.etc(SERVER, "resolv.conf", "nameserver 127.0.0.53\n")
        links.etc(SERVER, "hosts", f"{SERVER_V4} known.example\n127.0.0.1 localhost\n")
        with entered(SERVER):
            silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            silent.bind(("127.0.0.53", 53))
            port = tcp_server(hello, SERVER_V4)
        rules = ["--credentials", users, "--allow", "10.77.0.0/16", "--listen", f"{SERVER_V4}:4460"]
        far = place.tool("proxy", "server", *rules, namespace=SERVER)
        pin = far.wait_for(r"sha256:[0-9a-f:]+")[0].decode()
        for number, name in enumerate(("alice", "bob")):
            own = write(place / name, f"basic {name}:wonderland\n".encode())
            own.chmod(0o600)
            socks_at = f"127.0.0.1:{1085 + number}"
            near = place.tool("proxy", "client", f"https://{SERVER_V4}:4460", "--pin", pin, "--credentials", own, "--socks", socks_at, namespace=CLIENT)
            near.wait_for("connected to", 15)
        waiting = []
        with entered(CLIENT):
            for number in range(600):
                stream = socket.create_connection(("127.0.0.1", 1085))
                stream.sendall(b"\5\1\0\5\1\0" + socks_target(f"hangs-{number}.example", 80))
                waiting.append(stream)
            time.sleep(1)
            began = time.monotonic()
            reply = socks_reply(("127.0.0.1", 1086), "known.example", port)
            took = time.monotonic() - began
        threads = len(os.listdir(f"/proc/{far.pid}/task"))
        for stream in [*waiting, silent]:
            stream.close()
        expect(reply == 0 and took < 1.5, f"another user's lookup: reply {reply} after {took:.1f} s")
        expect(threads < 200, f"{threads} threads")
        near.stop()
        far.stop()


@case()
def a_proxy_server_that_is_killed_under_load(place):
    """Flows end although the server's system limits its ICMP messages, of which the packets of a download take most."""
    with Links() as links:
        for number in (0, 1):
            for namespace in (CLIENT, SERVER):
                links.run(namespace, "tc", "qdisc", "add", "dev", f"eth{number}", "root", "tbf", "rate", "40mbit", "burst", "16kb", "latency", "50ms")
        far, near = proxy(place, "--socks", "127.0.0.1:1085", listen=f"{SERVER_V4}:4460", server=("--allow", "10.77.0.0/16"), namespaces=(SERVER, CLIENT))
        with entered(SERVER):
            port = tcp_server(pour, SERVER_V4)
        with entered(CLIENT), socks(("127.0.0.1", 1085), 1, socks_target(SERVER_V4, port), 20) as (flow, _):
            began = time.monotonic()
            while time.monotonic() < began + 1:
                flow.recv(1 << 16)
            far.process.kill()
            began = time.monotonic()
            with contextlib.suppress(ConnectionResetError):
                while flow.recv(1 << 16):
                    pass
            took = time.monotonic() - began
        expect(took < 15, f"the flow ended after {took:.1f} s: {near.said()[-300:]}")
        near.stop()


def pour(connection):
    """Sends zeros until the other side has gone."""
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(bytes(1 << 16))
