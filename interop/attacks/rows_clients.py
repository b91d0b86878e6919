"""Rows about hostile servers, and about other users of a client's machine."""

import json
import os
import pathlib
import subprocess
import time

from rig import MIB, MPQUIC, Peak, at_terminal, row, size

# Byte sequences of server.py's reason that must not arrive: escapes, bells, C1 controls, changes of direction, backspace.
HOSTILE = {"OSC": b"\x1b]", "colour": b"\x1b[31m", "bell": b"\x07", "C1": b"\xc2\x9b", "C1 ": b"\xc2\x9d", "bidi": b"\xe2\x80\xae",
           "bidi ": b"\xe2\x81\xa6", "line separator": b"\xe2\x80\xa8", "backspace": b"\x08", "delete": b"\x7f"}


def hostile_in(output):
    """Names of what must not be there."""
    found = [name.strip() for name, sequence in HOSTILE.items() if sequence in output]
    lines = output.replace(b"\r", b"\n").split(b"\n")
    return found + (["forged line"] if any(line.startswith(b"FORGED") for line in lines) else [])


@row("4 reasons of a server on the terminal")
def reasons(place, row):
    (place / "local").write_bytes(b"x" * 100)
    for code in ("0x100", "0x0") if place.quick else ("0x100", "0x10c", "0x0", "0x1"):
        server = place.hostile_server("close", "--code", code)
        url = f"https://127.0.0.1:{server.port}/f"
        for words in (["get", url], ["get", "--json", url], ["get", "--json=events", url], ["put", url, place / "local"],
                      ["paths", url], ["record", f"127.0.0.1:{server.port}", "-o", place / "record"]):
            retry = ["--retry-time", "1"] if words[0] in ("get", "put") else []
            output = at_terminal(place, [MPQUIC, *words, "--insecure", *retry])
            found = hostile_in(output)
            name = " ".join(map(str, words[:2] if "--json" in str(words[1]) else words[:1]))
            if found or not output:
                row.check(False, f"{name} after {code}: {', '.join(found) or 'no output'}", "")
        heard = server.end().get("requests", [])
        row.check(len(heard) >= 4, f"{code}: {len(heard)} requests were answered so", "")
    client = place.hostile_server("close")
    command = [MPQUIC, "proxy", "client", "--insecure", "--socks", "127.0.0.1:0", f"https://127.0.0.1:{client.port}"]
    output = at_terminal(place, command, seconds=4)
    row.check(not hostile_in(output), f"proxy client: {hostile_in(output) or 'clean'}", "no control characters, no lines of the server's")


@row("7 reasons of a client in the server's log")
def log(place, row):
    folder = place.folder("site", ["file"])
    server = place.serve(folder, "--access-log", place / "access", env={**place.env, "RUST_LOG": "debug"})
    for code in ("0x100", "0x10c", "0x0", "0x1"):
        closing = place.program("closing.py", server.at, "--code", code)
        closing.wait(20)
    time.sleep(0.5)
    server.end()
    for name, text in (("log", server.text(True)), ("output", server.text()), ("access log", (place / "access").read_bytes())):
        row.check(not hostile_in(text), f"{name}: {hostile_in(text) or 'clean'}, {len(text.splitlines())} lines", "")
    row.check(True, "4 ways to close", "no control characters, no forged lines")


NAMESPACE = "mpa-client", "mpa-server"


def network():
    """A client with a public address and a neighbour in a private network, and a server elsewhere."""
    client, server = NAMESPACE
    remove_network()
    for command in (
        f"netns add {client}", f"netns add {server}", f"-n {client} link set lo up", f"-n {server} link set lo up",
        f"-n {client} link add wan type veth peer name wan netns {server}",
        f"-n {client} link add lan type veth peer name lan netns {server}",
        f"-n {client} address add 203.0.113.2/24 dev wan", f"-n {server} address add 203.0.113.1/24 dev wan",
        f"-n {client} address add 192.168.77.2/24 dev lan", f"-n {server} address add 192.168.77.9/24 dev lan",
        *(f"-n {name} link set {link} up" for name in (client, server) for link in ("wan", "lan")),
    ):
        subprocess.run(["ip", *command.split()], check=True)


def remove_network():
    for name in NAMESPACE:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


