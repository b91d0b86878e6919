"""Rows about files: races with local users, and uploads of others."""

import os
import time

from rig import HERE, row


def told_counts(counts):
    return ", ".join(f"{number} x {code}" for code, number in sorted(counts.items(), key=lambda pair: -pair[1])[:4])


def tree(place):
    """A served tree with a directory `d` and a link `l` that leads outside."""
    root, outside = place.folder("root"), place.folder("outside")
    (root / "d").mkdir()
    (root / "d/f").write_text("inside\n")
    (root / "secret").write_text("inside\n")
    (outside / "f").write_text("outside\n")
    (outside / "secret").write_text("outside\n")
    (outside / "x").mkdir()
    (outside / "x/f").write_text("inside\n")
    (outside / "x/up").symlink_to("../secret")
    (root / "d/up").symlink_to("../secret")
    (root / "l").symlink_to("../outside")
    return root, outside


def below(folder):
    return {str(path) for path in folder.rglob("*")}


def race(place, row, what, gets, puts, prefix=()):
    root, outside = tree(place)
    before = below(outside)
    seconds = 6 if place.quick else 60
    # A mount namespace of their own for both, so that the server sees the mounts of the other.
    server = place.serve(root, "--allow-put", prefix=prefix)
    inside = ["nsenter", f"--mount=/proc/{server.pid}/ns/mnt"] if prefix else []
    swapper = place.start([*inside, "python3", HERE / "swap.py", what, root, outside], nice=5)
    swapper.wait_for("ready")
    options = [word for get in gets for word in ("--get", get)] + [word for put in puts for word in ("--put", put)]
    crowd = place.attacker("crowd.py", server.at, *options)
    time.sleep(seconds)
    told, swaps = crowd.end(), swapper.end().get("swaps", 0)
    if swapper.process.returncode != 0:
        row.check(False, f"the local writer failed: {swapper.text(True)[-200:]!r}", "")
    made = below(outside) - before
    x = {path for path in made if what == "bind" and path.startswith(str(outside / "x/"))}
    gets, puts = told.get("gets", {}), told.get("puts", {})
    got, put = gets.get("200", 0), puts.get("201", 0) + puts.get("204", 0)
    row.check(told.get("outside") == 0, f"{sum(gets.values())} GETs ({told_counts(gets)}) in {seconds} s, {told.get('outside')} read outside", "0")
    row.check(not made - x, f"{sum(puts.values())} PUTs ({told_counts(puts)}), {len(made - x)} written outside", "0")
    row.check(swaps > 500 and got > 100 and (put > 50 or not told.get("puts")), f"{swaps} swaps", "500 swaps, 100 files got, 50 put")


@row("11a exchanged directory and link")
def exchanged(place, row):
    race(place, row, "exchange", ["/d/f"], ["/d/new"])


@row("11b renamed directory and link")
def renamed(place, row):
    race(place, row, "rename", ["/d/f"], ["/d/new"])


@row("11c mounts that come and go")
def mounted(place, row):
    prefix = ["unshare", "--mount", "--propagation", "private"]
    race(place, row, "bind", ["/d/f", "/d/up", "/l/f"], ["/d/new"], prefix)


def asked(place, server, method, path, *fields, content=None):
    """The first line and the body of an answer."""
    options = [word for field in fields for word in ("--field", field)]
    feed = place / "content"
    feed.write_bytes(content or b"")
    with open(feed, "rb") as file:
        ask = place.program("ask.py", server.at, method, path, *options, nice=0, stdin=file)
        ask.wait(20)
    line, _, body = ask.text().partition(b"\n")
    return line.decode(), body


@row("12 unfinished uploads")
def unfinished(place, row):
    folder = place.folder("site", ["file"])
    arguments = [folder, "--allow-put", "--dot-files"]
    server = place.serve(*arguments)
    for field in ([], ["--field", "upload-complete=?1", "--field", f"content-length={8 << 20}"]):
        part = place.attacker("ask.py", server.at, "PUT", "/big", "--part", 1_500_000, *field)
    time.sleep(1)
    names = [name for name in os.listdir(folder) if name.startswith(".mpquic-put-")]
    row.check(len(names) >= 2, f"{len(names)} temporary files", "")
    for accept in ("text/html", "application/json"):
        line, body = asked(place, server, "GET", "/", f"accept={accept}")
        row.check(line.startswith("200") and b"file" in body and b"mpquic-put" not in body, f"{accept}: {line}", "")
    for name in names:
        answers = [asked(place, server, method, f"/{path}", content=content)[0].split()[0] for method, path, content in (
            ("GET", name, None), ("GET", name.replace(".", "%2e", 1), None), ("HEAD", name, None), ("PUT", name, b"EVIL"),
            ("DELETE", name, None), ("GET", f"./{name}", None))]
        row.check("200" not in answers and "201" not in answers and "204" not in answers, f"GET, GET, HEAD, PUT, DELETE, GET: {' '.join(answers)}", "")
    server.process.kill()
    server.process.wait()
    part.end()
    left = [name for name in os.listdir(folder) if name.startswith(".mpquic-put-")]
    again = place.serve(*arguments)
    asked(place, again, "GET", "/file")
    after = [name for name in os.listdir(folder) if name.startswith(".mpquic-put-")]
    row.check(len(after) == len(left) - 1, f"{len(left)} files after kill -9, {len(after)} after a restart",
              "nothing listed, handed out or replaced; only what can be resumed is kept")
