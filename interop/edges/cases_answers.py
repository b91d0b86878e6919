"""Cases about `get` and servers whose answers are odd, broken or hostile."""

import os
import time

import quic
from odd_server import OddServer, answer
from place import case, expect, files_below

CONTENT = bytes(range(256)) * 400
RANGE = f"bytes {{}}-{len(CONTENT) - 1}/{len(CONTENT)}"


# --- redirections ----------------------------------------------------------------------------------------------


def leading_to(*location):
    return quic.fields((":status", "302"), *(("location", value) for value in location))


@case("9")
def locations_in_odd_forms(place):
    odd = {
        "/rutf8": (leading_to("/f\u00e9".encode()), "/f%C3%A9"), "/rlatin": (leading_to(b"/f\xe9"), "/f%E9"),
        "/rspace": (leading_to(b"/f f"), "/f%20f"), "/rpipe": (leading_to(b"/f|f"), "/f%7Cf"), "/rpad": (leading_to(b" /padded "), "/padded"),
    }
    pages = {path: leads for path, (leads, _) in odd.items()} | {end: answer(b"here") for _, end in odd.values()}
    pages["/rnone"] = leading_to()
    with OddServer(place, pages) as server:
        for path, (_, end) in odd.items():
            server.asked.clear()
            code, _, text = place.get("-q", "-o", "/dev/null", server.url(path))
            expect(code == 0 and server.paths() == [path, end], f"exit {code}, {server.paths()}: {text[-200:]}")
        server.asked.clear()
        code, _, text = place.get("-q", "-o", "/dev/null", server.url("/rnone"))
        expect(code != 0 and server.paths() == ["/rnone"], f"no Location: exit {code}, {server.paths()}: {text[-200:]}")


# --- parts -----------------------------------------------------------------------------------------------------

FIRST = 39_995
PARTS = {
    "206": [("206", CONTENT[FIRST:], RANGE.format(FIRST), '"v1"')],
    "200 with all": [("200", CONTENT, None, '"v1"')],
    "200 with a range": [("200", CONTENT[FIRST:], RANGE.format(FIRST), '"v1"'), ("200", CONTENT, None, '"v1"')],
    "206 with less": [("206", CONTENT[FIRST:60_000], f"bytes {FIRST}-59999/{len(CONTENT)}", '"v1"'), ("206", CONTENT[60_000:], RANGE.format(60_000), '"v1"')],
    "another unit in capitals": [("206", CONTENT[FIRST:], RANGE.format(FIRST).replace("bytes", "Bytes"), '"v1"')],
    "another version in a part": [("206", CONTENT[FIRST:][::-1], RANGE.format(FIRST), '"v2"'), ("200", CONTENT[::-1], None, '"v2"')],
    "another version as a whole": [("200", CONTENT[::-1], None, '"v2"')],
    "206 without a range": [("206", CONTENT[FIRST:], None, '"v1"'), ("200", CONTENT, None, '"v1"')],
    "206 of another place": [("206", CONTENT[FIRST - 9 :], RANGE.format(FIRST - 9), '"v1"'), ("200", CONTENT, None, '"v1"')],
    "416": [("416", b"", f"bytes */{len(CONTENT)}", '"v1"'), ("200", CONTENT, None, '"v1"')],
    "200 with less": [("200", CONTENT[:50_000], None, '"v1"'), ("200", CONTENT, None, '"v1"')],
}
# Answers that a client may also refuse for good.
MAY_FAIL = {"200 with a range", "206 without a range", "206 of another place", "416", "200 with less"}


def part(status, content, content_range, tag):
    more = [("content-range", content_range)] if content_range else []
    return answer(content, ("content-length", str(len(content))), ("etag", tag), *more, status=status)


def breaking(answers):
    """A page whose first answer breaks off with its connection, and whose next ones are these."""
    waiting = list(answers)

    def page(request):
        if "range" not in request.fields and len(waiting) == len(answers):
            length = ("content-length", str(len(CONTENT)))
            head = quic.fields((":status", "200"), length, ("etag", '"v1"'))
            request.send(head + quic.integer(quic.DATA) + quic.integer(len(CONTENT)) + CONTENT[:FIRST], end=False)
            request.later(0.5, request.close, 1, False)
        else:
            request.send(part(*(waiting.pop(0) if len(waiting) > 1 else waiting[0])))

    return page


