"""Cases about processes: signals, logs, sockets and descriptors."""

import os
import pty
import re
import signal
import socket
import time

import rig
from place import SERVE, URL, case, expect, write


@case("27")
def stderr_on_a_full_disk(place):
    place.folder("s")
    with open("/dev/full", "wb") as full:
        for arguments in (["serve", (place / "s")], ["proxy", "server", "--open"]):
            program = place.tool(*arguments, "--listen", "127.0.0.1:4734", stderr=full)
            code = program.wait(1.5)
            expect(code is None, f"{arguments[0]} ended with {code}")
            program.stop()


@case("21")
def access_log_after_rotation(place):
    write(place / "s/f", b"f")
    log = place / "access.log"
    server = place.serve(place / "s", "--access-log", log)
    place.get("-q", f"{URL}/f", "-o", place / "one")
    os.rename(log, place / "access.log.1")
    server.process.send_signal(signal.SIGHUP)
    time.sleep(0.5)
    place.get("-q", f"{URL}/f", "-o", place / "two")
    time.sleep(0.5)
    expect(log.exists() and log.read_text().count("\n") == 1, "the line after SIGHUP went into the renamed file")


@case("22")
def abstract_notify_socket(place):
    name = f"mpe-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind("\0" + name)
        manager.settimeout(5)
        place.tool("proxy", "server", "--open", "--listen", "127.0.0.1:4735", env={"NOTIFY_SOCKET": "@" + name})
        try:
            message = manager.recv(200)
        except TimeoutError as error:
            raise rig.Fault("READY=1 did not come") from error
    expect(b"READY=1" in message, f"{message}")


@case("20")
def signals_that_are_ignored_at_the_start(place):
    place.folder("s")
    program = place.tool("serve", place / "s", "--listen", "127.0.0.1:4736", prefix=["nohup"])
    program.wait_for("sha256:")
    mask = next(line for line in open(f"/proc/{program.process.pid}/status") if line.startswith("SigIgn"))
    expect(int(mask.split()[1], 16) & 1, "SIGHUP is no longer ignored")
    program.process.send_signal(signal.SIGHUP)
    expect(program.wait(1) is None, "SIGHUP ended the server")


@case("24")
def both_wildcards(place):
    place.folder("s")
    program = place.tool("serve", place / "s", "--listen", "0.0.0.0:4737", "--listen", "[::]:4737")
    program.wait_for("sha256:", 3)


@case()
def a_wildcard_beside_an_address(place):
    write(place / "s/a.txt", b"hello")
    both = ["--listen", "[::]:4738", "--listen", "127.0.0.1:4738", "--alt-svc"]
    place.pin = place.tool("serve", place / "s", *both).wait_for(r"sha256:[0-9a-f:]+", 3)[0].decode()
    for host in ("127.0.0.1", "[::1]"):
        code, _, text = place.get("-q", "-o", "/dev/null", f"https://{host}:4738/a.txt")
        expect(code == 0, f"{host}: exit {code}: {text[-300:]}")


@case("terminal gone")
def servers_whose_terminal_is_gone(place):
    """The other end of the terminal is closed; then each line that the server prints fails (EIO)."""
    write(place / "s/f", b"content")
    ours, its = pty.openpty()
    server = place.tool("serve", place / "s", "--listen", SERVE, stdout=its, stderr=its, env={"RUST_LOG": "debug"})
    os.close(its)
    heard = b""
    while not re.search(rb"sha256:[0-9a-f]{64}", heard):
        heard += os.read(ours, 65536)
    os.close(ours)
    place.pin = re.search(rb"sha256:[0-9a-f]+", heard)[0].decode()
    for _ in range(3):
        expect(place.fetched(f"{URL}/f") == b"content", "other content")
    expect(server.wait(0.5) is None, f"the server ended with {server.process.returncode}")


@case("terminal gone")
def outputs_that_are_full_or_closed(place):
    write(place / "s/f", b"content")
    server = place.serve(place / "s", "--access-log", "/dev/full")
    for _ in range(3):
        expect(place.fetched(f"{URL}/f") == b"content", "an access log that is full: other content")
    server.stop()
    with open("/dev/full", "wb") as full:
        server = place.tool("serve", place / "s", "--listen", SERVE, "--drain-timeout", 1, stdout=full)
        time.sleep(1)
        expect(place.fetched(f"{URL}/f") == b"content", "a full output: other content")
        server.stop()
        code, text = server.process.returncode, server.text(True).decode()
        expect(code == 3 and "standard output" in text, f"a full output: exit {code}: {text[-300:]}")
    server = place.tool("serve", place / "s", "--listen", SERVE, prefix=["sh", "-c", 'exec "$@" 0<&- 1>&- 2>&-', "sh"])
    time.sleep(1)
    expect(server.wait(0.2) is None, f"0, 1 and 2 closed: `serve` ended with {server.process.returncode}")
    expect(place.fetched(f"{URL}/f") == b"content", "0, 1 and 2 closed: other content")
    server.stop()
    stored = sorted(path.name for path in (place / "s").iterdir())
    expect(stored == ["f"] and (place / "s/f").read_bytes() == b"content", f"the served files are {stored}")
