"""Cases about `serve` and clients whose messages are odd, broken or hostile."""

import asyncio
import contextlib
import os
import re
import socket
import ssl
import subprocess
import time

import quic
import rig
from place import SERVE, URL, asked, case, expect, files_below, write

# H3_FRAME_UNEXPECTED, H3_FRAME_ERROR, H3_EXCESSIVE_LOAD, H3_ID_ERROR, H3_SETTINGS_ERROR, H3_REQUEST_REJECTED, H3_MESSAGE_ERROR.
UNEXPECTED, FRAME, LOAD, ID, SETTINGS, REJECTED, MESSAGE = 0x105, 0x106, 0x107, 0x108, 0x109, 0x10B, 0x10E
GET = ((":method", "GET"), (":scheme", "https"), (":authority", "localhost"), (":path", "/f"))


def got(*more):
    return quic.fields(*GET, *more)


def data(content):
    return quic.frame(quic.DATA, content)


def site(place, *options, **more):
    write(place / "s/f", b"content")
    return place.serve(place / "s", *options, **more)


def malformed():
    """Requests that RFC 9114 sections 4.1.2 to 4.3.1 forbid; each has a stream of its own."""
    for name in ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"):
        yield name, got((name, "chunked" if name.startswith("transfer") else "close"))
    yield "te: gzip", got(("te", "gzip"))
    for index, (name, value) in enumerate(GET):
        yield f"two {name}", got((name, value))
        yield f"no {name}", quic.fields(*GET[:index], *GET[index + 1 :])
    yield "late pseudo-field", quic.fields(*GET[:3], ("accept", "*/*"), GET[3])
    yield "status in a request", got((":status", "200"))
    yield "unknown pseudo-field", got((":odd", "1"))
    yield "two Hosts", got(("host", "localhost"), ("host", "localhost"))
    yield "another Host", got(("host", "elsewhere"))
    yield "user in the authority", quic.request("GET", "/f", authority="user@localhost")
    yield "empty path", quic.request("GET", "")
    yield "path without a slash", quic.request("GET", "f")
    yield "empty authority", quic.request("GET", "/f", authority="")
    yield "upper case", got(("X-Upper", "1"))
    for name, value in (("CR and LF", "a\r\nb: c"), ("NUL", "a\0b"), ("LF", "a\nb")):
        yield f"{name} in a value", got(("x", value))
    yield "blank in a name", got(("a b", "1"))
    yield "empty name", got(("", "1"))
    yield "colon in a name", got(("a:b", "1"))
    yield "GET with another length", got(("content-length", "5"))
    yield "CONNECT with a path", quic.fields((":method", "CONNECT"), *GET[1:])


def malformed_uploads():
    """A GET may be answered before its content has come; a PUT may not."""
    put = lambda *more: quic.request("PUT", "/put", *more)  # noqa: E731
    yield "less content than announced", put(("content-length", "5")) + data(b"1234")
    yield "more content than announced", put(("content-length", "5")) + data(b"123456")
    yield "DATA behind trailers", put() + data(b"x") + quic.fields(("sum", "1")) + data(b"y")
    yield "pseudo-field in trailers", put() + data(b"x") + quic.fields((":path", "/"))
    yield "connection in trailers", put() + data(b"x") + quic.fields(("connection", "close"))


@case("16")
def malformed_requests(place):
    server = site(place, "--allow-put")
    names, requests = zip(*malformed(), *malformed_uploads())
    answers = asked(*requests, got())
    # RFC 9114 4.1.2: a stream error, or an answer of 400 or another failure.
    taken = [f"{name}: {code}, {how}" for name, (code, how, _) in zip(names, answers) if not (how in (MESSAGE, UNEXPECTED) or 400 <= code < 500)]
    expect(not taken, f"taken: {'; '.join(taken)}")
    expect(answers[-1][0] == 200, f"a right request behind them got {answers[-1][:2]}")
    expect(files_below(place / "s") == ["f"], f"stored: {files_below(place / 's')}")
    expect("panicked" not in server.said(), server.said()[-300:])