COUNT = """
import socket, sys, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.bind((sys.argv[1], int(sys.argv[2])))
print("ready", flush=True)
import signal, os
seen = [0]
signal.signal(signal.SIGTERM, lambda *_: (print('{"seen": %d}' % seen[0], flush=True), os._exit(0)))
while True:
    udp.recv(2000)
    seen[0] += 1
"""


@row("8 preferred addresses in private networks")
def preferred(place, row):
    network()
    client, server = NAMESPACE
    try:
        for at, within, allowed in (("192.168.77.9:5353", server, False), ("127.0.0.1:6379", client, False), ("203.0.113.1:7777", server, True)):
            host, port = at.split(":")
            counter = place.start(["python3", "-c", COUNT, host, port], prefix=["ip", "netns", "exec", within])
            counter.wait_for("ready")
            hostile = place.hostile_server("prefer", "--at", at, "--listen", "203.0.113.1", prefix=["ip", "netns", "exec", server])
            url = f"https://203.0.113.1:{hostile.port}/f"
            command = ["get", "--insecure", "-o", place / f"got-{port}", url]
            get = place.mpquic(*command, "--local", "203.0.113.2", prefix=["ip", "netns", "exec", client])
            code = get.wait(20)
            time.sleep(1)
            seen = counter.end()["seen"]
            holds = (seen > 0) == allowed and code == 0
            row.check(holds, f"{at}: {seen} datagrams, get {code}", "none, but some to a public address" if allowed else "")
    finally:
        remove_network()


TYPES = ("file", "directory")
EVIL = ["..", "../up", "../../up", "/etc/absolute", "a/../../up", ".bashrc", ".ssh", ".profile", "%2e%2e", "%2e%2e%2fup", "..\\up",
        "a\0b", "line\nend", "\x1b[31mred", ".", "", "x/", "fine", "sub"]


def around(place):
    """All files below the row's directory, except those of its own programs."""
    own = {"cert.pem", "key.pem", "list.json", "state", "mpquic"}
    return {str(path.relative_to(place.directory)) for path in place.directory.rglob("*")
            if path.relative_to(place.directory).parts[0] not in own}


@row("10a hostile lists")
def lists(place, row):
    entries = [{"name": name, "type": kind, "size": 28, "mtime": "Fri, 27 Nov 2026 00:00:00 GMT"} for name in EVIL for kind in TYPES]
    (place / "list.json").write_text(json.dumps(entries))
    server = place.hostile_server("lists", "--list", place / "list.json")
    for options, dots in (([], False), (["--dot-files"], True), (["--overwrite"], False)):
        before = around(place)
        get = place.mpquic("get", "-r", "--insecure", "--max-depth", 3, *options, f"https://127.0.0.1:{server.port}/", cwd=place / "home")
        code = get.wait(60)
        made = around(place) - before
        outside = [path for path in made if not path.startswith("home/127.0.0.1")]
        dotted = [path for path in made if any(part.startswith(".") for part in pathlib.PurePath(path).parts)]
        row.check(not outside and (dots or not dotted), f"{' '.join(options) or 'get -r'}: exit {code}, {len(made)} made,"
                  f" {len(outside)} outside, {len(dotted)} with a dot", "")
        found = hostile_in(get.text() + get.text(True))
        row.check(not found, f"output {found or 'clean'}", "")
    written = set((place / "home").iterdir()) - {place / "home/127.0.0.1"}
    row.check(not written, f"beside the host's directory: {sorted(map(str, written)) or 'nothing'}", "only home/HOST; dots with --dot-files only")


@row("10b lists without an end")
def endless(place, row):
    server = place.hostile_server("endless")
    get = place.mpquic("get", "-r", "--insecure", f"https://127.0.0.1:{server.port}/", cwd=place / "home")
    peak = Peak(get)
    code = get.wait(20 if place.quick else 90)
    most = peak.end()
    if code is None:
        get.process.terminate()
    ended = "still runs" if code is None else f"exit {code}"
    heard = server.end().get("lists", 0)
    row.check(most <= 192 * MIB, f"{heard} lists of 2.5 MB, memory of the client at most {size(most)}, {ended}",
              "192 MiB (16 for a list, 64 of waiting names, and their indices)")