@case("10", "retry")
def odd_answers_to_a_request_for_the_rest(place):
    for name, answers in PARTS.items():
        out = place / f"out-{name}"
        with OddServer(place, {"/f": breaking(answers)}) as server:
            code, _, text = place.get("-q", "--retry-time", 8, "-o", out, server.url("/f"), seconds=30)
        got = out.read_bytes() if out.exists() else None
        wholes = [CONTENT, CONTENT[::-1]]
        expect(got in wholes if code == 0 else got is None, f"{name}: exit {code}, {got and len(got)} bytes: {text[-200:]}")
        expect(code == 0 or name in MAY_FAIL, f"{name}: exit {code}: {text[-300:]}")
        ranges = [fields.get("range") for fields in server.asked]
        expect(f"bytes={FIRST}-" in ranges, f"{name}: the rest was never asked for: {ranges}")


# --- messages --------------------------------------------------------------------------------------------------


def data(content):
    return quic.frame(quic.DATA, content)


def malformed():
    """Answers that RFC 9114 sections 4.1.2 to 4.3 forbid."""
    for name in ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"):
        yield name, answer(b"content", (name, "chunked" if name.startswith("transfer") else "close"))
    ok = (":status", "200")
    yield "upper case", quic.fields(ok, ("X-Upper", "1")) + data(b"content")
    yield "no status", quic.fields(("server", "odd")) + data(b"content")
    yield "two statuses", quic.fields(ok, (":status", "204")) + data(b"content")
    yield "late status", quic.fields(("server", "odd"), ok) + data(b"content")
    yield "path in an answer", quic.fields(ok, (":path", "/")) + data(b"content")
    yield "unknown pseudo-field", quic.fields(ok, (":odd", "1")) + data(b"content")
    yield "status of letters", quic.fields((":status", "2xx")) + data(b"content")
    yield "newline in a value", quic.fields(ok, ("server", "a\r\nb: c")) + data(b"content")
    yield "NUL in a value", quic.fields(ok, ("server", "a\0b")) + data(b"content")
    yield "DATA behind trailers", answer(b"content") + quic.fields(("sum", "1")) + data(b"more")
    yield "status in trailers", answer(b"content") + quic.fields((":status", "200"))
    yield "DATA before the fields", data(b"content") + answer(b"content")
    yield "SETTINGS on a request", quic.frame(quic.SETTINGS, b"") + answer(b"content")
    yield "a frame of HTTP/2", quic.frame(0x06, b"x") + answer(b"content")
    yield "less content than announced", answer(b"content", ("content-length", "8"))
    yield "more content than announced", answer(b"content", ("content-length", "6"))
    yield "two lengths", answer(b"content", ("content-length", "7"), ("content-length", "8"))


def numbered(answers):
    """Pages with numbers as their paths, and the names of the pages."""
    names = {f"/{number}": name for number, (name, _) in enumerate(answers)}
    return {f"/{number}": page for number, (_, page) in enumerate(answers)}, names


@case("16")
def malformed_answers(place):
    taken = []
    pages, names = numbered(list(malformed()))
    with OddServer(place, pages) as server:
        for path, name in names.items():
            (place / "out").unlink(missing_ok=True)
            code, _, text = place.get("-q", "--retry-time", 1, "-o", place / "out", server.url(path), seconds=30)
            if code in (0, 101) or (place / "out").exists():
                taken.append(f"{name} (exit {code}: {text[-100:]})")
    expect(not taken, f"taken: {'; '.join(taken)}")


@case("16")
def settings_and_streams_that_break_the_rules(place):
    setting = lambda identifier, value: quic.integer(identifier) + quic.integer(value)  # noqa: E731
    capacity = quic.prefixed(4096, 5, 0x20)
    faults = {
        "a setting of HTTP/2": (setting(0x02, 1), None), "two equal settings": (setting(0x06, 9999) * 2, None),
        "a dynamic table that was not allowed": (b"", lambda peer: peer.unidirectional(b"\2" + capacity)),
        "a second control stream": (b"", lambda peer: peer.unidirectional(b"\0" + quic.frame(quic.SETTINGS, b""))),
        "an end of the control stream": (b"", lambda peer: peer._quic.send_stream_data(peer.control, b"", True)),
        "DATA on the control stream": (b"", lambda peer: peer._quic.send_stream_data(peer.control, data(b"x"))),
    }
    taken = []
    for name, (settings, opened) in faults.items():
        late = lambda request: request.later(0.3, request.send, answer(b"content"))  # noqa: E731
        with OddServer(place, {"/f": late}, settings=settings, opened=opened or (lambda _: None)) as server:
            code, _, text = place.get("-q", "--retry-time", 1, "-o", place / "out", server.url("/f"), seconds=30)
        if code in (0, 101):
            taken.append(f"{name} (exit {code}: {text[-100:]})")
    expect(not taken, f"taken: {'; '.join(taken)}")