def ended(act, request=None, server=SERVE, patience=5):
    """The code with which a server ends a connection on which `act` does something, or `None` if it goes on."""

    async def attempt():
        client = await quic.connect(server, "127.0.0.1")
        act(client)
        stream = client.begin(request or got())
        client.transmit()
        waiter = client.waiting.get(stream)
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(waiter, patience)
        await asyncio.sleep(0.1)
        code = quic.status(client.heard.get(stream, b""))
        # A reset of the stream may come before the close, and aioquic tells of a close three probe timeouts later.
        end = time.monotonic() + patience
        while not code and not client.ended and time.monotonic() < end:
            await asyncio.sleep(0.01)
        client._quic.close(error_code=0x100)
        client.transmit()
        return (client.ended.error_code if client.ended else None), code

    return asyncio.run(attempt())


def on_control(*pieces):
    """Sends bytes on the control stream."""
    return lambda client: [client._quic.send_stream_data(2, piece) for piece in pieces]


def new_stream(content, end=False):
    def act(client):
        stream = client._quic.get_next_available_stream_id(is_unidirectional=True)
        client._quic.send_stream_data(stream, content, end)

    return act


@case("16")
def frames_and_streams_that_break_the_rules(place):
    site(place)
    on_request = lambda kind, payload=b"": (lambda _: None, quic.frame(kind, payload) + got())  # noqa: E731
    faults = {
        "DATA first": (*on_request(quic.DATA, b"x"), UNEXPECTED), "SETTINGS on a request": (*on_request(quic.SETTINGS), UNEXPECTED),
        "GOAWAY on a request": (*on_request(0x07, b"\0"), UNEXPECTED), "a frame of HTTP/2": (*on_request(0x06, b"x"), UNEXPECTED),
        "PUSH_PROMISE on a request": (*on_request(0x05, b"\0\0\0"), UNEXPECTED), "MAX_PUSH_ID on a request": (*on_request(0x0D, b"\0"), UNEXPECTED),
        "DATA on the control stream": (on_control(data(b"x")), None, UNEXPECTED), "HEADERS on the control stream": (on_control(got()), None, UNEXPECTED),
        "SETTINGS twice": (on_control(quic.frame(quic.SETTINGS, b"")), None, UNEXPECTED),
        "a second control stream": (new_stream(b"\0" + quic.frame(quic.SETTINGS, b"")), None, 0x103),
        "a push stream": (new_stream(b"\1\0"), None, 0x103), "an end of the control stream": (lambda client: client._quic.send_stream_data(2, b"", True), None, 0x104),
        "a dynamic table": (new_stream(b"\2" + quic.prefixed(4096, 5, 0x20)), None, 0x201),
        "a second encoder's stream": (lambda client: [new_stream(b"\2")(client), new_stream(b"\2")(client)], None, 0x103),
    }
    wrong = []
    for name, (act, request, wanted) in faults.items():
        code, status = ended(act, request)
        if code != wanted:
            wrong.append(f"{name}: {code and hex(code)}, status {status}, wanted {wanted:#x}")
    expect(not wrong, "; ".join(wrong))


@case("17")
def lengths_of_uploads_that_are_no_digits(place):
    site(place, "--allow-put")
    for number, length in enumerate(("+5", "-5", " 5x", "5,5", "0x5", "", "18446744073709551616")):
        (code, how, _), = asked(quic.request("PUT", f"/put{number}", ("content-length", length)) + data(b"12345"))
        expect(how == MESSAGE or 400 <= code < 500, f"`{length}`: {code}, {how}")
    (code, how, _), = asked(quic.request("PUT", "/chunked", ("transfer-encoding", "chunked")) + data(b"5\r\n12345\r\n0\r\n\r\n"))
    expect(how == MESSAGE or 400 <= code < 500, f"chunked: {code}, {how}")
    expect(files_below(place / "s") == ["f"], f"stored: {files_below(place / 's')}")