@row("14b a link at the place of a part")
def part_link(place, row):
    server = place.serve(place.folder("site", ["file"]))
    shared = place.folder("shared")
    shared.chmod(0o777)
    target = place / "precious"
    for name in ("got.part", "got.part.json", "got"):
        target.write_text("precious\n")
        for old in shared.iterdir():
            old.unlink()
        (shared / name).symlink_to(target)
        os.lchown(shared / name, 65534, 65534)
        get = place.mpquic("get", "--insecure", "-o", shared / "got", f"https://{server.at}/file")
        code = get.wait(20)
        row.check(target.read_text() == "precious\n", f"{name}: exit {code}, target {size(target.stat().st_size)}", "")
    row.check(True, "3 places", "the target of the link stays as it is")


@row("14c secret fields on a redirection")
def redirect(place, row):
    other = place.hostile_server("listen")
    first = place.hostile_server("redirect", "--to", f"https://localhost:{other.port}/there")
    secrets = ["X-Api-Key: swordfish", "Authorization: Bearer swordfish", "Cookie: s=swordfish", "X-Custom: swordfish"]
    fields = [word for secret in secrets for word in ("-H", secret)]
    get = place.mpquic("get", "--insecure", *fields, "-o", place / "got", f"https://127.0.0.1:{first.port}/")
    code = get.wait(20)
    heard, there = first.end().get("requests", []), other.end().get("requests", [])
    told = sum("swordfish" in str(request) for request in there)
    sent = sum("swordfish" in str(request) for request in heard)
    row.check(sent == 1 and len(there) == 1 and told == 0, f"exit {code}, {sent} request with secrets to the first host, {len(there)} to the other,"
              f" {told} of these with secrets", "0 with secrets")


STATE = {"process": 4194000, "table": 443999, "sources": [], "networks": []}


@row("3 proxy down and states of other users")
def down(place, row):
    """In private namespaces: /run is empty, the resolver's file and a crontab are copies."""
    crontab, resolver = place / "crontab", place / "resolv.conf"
    for case, directory, owner, mode in (
        ("of another user in /run", "/run/mpquic-tun", 65534, 0o755), ("old place", "/run/mpquic", 65534, 0o755),
        ("in a directory that all can write", "/run/mpquic-tun", 0, 0o777), ("in XDG_RUNTIME_DIR", "/run/user/mpquic-tun", 65534, 0o755),
        ("of root", "/run/mpquic-tun", 0, 0o755),
    ):
        crontab.write_text("# of root\n")
        resolver.write_text("nameserver 192.0.2.1\n")
        script = f"""
set -e
mount -t tmpfs none /run
mount --bind {resolver} "$(readlink -f /etc/resolv.conf)"
ip link set lo up
mkdir -p {directory}
inode=$(stat -Lc %i /proc/self/ns/net)
for name in tuncron tunresolv; do
    cp {place.directory}/$name.json {directory}/$name.$inode.json
    chown {owner}:{owner} {directory}/$name.$inode.json
done
chown {owner}:{owner} {directory}
chmod {mode:o} {directory}
chown {owner}:{owner} $(dirname {directory}) || true
[ $(dirname {directory}) != /run ] || chown 0:0 /run
XDG_RUNTIME_DIR=/run/user {MPQUIC} proxy down
"""
        for name, path, after in (("tuncron", str(crontab), crontab), ("tunresolv", "/etc/resolv.conf", resolver)):
            changed = {"path": path, "before": "* * * * * root evil\n", "after": after.read_text()}
            (place / f"{name}.json").write_text(json.dumps({**STATE, "name": name, "resolver": changed}))
        run = place.start(["unshare", "--mount", "--net", "--propagation", "private", "sh", "-c", script])
        code = run.wait(20)
        output = (run.text() + run.text(True)).decode().strip().replace("\n", " / ")
        kept = crontab.read_text() == "# of root\n"
        resolver_kept = resolver.read_text() == "nameserver 192.0.2.1\n"
        told = f"{case}: exit {code}, crontab {'as it was' if kept else 'CHANGED'}, resolver {'as it was' if resolver_kept else 'changed'}"
        # The last case shows that the others could have done something.
        by_root = owner == 0 and mode == 0o755
        row.check(kept and resolver_kept != by_root, told, "")
        if kept and resolver_kept == by_root:
            row.tell(f"said: {output[-300:]}")
    row.check(True, "5 cases", "nothing by another's state; never another file")
