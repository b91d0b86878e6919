"""Rows about who takes too much from `mpquic serve`."""

import base64
import contextlib
import os
import pathlib
import time

from rig import MIB, Fault, row, siege, size

# SECURITY.md: requests have 64 MiB in all; 320 slow requests of one network add 16 MiB.
REQUESTS, SLOW_REQUESTS = 64 * MIB, 16 * MIB
# `TransportOptions::send_window`: what waits for acknowledgements, at first.
SEND_WINDOW = 64 * 1024
# What `mpquic serve` reads of a file at a time.
PIECE = MIB // 4
NAMES = 10_000
HOST = "127.0.0.66"


def site(place):
    """A directory with a file for honest clients, and a large one."""
    folder = place.folder("site")
    (folder / "file").write_bytes(os.urandom(64 << 10))
    (folder / "large").write_bytes(os.urandom(8 << 20))
    (folder / "middle").write_bytes(os.urandom(MIB))
    return folder


def long_directory(folder, names):
    made = folder / "long"
    made.mkdir()
    for name in names:
        (made / name).touch()
    return folder


def ordinary():
    return (f"report-of-{number:06}.txt" for number in range(NAMES))


def apostrophes():
    """Names of 240 bytes, nearly all of them characters that become five in HTML."""
    return (f"{number:05}" + "'" * 235 for number in range(NAMES))


def pages(place, row, names, connections, streams):
    server = place.serve(long_directory(site(place), names))
    begin = lambda: [place.attacker("pages.py", server.at, "/long/", connections, streams)]
    told = siege(place, row, server, begin, ["/file"], connections=connections, allowance=REQUESTS, why="64 MiB for requests")
    row.tell(f"{told[0].get('waiting', 0)} of {connections * streams} pages still wait")


@row("1a pages of 10,000 names")
def ordinary_pages(place, row):
    pages(place, row, ordinary(), 2, 40)


@row("1b pages of 10,000 names of apostrophes")
def wide_pages(place, row):
    pages(place, row, apostrophes(), 1, 40)


@row("1c HEAD of a page, 13 times a second")
def heads(place, row):
    server = place.serve(long_directory(site(place), ordinary()))
    begin = lambda: [place.attacker("pages.py", server.at, "/long/", 1, 1, "--head", 13)]
    spent, began = server.cpu(), time.monotonic()
    told = siege(place, row, server, begin, ["/file"], connections=1, allowance=REQUESTS, why="64 MiB for requests")
    each = (server.cpu() - spent) / max(1, told[0].get("requests", 0))
    row.tell(f"at most {each * 1e3:.1f} ms of CPU for each HEAD, honest requests included, in {time.monotonic() - began:.0f} s")


def paused_download(place, row, server, *options):
    """An honest download that pauses for 2.5 s, and must arrive."""
    download = place.program("slow.py", "pause", server.at, "/middle", 1, 1, "--local", "127.0.0.3", *options, nice=-5)
    download.wait_for("ready", 60)
    with contextlib.suppress(Fault):
        download.wait_for("done", 30)
    told = download.end()
    whole = told.get("how") == "end" and told.get("bytes") == MIB
    row.check(whole, f"a download that pauses 2.5 s: {size(told.get('bytes', 0))}, {told.get('how', 'not ended')}", "it arrives")


def slow(place, row, server, what, path, connections, streams, *options, honest=(), bound=None):
    allowance, why = bound or (SLOW_REQUESTS, "16 MiB for slow requests")

    def begin():
        attacker = place.attacker("slow.py", what, server.at, path, connections, streams, "--local", HOST, *options)
        paused_download(place, row, server, *honest)
        return [attacker]

    arguments = ["/file", *honest]
    told = siege(place, row, server, begin, arguments, connections=connections, allowance=allowance, why=why)
    row.tell(f"{told[0].get('begun', 0)} requests begun")


@row("2a slow readers")
def slow_readers(place, row):
    slow(place, row, place.serve(site(place)), "read", "/large", 20, 16)


@row("2b slow writers")
def slow_writers(place, row):
    def field(name):
        secret = base64.b64encode(f"{name}:wonderland".encode()).decode()
        return ["--field", f"authorization=Basic {secret}"]

    folder = site(place)
    (folder / "uploads").mkdir()
    rules = ["--allow-put", "--credentials", place.users("alice", "bob"), "--allow", "users:r:/", "--allow", "bob:rw:/uploads/"]
    server = place.serve(folder, *rules)
    slow(place, row, server, "write", "/uploads/u", 16, 16, *field("bob"), honest=field("alice"))


@row("2c readers who acknowledge nothing")
def mute_readers(place, row):
    bound = 64 * (SEND_WINDOW + 2 * PIECE), "first send windows of 64 KiB, and a piece for each request"
    slow(place, row, place.serve(site(place)), "mute", "/large", 64, 2, bound=bound)


def with_tcp(place, folder):
    """A server that has the same port for UDP and TCP. The port is free for UDP, and another program may have it for TCP."""
    for _ in range(5):
        with contextlib.suppress(Fault):
            server = place.serve(folder, "--alt-svc")
            server.wait_for("https on")
            return server
    raise Fault("no port is free for both UDP and TCP")


@row("9 silent TCP connections")
def silent_tcp(place, row):
    server = with_tcp(place, site(place))
    begin = lambda: [place.attacker("silent.py", server.at, 600, "--local", HOST, venv=False)]
    told = siege(place, row, server, begin, ["/file", "--tcp"], connections=512, why="64 KiB for each of 512")
    descriptors = len(list(pathlib.Path(f"/proc/{server.pid}/fd").iterdir()))
    row.tell(f"{told[0].get('opened', 0)} connections opened, {descriptors} descriptors open at the end")


def read_bytes(server):
    text = pathlib.Path(f"/proc/{server.pid}/io").read_text()
    return int(text.split("rchar: ")[1].split()[0])


@row("14d requests cancelled at once")
def rapid_reset(place, row):
    server = place.serve(site(place))
    before = read_bytes(server)
    begin = lambda: [place.attacker("strangers.py", server.at, 4, 0, "--reset", "/large", "--local", HOST)]
    told = siege(place, row, server, begin, ["/file"], connections=4, allowance=8 * SEND_WINDOW, why="two send windows of 64 KiB each")
    requests, closed, read = told[0].get("requests", 0), told[0].get("closed", 0), read_bytes(server) - before
    row.tell(f"{requests} requests, {closed} connections closed by the server, {size(read)} of files read, honest requests included")