@case("18")
def lines_in_the_reason_of_a_close(place):
    server = site(place, env={**place.env, "RUST_LOG": "debug"})
    forged = "203.0.113.7:4444: connected"

    async def close(code):
        client = await quic.connect(SERVE, "127.0.0.1")
        await client.ask(got(("user-agent", "a")))
        client._quic.close(error_code=code, frame_type=None if code >= 0x100 else 0, reason_phrase=f"gone\n{forged}\r\n{forged}\u2028{forged}")
        client.transmit()
        await asyncio.sleep(0.2)

    for code in (0x100, 0x10C, 0, 1):
        asyncio.run(close(code))
    time.sleep(0.3)
    text = server.said()
    expect("203.0.113.7" in text, f"the reason is not in the log: {text[-300:]}")
    lines = re.split("[\r\n\u2028]", text)
    expect(not any(line.startswith(forged) for line in lines), f"forged: {[line for line in lines if line.startswith(forged)][:2]}")


@case("25g")
def a_request_behind_the_clients_own_goaway(place):
    site(place)

    async def attempt():
        client = await quic.connect(SERVE, "127.0.0.1")
        client._quic.send_stream_data(2, quic.frame(0x07, quic.integer(0)))
        client.transmit()
        await asyncio.sleep(0.3)
        answer, how = await asyncio.wait_for(client.ask(got()), 5)
        return quic.status(answer), how

    try:
        status, how = asyncio.run(attempt())
    except asyncio.TimeoutError as error:
        raise rig.Fault("neither an answer nor a reset within 5 s") from error
    expect(status == 200 or how in (REJECTED, "closed"), f"status {status}, {how}")


UPDATE, PUSH_UPDATE = 0xF0700, 0xF0701


def update(stream, text=b"u=1", kind=UPDATE):
    return quic.frame(kind, quic.integer(stream) + text)


@case("priority")
def priority_updates_of_all_kinds(place):
    site(place)
    wrong = []
    # RFC 9218 section 7.2; `None` means that the request is answered. A server need not know its limit of streams.
    cases = {
        "before its request": (update(0), None), "unknown member": (update(0, b"zzz=1, u=2"), None), "no member": (update(0, b""), None),
        "no list": (update(0, b"\xff\xfe;;;==="), None), "urgency of 9": (update(0, b"u=9"), None), "urgency of text": (update(0, b'u="x", i=3'), None),
        "a late stream": (update(4 * 100), None), "a stream of the server": (update(1), ID), "a stream of one direction": (update(2), ID),
        "a stream beyond the limit": (update(4 * 1_000_000), None), "the last stream of all": (update((1 << 62) - 4), None),
        "a push that was not promised": (update(0, kind=PUSH_UPDATE), ID), "without a stream": (quic.frame(UPDATE, b""), FRAME),
        "half a number": (quic.frame(UPDATE, b"\xc0"), FRAME), "long text": (update(0, b"u=1," + b" " * 3000 + b"i"), None),
        "text of a megabyte": (update(0, b"x" * (1 << 20)), LOAD),
    }
    for name, (frame, wanted) in cases.items():
        code, status = ended(on_control(frame))
        if wanted is None and (code is not None or status != 200) or wanted is not None and code != wanted:
            wrong.append(f"{name}: {code and hex(code)}, status {status}, wanted {wanted and hex(wanted)}")
    expect(not wrong, "; ".join(wrong))
    code, status = ended(lambda _: None, update(0) + got())
    expect(code == UNEXPECTED, f"on a request: {code}, status {status}")
    code, status = ended(on_control(update(0) * 20_000), patience=20)
    expect(status == 200 or code == LOAD, f"20,000 updates: {code}, status {status}")
    expect(place.fetched(f"{URL}/f") == b"content", "other content after the updates")


