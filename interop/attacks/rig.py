"""Servers, attackers and honest clients as processes, and what is measured about them, for interop/attacks/run
and interop/edges/run."""

import fcntl
import json
import math
import os
import pathlib
import pty
import re
import resource
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PYTHON = ROOT / "interop/peers/target/aioquic/bin/python"
MPQUIC = os.environ.get("MPQUIC", str(ROOT / "target/release/mpquic"))
KIB, MIB = 1 << 10, 1 << 20
# What an attacker's byte may cost, and a connection.
BYTES_A_BYTE, BYTES_A_CONNECTION = 8, 64 * KIB
# How much longer an honest client may wait beside an attack.
SLOWER = 2
ROWS = []


class Fault(Exception):
    """A process did not do what the row needs."""


class Row:
    """What was seen, what is allowed, and whether this holds: lists of words that are joined in the end."""

    def __init__(self, name):
        self.name, self.seen, self.limits, self.failed = name, [], [], []

    def check(self, holds, seen, limit):
        self.seen.append(seen if holds else f"{seen} (!)")
        if limit:
            self.limits.append(limit)
        if not holds:
            self.failed.append(seen)

    def tell(self, seen):
        self.seen.append(seen)

    def __str__(self):
        verdict = "FAILS" if self.failed else "holds"
        return f"{self.name} | {'; '.join(self.seen)} | {'; '.join(self.limits)} | {verdict}"


def row(name):
    """A function of a place and its row. A row's name is what `interop/attacks/run NAME` looks for."""

    def add(function):
        ROWS.append((name, function))
        return function

    return add


class Process:
    """A process, with its output and its errors in two files, or in one file if they are to be `together`."""

    def __init__(self, command, *, nice=0, files=None, prefix=(), together=False, **more):
        self.output = tempfile.TemporaryFile()
        self.errors = self.output if together else tempfile.TemporaryFile()

        def before():
            os.nice(nice)
            if files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        more = {"stdout": self.output, "stderr": self.errors, **more}
        self.process = subprocess.Popen([*map(str, prefix), *map(str, command)], preexec_fn=before, **more)

    @property
    def pid(self):
        return self.process.pid

    def said(self):
        """The text of the output, and of errors in the same file."""
        return self.text().decode(errors="replace")

    def text(self, errors=False):
        file = self.errors if errors else self.output
        # By position: the process writes where the file's offset is.
        return os.pread(file.fileno(), 64 * MIB, 0)

    def wait_for(self, pattern, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            found = re.search(pattern.encode(), self.text())
            if found:
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise Fault(f"`{pattern}` does not appear: {self.text()[-300:]} {self.text(True)[-800:]}")

    def wait(self, seconds):
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self):
        """Ends the process by SIGTERM, or by SIGKILL after 5 s."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            if self.wait(5) is None:
                self.process.kill()
                self.process.wait()

    def end(self):
        """Ends the process, and answers the JSON object that it printed last."""
        self.stop()
        lines = self.text().decode(errors="replace").strip().splitlines()
        return json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}

    def memory(self):
        """Resident memory in bytes."""
        found = re.search(r"VmRSS:\s+(\d+) kB", pathlib.Path(f"/proc/{self.pid}/status").read_text())
        return int(found[1]) * KIB if found else 0

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Peak:
    """Looks at the memory of a process ten times a second."""

    def __init__(self, process):
        self.process, self.most, self.going = process, 0, True
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        while self.going:
            try:
                self.most = max(self.most, self.process.memory())
            except OSError:
                return
            time.sleep(0.1)

    def end(self):
        self.going = False
        self.thread.join()
        return self.most


def quantile(seconds, part):
    """The smallest of these that at least this part of them does not exceed."""
    return sorted(seconds)[math.ceil(part * len(seconds)) - 1]


class Place:
    """A row's directory, and its processes. All end with the row."""

    def __init__(self, quick):
        self.quick = quick
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="mpa-"))
        self.env = {**os.environ, "XDG_STATE_HOME": str(self.directory / "state"), "XDG_RUNTIME_DIR": str(self.directory),
                    "HOME": str(self.directory / "home"), "NO_COLOR": "1"}
        (self.directory / "home").mkdir()
        self.processes = []

    def __truediv__(self, name):
        return self.directory / name

    def folder(self, name, files=()):
        """A directory with these files, all of them with the same few bytes."""
        made = self.directory / name
        made.mkdir(parents=True, exist_ok=True)
        for file in files:
            (made / file).write_bytes(b"inside\n")
        return made

    def start(self, command, **more):
        more.setdefault("env", self.env)
        process = Process(command, **more)
        self.processes.append(process)
        return process

    def mpquic(self, *arguments, **more):
        return self.start([MPQUIC, *arguments], **more)

    def program(self, name, *arguments, **more):
        """One of the programs beside this file. Attackers have the lowest priority: theirs are other machines."""
        more.setdefault("nice", 10)
        python = PYTHON if more.pop("venv", True) else "python3"
        return self.start([python, HERE / name, *arguments], **more)

    def attacker(self, name, *arguments, **more):
        attacker = self.program(name, *arguments, **more)
        attacker.wait_for("ready", 150)
        return attacker

    def serve(self, folder, *options, listen="127.0.0.1:0", **more):
        """`mpquic serve`, on a free port by default; answers the process, whose `at` is its address."""
        server = self.mpquic("serve", folder, "--listen", listen, "--drain-timeout", 1, *options, **more)
        server.at = server.wait_for(r"listening on (\S+)")[1].decode()
        return server

    def users(self, *names):
        file = self / "users"
        file.write_text("".join(f"basic {name}:wonderland\n" for name in names))
        file.chmod(0o600)
        return file

    def proxy(self, *options, users=("alice", "bob"), **more):
        arguments = ["--credentials", self.users(*users), "--allow", "127.0.0.0/8", "--listen", "127.0.0.1:0", "--drain-timeout", 1]
        server = self.mpquic("proxy", "server", *arguments, *options, **more)
        server.at = server.wait_for(r"listening on (\S+)")[1].decode()
        return server

    def identity(self, host="localhost"):
        """A certificate and its key for hostile servers."""
        cert, key = self / "cert.pem", self / "key.pem"
        if not cert.exists():
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key,
                 "-out", cert, "-days", "1", "-subj", f"/CN={host}", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"],
                check=True, capture_output=True,
            )
        return cert, key

    def hostile_server(self, what, *options, prefix=(), **more):
        command = [PYTHON, HERE / "server.py", *self.identity(), what, *options]
        server = self.start([*prefix, *command], **more)
        server.port = int(server.wait_for(r"listening on (\d+)")[1])
        return server

    def honest(self, server, path, *options, count=50):
        """The seconds of honest requests, and their statuses."""
        client = self.program("honest.py", server, path, "--count", count, *options, nice=-5)
        if client.wait(600) != 0:
            raise Fault(f"the honest client failed: {client.text(True)[-800:]!r}")
        told = json.loads(client.text())
        return told["seconds"], told["codes"]

    def end(self):
        for process in reversed(self.processes):
            if process.process.poll() is None:
                process.process.terminate()
        for process in self.processes:
            process.stop()
        subprocess.run(["chattr", "-R", "-i", self.directory], capture_output=True)
        shutil.rmtree(self.directory, ignore_errors=True)