@case("17")
def lengths_of_answers_that_are_no_digits(place):
    for length in ("+7", "-7", " 7x", "7,8", "0x7", "", "18446744073709551616"):
        with OddServer(place, {"/f": answer(b"content", ("content-length", length))}) as server:
            code, _, text = place.get("-q", "--retry-time", 1, "-o", place / "out", server.url("/f"))
        expect(code not in (0, 101) and not (place / "out").exists(), f"`{length}` was taken (exit {code}): {text[-200:]}")


@case("grease")
def reserved_frames_interim_answers_and_many_small_frames(place):
    reserved = [0x21 + 0x1F * number for number in (0, 1, 7, 1_000_000, (1 << 57) - 1)]
    junk = b"".join(quic.frame(kind, os.urandom(50)) for kind in reserved)
    whole = answer(b"content", ("content-length", "7"))
    early = quic.fields((":status", "103"), ("link", "</x>; rel=preload"))
    pages = {
        "/reserved": junk + quic.fields((":status", "200")) + junk + data(b"con") + junk + data(b"tent") + junk,
        "/interim": early * 5 + whole, "/trailers": whole + quic.fields(("sum", "1"), ("other", "")),
        "/empty": quic.fields((":status", "200")) + data(b"") * 10_000 + data(b"content"),
        "/single": quic.fields((":status", "200")) + b"".join(data(bytes([byte])) for byte in b"content" * 2857),
    }
    settings = b"".join(quic.integer(kind) + quic.integer(kind >> 3) for kind in reserved)

    def opened(peer):
        for kind in reserved:
            peer.unidirectional(quic.integer(kind) + os.urandom(50))
        peer._quic.send_stream_data(peer.control, junk)

    with OddServer(place, pages, settings=settings, opened=opened) as server:
        for path in pages:
            got = place.fetched(server.url(path))
            wanted = b"content" * (2857 if path == "/single" else 1)
            expect(got == wanted, f"{path}: {len(got)} bytes instead of {len(wanted)}")


def first(page, then):
    """A page that is another one at its first request."""
    waiting = [page]

    def now(request):
        chosen = waiting.pop() if waiting else then
        chosen(request) if callable(chosen) else request.send(chosen)

    return now


def away(request):
    """GOAWAY for this request, and its rejection."""
    peer = request.peer
    peer._quic.send_stream_data(peer.control, quic.frame(0x07, quic.integer(request.stream)))
    request.reset(0x10B)


@case("retry")
def servers_that_are_busy_or_go_away(place):
    busy = quic.fields((":status", "503"), ("retry-after", "1")) + data(b"later")
    whole = answer(b"content", ("content-length", "7"))
    pages = {"/503": first(busy, whole), "/429": first(busy.replace(b"503", b"429"), whole), "/rejected": first(lambda request: request.reset(0x10B), whole),
             "/goaway": first(away, whole), "/lost": first(lambda request: request.close(1, False), whole)}
    with OddServer(place, pages) as server:
        for path in pages:
            expect(place.fetched(server.url(path)) == b"content", f"{path}: other content")
            expect(server.paths().count(path) == 2, f"{path}: {server.paths().count(path)} requests")


@case("25h")
def answers_without_content(place):
    pages = {f"/{code}": quic.fields((":status", code)) for code in ("204", "205")} | {"/203": answer(b"content", status="203")}
    with OddServer(place, pages) as server:
        for path in pages:
            got = place.fetched(server.url(path))
            expect(got == (b"content" if path == "/203" else b""), f"{path}: {got}")


@case("25i")
def international_names(place):
    with OddServer(place, {"/f": answer(b"content")}) as server:
        for name in ("b\u00fccher.example", "xn--bcher-kva.example", "B\u00dcCHER.example"):
            url = f"https://{name}:{server.port}/f"
            expect(place.fetched(url, "--server-addr", f"127.0.0.1:{server.port}") == b"content", f"{name}: other content")
        hosts = {fields.get(":authority") for fields in server.asked}
        expect(hosts == {f"xn--bcher-kva.example:{server.port}"}, f"the server was asked for {hosts}")