@case("grease")
def reserved_frames_and_many_small_frames_in_requests(place):
    site(place, "--allow-put")
    junk = b"".join(quic.frame(0x21 + 0x1F * number, os.urandom(50)) for number in (0, 5, 1_000_000))
    put = lambda name: quic.request("PUT", f"/{name}")  # noqa: E731
    answers = asked(
        junk + got() + junk, junk + put("a") + junk + data(b"con") + junk + data(b"tent") + quic.fields(("sum", "1")) + junk,
        put("b") + data(b"") * 10_000 + data(b"content"), put("c") + b"".join(data(bytes([byte])) for byte in b"content" * 2857),
    )
    expect([code for code, _, _ in answers] == [200, 201, 201, 201], f"{[answer[:2] for answer in answers]}")
    stored = [(place / f"s/{name}").read_bytes() for name in "abc"]
    expect(stored == [b"content", b"content", b"content" * 2857], f"{[len(content) for content in stored]} bytes stored")
    code, status = ended(lambda client: [new_stream(quic.integer(0x21 + 0x1F * 9) + b"junk")(client), on_control(junk)(client)])
    expect(code is None and status == 200, f"reserved streams: {code}, status {status}")


@case("empty")
def ranges_of_an_empty_file(place):
    write(place / "s/e", b"")
    place.serve(place / "s")
    expect(place.fetched(f"{URL}/e") == b"", "content from nowhere")
    ask = lambda method, *more: quic.request(method, "/e", *more)  # noqa: E731
    for wanted in ("bytes=0-", "bytes=0-0", "bytes=-1", "bytes=5-9"):
        (code, _, answer), (head, _, _) = asked(ask("GET", ("range", wanted)), ask("HEAD", ("range", wanted)))
        expect(code in (200, 416) and head in (200, 416), f"{wanted}: GET {code}, HEAD {head}")
        length = next(quic.sections(answer)).get(b"content-length", b"0")
        expect(length == b"0" or code == 416, f"{wanted}: {code} with a length of {length}")
    code, _, text = place.get("-X", "HEAD", f"{URL}/e", "-o", "-")
    expect(code == 0 and re.search("content-length: *0", text, re.I), f"HEAD: exit {code}: {text[-200:]}")
    code, _, text = place.get("--continue", f"{URL}/e", "-o", place / "e")
    expect(code == 0 and (place / "e").read_bytes() == b"", f"--continue: exit {code}: {text[-200:]}")


@case("zero")
def empty_datagrams(place):
    server = site(place)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.connect(("127.0.0.1", 4733))
        for _ in range(20_000):
            with contextlib.suppress(ConnectionError):
                udp.send(b"")
    spent = server.cpu()
    expect(place.fetched(f"{URL}/f") == b"content", "other content")
    time.sleep(1)
    expect(server.cpu() - spent < 0.5, f"the server used {server.cpu() - spent:.1f} s of CPU within a second")


# --- TCP -------------------------------------------------------------------------------------------------------

ONE = b"GET /f HTTP/1.1\r\nHost: localhost\r\n"
# Messages that two programs could read in two ways. No second request may be found in them.
SECOND = b"GET /second HTTP/1.1\r\nHost: localhost\r\n\r\n"
BOTH = b"PUT /both HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SECOND
SMUGGLED = {
    "two encodings": b"PUT /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "an unknown encoding": b"PUT /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a length with a sign": b"PUT /p HTTP/1.1\r\nHost: h\r\nContent-Length: +4\r\n\r\nabcd",
    "two lengths": b"PUT /p HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nabcde",
    "a chunk of no number": b"PUT /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nabcd\r\n0\r\n\r\n",
    "a chunk with a sign": b"PUT /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n+4\r\nabcd\r\n0\r\n\r\n",
    "a longer chunk": b"PUT /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nabcdefgh\r\n0\r\n\r\n",
    "a chunk of 2^64": b"PUT /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000000\r\nabcd\r\n0\r\n\r\n",
    "blank before the colon": ONE + b"X : y\r\n\r\n", "a folded line": ONE + b"X: y\r\n z\r\n\r\n", "NUL in a value": ONE + b"X: a\0b\r\n\r\n",
    "two Hosts": ONE + b"Host: elsewhere\r\n\r\n", "no Host": b"GET /f HTTP/1.1\r\n\r\n", "a user in Host": b"GET /f HTTP/1.1\r\nHost: a@b\r\n\r\n",
    "blank in the target": b"GET /f f HTTP/1.1\r\nHost: h\r\n\r\n", "an unknown version": b"GET /f HTTP/9.9\r\nHost: h\r\n\r\n",
    "a name of no letters": ONE + b"a[b]: c\r\n\r\n",
}


