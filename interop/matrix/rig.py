"""Runs a client and a server, and maybe the relay between them, for one cell of the matrix."""

import glob
import json
import os
import re
import signal
import subprocess
import time

from qlog import Log

# Seconds a program may take to start, to end when it is told to, and a client in all.
START, END, LIMIT = 10, 5, 120
# Seconds our server may take to end: what has no end yet is given up after 30.
SERVER_END = 35
# In what our programs say: Rust's words for a panic, and what is logged as an error.
WRONG = re.compile(r"panicked at|^\S+ +ERROR ", re.MULTILINE)
# HTTP/0.9 over QUIC, which all peers speak.
HQ = "hq-interop"


class Failed(Exception):
    """The cell did not pass."""


class Program:
    """A process whose output goes to files."""

    def __init__(self, cell, name, command):
        self.name = name
        self.file = os.path.join(cell.logs, name)
        environment = dict(os.environ, NO_COLOR="1")
        environment.setdefault("RUST_LOG", "warn,mpquic=info")
        environment["QLOGDIR"] = cell.qlog if command[0] == cell.tool else ""
        # What one client learnt, such as a token that spares it a Retry, is not for the next one.
        environment["XDG_STATE_HOME"] = cell.qlog + ".state"
        with open(os.path.join(cell.logs, name + ".command"), "w", encoding="utf-8") as out:
            print(*command, file=out)
        with open(self.file, "wb") as out, open(self.file + ".err", "wb") as err:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=err, env=environment, stdin=subprocess.DEVNULL
            )

    def output(self):
        with open(self.file, encoding="utf-8", errors="replace") as lines:
            return lines.read()

    def errors(self):
        with open(self.file + ".err", encoding="utf-8", errors="replace") as lines:
            return lines.read()

    def address(self):
        """Where it listens, once it does."""
        deadline = time.monotonic() + START
        while time.monotonic() < deadline:
            for line in self.output().splitlines():
                if line.startswith("listening on "):
                    return line.removeprefix("listening on ").strip()
            if self.process.poll() is not None:
                break
            time.sleep(0.02)
        raise Failed(f"the {self.name} did not start")

    def reports(self):
        """The JSON objects it printed."""
        return [json.loads(line) for line in self.output().splitlines() if line.startswith("{")]

    def stop(self, limit=END):
        """Has it end, and returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(limit)
            except subprocess.TimeoutExpired:
                self.process.kill()
        return self.process.wait()


class Cell:
    """A peer, a case and a direction: mpquic serves, or mpquic fetches."""

    def __init__(self, tools, peer, direction, logs, seed):
        self.tool, self.relay_program, self.files = tools.mpquic, tools.relay, tools.files
        self.peer, self.direction, self.logs, self.seed = peer, direction, logs, seed
        self.we_serve = direction == "serve"
        self.qlog = os.path.join(logs, "qlog")
        self.received = os.path.join(logs, "received")
        for directory in (logs, self.qlog, self.received):
            os.makedirs(directory)
        self.server = self.client = self.relay = None

    def run(self, names, server=(), client=(), relay=None, **options):
        """Serves, and fetches these files, which must arrive unchanged.

        `server` and `client` are further options of these two, whosever they are. Options:
        `certificate` (the files' prefix), `ip`, `connections`, `early`, `alpn` (the protocol of both
        sides), `part` (first and last byte that a peer's client asks for of each file), and `ours`,
        further options of mpquic.
        """
        try:
            self._run(names, list(server), list(client), relay, options)
            self._judge()
        finally:
            for program in (self.client, self.server, self.relay):
                if program is not None:
                    program.stop()

    def _judge(self):
        """Whichever of the programs is ours has ended in order, and had nothing to complain of."""
        ours = self.server if self.we_serve else self.client
        code = ours.stop(SERVER_END)
        if code != 0:
            raise Failed(f"our {ours.name} ended with {code}")
        wrong = WRONG.search(ours.errors())
        if wrong:
            raise Failed(f"our {ours.name} said: {wrong.string[wrong.start():].splitlines()[0]}")
        if self.relay is not None:
            self.relay.stop()

    def _run(self, names, server, client, relay, options):
        command = self._server_command(options) + server
        if self.we_serve:
            command += options.get("ours", [])
        self.server = Program(self, "server", command)
        address = self.server.address()
        if relay is not None:
            command = [self.relay_program, "--to", address, "--seed", str(self.seed)]
            command += [str(option) for option in relay]
            self.relay = Program(self, "relay", command)
            address = self.relay.address()
        urls = [f"https://{address}/{name}" for name in names]
        command = self._client_command(urls, options) + client
        if not self.we_serve:
            command += options.get("ours", [])
        self.client = Program(self, "client", command)
        try:
            code = self.client.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            raise Failed(f"no end after {LIMIT} s") from None
        if code != 0:
            raise Failed(f"the client ended with {code}")
        for name in names:
            self._compare(name, options.get("part"))
        if not self.we_serve:
            return
        # Our log is complete when we have heard of the end.
        deadline = time.monotonic() + END
        while time.monotonic() < deadline:
            logs = self.ours()
            if logs and all(log.named("connection_closed") for log in logs):
                break
            time.sleep(0.05)

    def _compare(self, name, part):
        with open(os.path.join(self.files, name), "rb") as file:
            original = file.read()
        if part:
            original = original[part[0] : part[1] + 1]
        try:
            with open(os.path.join(self.received, name), "rb") as file:
                same = file.read() == original
        except FileNotFoundError:
            same = False
        if not same:
            raise Failed(f"{name} arrived changed")

    def _server_command(self, options):
        prefix = options.get("certificate", "")
        certificate = os.path.join(self.files, prefix + "cert.pem")
        key = os.path.join(self.files, prefix + "key.pem")
        listen = ["--listen", options.get("ip", "127.0.0.1") + ":0"]
        credentials = ["--cert", certificate, "--key", key]
        if self.we_serve:
            command = [self.tool, "serve", self.files, "--alpn", options.get("alpn", HQ)]
            return command + listen + credentials
        command = [self.peer.command, "server", "--dir", self.files] + listen + credentials
        return command + self._peers_protocol(options)

    def _client_command(self, urls, options):
        connections = options.get("connections", 1)
        if self.we_serve:
            command = [self.peer.command, "client", "--out", self.received]
            if connections > 1:
                command += ["--connections", str(connections)]
            if options.get("early"):
                command.append("--early-data")
            if "part" in options:
                command += ["--range", "{}-{}".format(*options["part"])]
            return command + self._peers_protocol(options) + urls
        command = [self.tool, "get", "--insecure", "--json", "--quiet"]
        command += ["--alpn", options.get("alpn", HQ), "--connect-timeout", "60", "--output-dir", self.received]
        if connections > 1:
            command.append("--reconnect")
        elif len(urls) > 1:
            command += ["--parallel", str(len(urls))]
        if options.get("early"):
            command.append("--early-data")
        return command + urls * connections

    @staticmethod
    def _peers_protocol(options):
        """Few peers speak another protocol, so only they know the option."""
        return ["--alpn", options["alpn"]] if "alpn" in options else []

    def ours(self):
        """Our logs, one per connection, in the order they were made."""
        # The endpoint has a log of its own, of what belongs to no connection.
        files = glob.glob(os.path.join(self.qlog, "*.sqlog"))
        files = [file for file in files if not os.path.basename(file).startswith("endpoint_")]
        return sorted((Log(file) for file in files), key=lambda log: log.began)

    def log(self):
        """Our log of the only connection."""
        logs = self.ours()
        self.expect(len(logs) == 1, f"one connection, not {len(logs)}")
        return logs[0]

    def relay_said(self, text):
        return text in self.relay.output()

    def relayed(self, what):
        """So many datagrams the relay `passed`, `lost`, `changed` or `swallowed`, or `returned`."""
        counts = self.relay.reports()
        self.expect(counts, "the relay told what it did")
        return counts[-1][what]

    def expect(self, condition, what):
        if not condition:
            raise Failed(f"not so: {what}")