def at_terminal(place, command, seconds=20, window=None):
    """What a command writes to a terminal. `window` has the rows and the columns."""
    ours, its = pty.openpty()
    if window:
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", *window, 0, 0))
    more = {"env": place.env, "cwd": place / "home", "stdin": subprocess.DEVNULL}
    running = subprocess.Popen([*map(str, command)], stdout=its, stderr=its, **more)
    os.close(its)
    output, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([ours], [], [], 0.2)[0]:
            try:
                piece = os.read(ours, 65536)
            except OSError:
                break
            if not piece:
                break
            output += piece
        elif running.poll() is not None:
            break
    if running.poll() is None:
        running.terminate()
    running.wait()
    os.close(ours)
    return output


def size(count):
    if abs(count) >= MIB:
        return f"{count / MIB:.1f} MiB"
    return f"{count / KIB:.0f} KiB" if abs(count) >= KIB else f"{count} B"


def siege(place, row, server, begin, honest, *, connections, allowance=0, why="", after=True, hold=None):
    """The whole of a row about memory and fairness: honest requests before, beside and after an attack, and memory all the
    while. `begin` starts attackers and answers a list of them; `honest` are the arguments of the honest client."""
    alone, _ = place.honest(server.at, *honest, count=25 if place.quick else 50)
    before, spent = server.memory(), server.cpu()
    peak, began = Peak(server), time.monotonic()
    attackers = begin()
    beside, codes = place.honest(server.at, *honest, count=50 if place.quick else 100)
    time.sleep(max(0, began + (hold or (6 if place.quick else 30)) - time.monotonic()))
    used = (server.cpu() - spent) / (time.monotonic() - began)
    told = [attacker.end() for attacker in attackers]
    most = peak.end()
    time.sleep(3 if place.quick else 45)
    left = server.memory()
    alone += place.honest(server.at, *honest, count=25 if place.quick else 50)[0]
    sent = sum(one.get("sent", 0) for one in told)
    judge(row, sent, (before, most, left), connections, allowance, why)
    refused = sum(code != 200 for code in codes)
    compare(row, alone, beside, refused)
    row.tell(f"server used {used:.2f} of a core")
    return told


def judge(row, sent, memory, connections, allowance, why):
    """Memory against the limits."""
    before, most, left = memory
    grown = most - before
    limit = max(BYTES_A_BYTE * sent, BYTES_A_CONNECTION * connections) + allowance
    told = f"{size(sent)} sent, memory {size(before)} / {size(most)} / {size(left)}"
    told += f", {max(0, grown) / sent:.0f} held for each byte" if sent else ""
    row.check(grown <= limit, told, f"+{size(limit)}{f' ({why})' if why else ''}")


def compare(row, alone, beside, refused):
    """Honest clients' times against the limit."""
    before, now = quantile(alone, 0.99), quantile(beside, 0.99)
    told = f"honest {quantile(alone, 0.5) * 1e3:.0f} -> {quantile(beside, 0.5) * 1e3:.0f} ms, "
    told += f"p99 {before * 1e3:.0f} -> {now * 1e3:.0f} ms ({now / before:.2f}x), {refused} of {len(beside)} failed"
    row.check(now <= SLOWER * before and refused == 0, told, f"p99 {SLOWER}x, none failed")