def over_tls(message, alpn=("http/1.1",), port=4733):
    """What a server answers to bytes over TLS, until it ends the connection or says nothing for a second."""
    context = ssl._create_unverified_context()
    context.set_alpn_protocols(list(alpn))
    with socket.create_connection(("127.0.0.1", port), timeout=5) as stream, context.wrap_socket(stream, server_hostname="localhost") as secure:
        secure.settimeout(1)
        secure.sendall(message)
        heard = b""
        with contextlib.suppress(TimeoutError, ConnectionError, ssl.SSLError):
            while more := secure.recv(65536):
                heard += more
        return heard


@case("25l")
def messages_that_can_be_read_in_two_ways(place):
    server = site(place, "--alt-svc", "--allow-put")
    server.wait_for("https on")
    write(place / "s/second", b"second")
    expect(over_tls(ONE + b"\r\n").startswith(b"HTTP/1.1 200"), "an ordinary request fails")
    taken = []
    for name, message in SMUGGLED.items():
        heard = over_tls(message)
        codes = re.findall(rb"HTTP/1\.1 (\d+)", heard)
        if codes and not all(b"400" <= code < b"600" for code in codes) or b"second" in heard:
            taken.append(f"{name}: {codes}")
    # RFC 9112 section 6.3 lets a server take the chunks, but then it must end the connection.
    heard = over_tls(BOTH)
    expect(len(re.findall(rb"HTTP/1\.1 \d", heard)) <= 1 and b"second" not in heard, f"length and chunks: {heard}")
    (place / "s/both").unlink(missing_ok=True)
    expect(not taken, f"taken: {'; '.join(taken)}")
    expect(files_below(place / "s") == ["f", "second"], f"stored: {files_below(place / 's')}")


@case("25l")
def old_versions_of_http(place):
    site(place, "--alt-svc").wait_for("https on")
    for option in ("--http1.0", "--http1.1", "--http2"):
        done = subprocess.run(["curl", "-sk", option, f"{URL}/f"], capture_output=True)
        expect(done.stdout == b"content", f"curl {option}: exit {done.returncode}, {done.stdout}")
    expect(over_tls(b"GET /f HTTP/1.0\r\n\r\n", alpn=("http/1.0",)).endswith(b"content"), "ALPN http/1.0 is refused")


@case("25m")
def ports_and_hosts_of_urls(place):
    site(place)
    for port in ("+4733", "-4733", " 4733", "0x127d", "47330000", "4733a"):
        code, _, text = place.get("-q", "-o", "/dev/null", f"https://127.0.0.1:{port}/f")
        expect(code == 2, f"port `{port}`: exit {code}: {text[-200:]}")
    empty = place.fetched("https://127.0.0.1:/f", "--server-addr", SERVE)
    mapped = place.fetched("https://[::ffff:127.0.0.1]:4733/f")
    expect(empty == mapped == b"content", f"empty port: {empty}, mapped address: {mapped}")


@case("25f")
def fields_that_belong_to_connections(place):
    site(place)
    for name in ("Keep-Alive: x", "Proxy-Connection: close", "Connection: close", "Transfer-Encoding: chunked", "Upgrade: h2c"):
        code, _, text = place.get("-q", "-H", name, "-o", "/dev/null", f"{URL}/f")
        expect(code == 2 and name.split(":")[0].lower() in text.lower(), f"{name}: exit {code}: {text[-200:]}")
