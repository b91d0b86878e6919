"""Cases about transfers: sizes, lengths that change, full disks, terminals, pauses and doubled datagrams."""

import contextlib
import hashlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import quic
import rig
from place import SERVE, URL, asked, background, case, expect, files_below, sha256, write

MIB = 1 << 20
FOUR_GIB = 4 << 30


# --- sizes -----------------------------------------------------------------------------------------------------


def sparse(path, length, end):
    """A file of zeros, with these bytes at its end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        file.truncate(length)
        file.seek(length - len(end))
        file.write(end)
    return path


@case("4GiB")
def ranges_beyond_four_gibibytes(place):
    end = os.urandom(3 * MIB)
    sparse(place / "s/f", FOUR_GIB + 2 * MIB, end)
    place.serve(place / "s")
    at = FOUR_GIB - 10
    want = lambda text: quic.request("GET", "/f", ("range", text))  # noqa: E731
    (code, _, middle), (_, _, last), (beyond, _, _) = asked(want(f"bytes={at}-{at + 19}"), want("bytes=-7"), want(f"bytes={FOUR_GIB + 2 * MIB}-"))
    expect(code == 206 and quic.body(middle) == end[MIB - 10 : MIB + 10], f"{code}, {quic.body(middle)[:30]}")
    expect(quic.body(last) == end[-7:] and beyond == 416, f"the last bytes differ, or {beyond} behind the end")


@case("4GiB")
def a_killed_download_goes_on_beyond_four_gibibytes(place):
    """The part of a killed download is prolonged: its note says that 4 GiB and 1000 bytes of zeros are there."""
    have, length = FOUR_GIB + 1000, FOUR_GIB + 3 * MIB
    served, out = sparse(place / "s/f", length, os.urandom(MIB)), place / "o/f"
    place.serve(place / "s")
    place.folder("o")
    killed = place.begin_get("-q", "--rate", "8M", "-o", out, f"{URL}/f")
    time.sleep(2.5)
    killed.process.kill()
    killed.wait(5)
    note_file, zeros, hasher = place / "o/f.part.json", bytes(8 * MIB), hashlib.sha256()
    note = json.loads(note_file.read_text())
    for _ in range(have // len(zeros)):
        hasher.update(zeros)
    hasher.update(bytes(have % len(zeros)))
    expect(0 < note["bytes"] < have and note["sha256"] == hashlib.sha256(bytes(note["bytes"])).hexdigest(), f"the note is {note}")
    note_file.write_text(json.dumps({**note, "bytes": have, "sha256": hasher.hexdigest()}))
    os.truncate(place / "o/f.part", have)
    code, _, text = place.get("--json", "--continue", "-o", out, f"{URL}/f", seconds=300)
    expect(code == 0 and out.stat().st_size == length, f"exit {code}: {text[-300:]}")
    with open(out, "rb") as got, open(served, "rb") as wanted:
        for file in (got, wanted):
            file.seek(have - MIB)
        expect(got.read() == wanted.read(), "the end differs")
    received = json.loads(text.strip().splitlines()[-1]).get("bytes", 0)
    expect(received < 8 * MIB or received == length, f"{received} bytes were fetched again")


@case("25k")
def more_than_ten_thousand_files_in_a_directory(place):
    folder = place.folder("s/d")
    for number in range(10_030):
        (folder / f"{number:05}").write_bytes(b"%d" % number)
    place.serve(place / "s")
    code, took, text = place.get("-r", "-q", f"{URL}/d/", "-o", place / "t", seconds=180)
    names = files_below(place / "t")
    expect(code == 0 and len(names) == 10_030, f"exit {code} after {took:.0f} s, {len(names)} files: {text[-200:]}")
    expect((place / "t/10029").read_bytes() == b"10029", "the last file differs")


@case("names")
def odd_names_there_and_back(place):
    done = subprocess.run([sys.executable, pathlib.Path(__file__).with_name("odd_names"), "400"], capture_output=True, text=True, timeout=120)
    expect(done.returncode == 0 and done.stdout.endswith("right\n"), f"{done.stdout[-500:]}{done.stderr[-300:]}")


# --- files that change -----------------------------------------------------------------------------------------


@case("cut")
def files_that_change_while_they_are_served(place):
    before = os.urandom(MIB) * 20
    for name, change in (("cut", lambda path: os.truncate(path, 6 * MIB)), ("grown", lambda path: path.open("ab").write(b"more"))):
        served, out = write(place / f"s/{name}", before), place / f"out-{name}"
        place.serve(place / "s", listen="127.0.0.1:0")
        url = f"https://{place.processes[-1].at}/{name}"
        getting = place.begin_get("--rate", "80M", "--retry-time", 5, "-o", out, url)
        time.sleep(1)
        change(served)
        code = getting.wait(40)
        text = getting.said()
        versions = (before, served.read_bytes())
        got = out.read_bytes() if out.exists() else None
        expect(code is not None and (got in versions if code == 0 else got is None and "mpquic:" in text), f"{name}: exit {code}: {text[-300:]}")


@case("cut")
def files_that_change_while_they_are_sent(place):
    before = os.urandom(MIB) * 20
    place.folder("s")
    place.serve(place / "s", "--allow-put")
    for name, change in (("cut", lambda path: os.truncate(path, 6 * MIB)), ("grown", lambda path: path.open("ab").write(b"more"))):
        sent = write(place / f"t/{name}", before)
        putting = place.begin_put("--rate", "80M", f"{URL}/{name}", sent)
        time.sleep(1)
        change(sent)
        code = putting.wait(40)
        expect(code == 3 and name in putting.said(), f"{name}: exit {code}: {putting.said()[-300:]}")
    # Unfinished uploads are kept, for ten minutes.
    stored = [name for name in files_below(place / "s") if not name.startswith(".mpquic-put-")]
    expect(not stored, f"stored: {stored}")


# --- disks and descriptors -------------------------------------------------------------------------------------


@contextlib.contextmanager
def small_disk(place, name):
    folder = place.folder(name)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "mpe", folder], check=True)
    try:
        yield folder
    finally:
        for process in place.processes:
            process.stop()
        subprocess.run(["umount", folder], check=True)


@case("full")
def disks_that_are_full(place):
    write(place / "s/f", bytes(3 * MIB))
    with small_disk(place, "small") as small, small_disk(place, "there") as there:
        place.serve(place / "s")
        code, _, text = place.get("-q", f"{URL}/f", "-o", small / "f")
        names = files_below(small)
        expect(code == 3 and "f.part" in names and "f" not in names, f"get: exit {code}, {names}: {text[-200:]}")
        with open(place / "log", "w") as log:
            code = place.begin_get("-q", "--json", f"{URL}/f", "-o", place / "out", stdout=open("/dev/full", "w"), stderr=log).wait(20)
        expect(code == 3, f"get --json: exit {code}: {(place / 'log').read_text()[-200:]}")
        with open("/dev/full", "wb") as full:
            code = place.begin_get("-q", f"{URL}/f", "-o", "-", stdout=full).wait(20)
        expect(code == 3, f"get -o -: exit {code}")
        server = place.serve(there, "--allow-put", listen="127.0.0.1:0")
        code, text = place.put("-q", f"https://{server.at}/f", place / "s/f")
        expect(code != 0 and "507" in text, f"put: exit {code}: {text[-200:]}")
        expect("f" not in files_below(there), "the server stored a file that is not whole")


@case("descriptors")
def a_server_with_24_descriptors(place):
    for number in range(60):
        write(place / f"s/{number}", b"%d" % number * 1000)
    server = place.serve(place / "s", files=24)
    code, _, text = place.get("-r", "-q", f"{URL}/", "-o", place / "t")
    names = files_below(place / "t")
    expect(code == 0 and len(names) == 60, f"exit {code}, {len(names)} of 60 files: {text[-300:]}")
    spent = server.cpu()
    time.sleep(1)
    expect(server.cpu() - spent < 0.3, f"the server used {server.cpu() - spent:.1f} s of CPU within a second")
    expect(place.fetched(f"{URL}/7") == b"7" * 1000, "other content when all is over")


# --- terminals and pauses --------------------------------------------------------------------------------------


@case("terminal")
def windows_without_room(place):
    write(place / "s/f", bytes(3 * MIB))
    place.serve(place / "s")
    for window in ((0, 0), (1, 1), (1, 500), (500, 1)):
        for live in ((), ("--live",)):
            words = [rig.MPQUIC, "get", *place.trust(), *live, "--rate", "20M", "-o", place / "out", f"{URL}/f"]
            output = rig.at_terminal(place, ["sh", "-c", '"$@"; echo "exit code $?"', "sh", *words], window=window)
            told = output[-300:].decode(errors="replace")
            expect(b"exit code 0" in output and b"panicked" not in output, f"{window} {live}: {told}")
            expect((place / "out").read_bytes() == bytes(3 * MIB), f"{window} {live}: other content")
            (place / "out").unlink()


@case("sleep")
def a_client_that_sleeps_for_45_seconds(place):
    content = write(place / "s/f", os.urandom(MIB) * 20)
    place.serve(place / "s")
    getting = place.begin_get("-q", "--rate", "40M", "-o", place / "out", f"{URL}/f")
    time.sleep(1.5)
    getting.process.send_signal(signal.SIGSTOP)
    time.sleep(45)
    getting.process.send_signal(signal.SIGCONT)
    code = getting.wait(30)
    expect(code == 0 and sha256(place / "out") == sha256(content), f"exit {code}: {getting.said()[-300:]}")


def doubling(server):
    """A UDP relay that sends each datagram twice, both ways; answers its socket and a count of what it has sent."""
    near, far = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
    near.bind(("127.0.0.1", 0))
    far.connect(server)
    for udp in (near, far):
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * MIB)
    peer, sent = [], [0]

    def to_server():
        while True:
            data, source = near.recvfrom(65536)
            peer[:] = [source]
            for _ in range(2):
                far.send(data)

    def to_client():
        while True:
            data = far.recv(65536)
            for _ in range(2):
                sent[0] += 1
                near.sendto(data, peer[0])

    background(to_server)
    background(to_client)
    return near, far, sent


@case("double")
def each_datagram_twice(place):
    content = write(place / "s/f", os.urandom(MIB) * 20)
    place.serve(place / "s", "--allow-put")
    host, port = SERVE.split(":")
    near, far, sent = doubling((host, int(port)))
    try:
        url = f"https://127.0.0.1:{near.getsockname()[1]}"
        expect(place.fetched(f"{url}/f") == content.read_bytes(), "other content")
        expect(sent[0] > 20_000, f"only {sent[0]} datagrams were doubled")
        code, text = place.put("-q", f"{url}/g", content)
        expect(code == 0 and sha256(place / "s/g") == sha256(content), f"put: exit {code}: {text[-300:]}")
    finally:
        near.close()
        far.close()


@case("tls")
def handshakes_of_all_kinds(place):
    """A ClientHello in two datagrams, Retry, version 2, 0-RTT and resumption, each with a whole file."""
    content = os.urandom(100_000)
    for name in "fg":
        write(place / f"s/{name}", content)
    place.serve(place / "s", "--retry")
    for options in (["--key-exchange", "hybrid"], ["--key-exchange", "classical"], ["--quic-version", "v2"], ["--quic-version", "v1"],
                    ["--quic-version", "v2,v1"], ["--cipher", "chacha20"], ["--cipher", "aes256"]):
        expect(place.fetched(f"{URL}/f", *options) == content, f"{options}: other content")
    for more in (["--early-data"], []):
        folder = place.folder(f"again{len(more)}")
        code, _, text = place.get("--json", "--reconnect", *more, f"{URL}/f", f"{URL}/g", "--output-dir", folder)
        stored = [(folder / name).read_bytes() for name in "fg" if (folder / name).exists()]
        expect(code == 0 and stored == [content] * 2, f"{more}: exit {code}: {text[-300:]}")


@case("versions")
def tickets_and_tokens_of_another_version(place):
    """Each run has the tokens of the run before, which had the other version."""
    write(place / "s/f", b"content")
    place.serve(place / "s", "--retry")
    for version in ("v1", "v2", "v1", "v2", "v1"):
        code, took, text = place.get("--json", "--quic-version", version, "-o", place / "out", f"{URL}/f")
        expect(code == 0 and took < 2 and (place / "out").read_bytes() == b"content", f"{version}: exit {code} after {took:.1f} s: {text[-300:]}")