@case("evil")
def names_that_lead_out_of_the_directory(place):
    names = ["..%2f..%2fevil", "%2e%2e", "%2e%2e%2fevil", "..", "a%2f..%2f..%2fevil", "%2fetc%2fevil", "..%5cevil", "a%00b", "%2e", "x%0ay"]
    out = place.folder("o/p/q")
    with OddServer(place, {}) as server:
        server.pages = dict.fromkeys([f"/{name}" for name in names] + ["/", "/evil"], answer(b"evil"))
        for name in names:
            code, _, text = place.get("-q", server.url(f"/{name}"), cwd=out)
            expect(code != 101, f"{name}: {text[-200:]}")
    outside = [name for name in files_below(place / "o") if not name.startswith("p/q/")]
    expect(not outside, f"written outside: {outside}")
    deeper = [name for name in files_below(out) if "/" in name]
    expect(not deeper, f"written in directories: {deeper}")


# --- transport parameters ----------------------------------------------------------------------------------------


def parameters(**changes):
    """Changes a connection's transport parameters; `None` removes one, and `more` is appended as it is."""
    more = changes.pop("more", b"")
    numbers = {int(name[1:], 16): value for name, value in changes.items()}

    def prepare(connection):
        ordinary = connection._serialize_transport_parameters

        def serialize():
            encoded, at, kept = ordinary(), 0, b""
            while at < len(encoded):
                number, at = quic.take(encoded, at)
                length, at = quic.take(encoded, at)
                if number not in numbers:
                    kept += quic.integer(number) + quic.integer(length) + encoded[at : at + length]
                at += length
            for number, value in numbers.items():
                if value is not None:
                    value = value if isinstance(value, bytes) else quic.integer(value)
                    kept += quic.integer(number) + quic.integer(len(value)) + value
            return kept + more

        connection._serialize_transport_parameters = serialize

    return prepare


ODD_PARAMETERS = {
    "the largest exponent and delay": {"p0a": 20, "p0b": (1 << 14) - 1}, "the smallest datagrams": {"p03": 1200},
    "the largest datagrams": {"p03": (1 << 62) - 1}, "two connection IDs": {"p0e": 2}, "all connection IDs": {"p0e": (1 << 62) - 1},
    "no idle timeout": {"p01": None}, "the longest idle timeout": {"p01": (1 << 62) - 1},
    "all credit": {"p04": (1 << 62) - 1, "p05": (1 << 62) - 1, "p06": (1 << 62) - 1, "p07": (1 << 62) - 1, "p08": 1 << 60, "p09": 1 << 60},
    "unknown ones": {"more": b"".join(quic.integer(27 + 31 * number) + b"\x03abc" for number in range(20))},
}
FALSE_PARAMETERS = {
    "an exponent of 21": {"p0a": 21}, "a delay of 2^14": {"p0b": 1 << 14}, "datagrams of 1199": {"p03": 1199}, "one connection ID": {"p0e": 1},
    "2^60 + 1 streams": {"p08": (1 << 60) + 1}, "a parameter twice": {"more": b"\x0a\x01\x03\x0a\x01\x03"}, "an integer with more behind it": {"p0a": b"\x03\x03"},
    "no source connection ID": {"p0f": None}, "a false source connection ID": {"p0f": b"\0" * 8}, "a false original connection ID": {"p00": b"\0" * 8},
    "a token of 15 bytes": {"p02": bytes(15)}, "a Retry that was not": {"p10": b"\0" * 8},
}


@case("parameters")
def transport_parameters_of_all_sizes(place):
    for name, changes in ODD_PARAMETERS.items():
        with OddServer(place, {"/f": answer(CONTENT)}, prepare=parameters(**changes)) as server:
            expect(place.fetched(server.url("/f")) == CONTENT, f"{name}: other content")
    for name, changes in FALSE_PARAMETERS.items():
        with OddServer(place, {"/f": answer(CONTENT)}, prepare=parameters(**changes)) as server:
            code, took, text = place.get("-q", "--retry-time", 1, "-o", place / "out", server.url("/f"))
        expect(code not in (0, 101) and took < 8, f"{name}: exit {code} after {took:.1f} s: {text[-200:]}")


@case("done")
def handshake_done_too_early(place):
    """The frame leaves with the server's first flight, before the client's Finished can have come."""
    early = []

    def prepare(connection):
        ordinary = connection._write_application

        def write_application(builder, path, now):
            if not early and connection.tls and not connection._handshake_complete:
                connection._handshake_done_pending = True
                early.append(time.monotonic())
            ordinary(builder, path, now)

        connection._write_application = write_application

    with OddServer(place, {"/f": answer(b"content")}, prepare=prepare) as server:
        code, took, text = place.get("-q", "--retry-time", 1, "-o", place / "out", server.url("/f"))
    expect(early, "the server never sent the frame early")
    expect(code != 101 and took < 8, f"exit {code} after {took:.1f} s: {text[-200:]}")
    expect(code != 0 or (place / "out").read_bytes() == b"content", "other content")
