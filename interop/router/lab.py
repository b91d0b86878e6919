"""The network of a trial, and the programs in it, for interop/router/run.

Two hosts of a LAN, 192.168.1.10 and 192.168.2.10; their router with two or three links of netlab, and `mpquic proxy client`;
`mpquic proxy server` at 45.33.0.1, where all links lead; and behind the server the targets, 45.33.32.10 and the networks from
45.33.40.0 on. Without the proxy, the LAN reaches the targets over the first link.
"""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "attacks"))
import rig  # noqa: E402

SERVER, TARGET = "45.33.0.1", "45.33.32.10"
NAME = "home.example"
OUTSIDE_V6 = "2606:4700::"
# The target's address on its cable: wireguard-go does not answer from other ones.
DIRECT = "45.33.31.10"
FIREWALL = """table inet trial {{
    chain dark {{
        type filter hook prerouting priority raw
        iifname {{ {} }} drop
    }}
}}
"""


class Link:
    """Mbit/s to the router and from it, the round trip in milliseconds, and what a scenario of netlab has besides."""

    def __init__(self, down, up, rtt, **more):
        self.down, self.up, self.rtt, self.more = down, up, rtt, more

    def __str__(self):
        more = "".join(f"{key} = {value}\n" for key, value in self.more.items())
        return (f"[[path]]\nrate_mbit = {self.down}\nowd_ms = {self.rtt / 2}\n{more}"
                f"[path.c2s]\nrate_mbit = {self.up}\n")


BASE = (Link(50, 10, 20), Link(20, 10, 60))
SLOW = (Link(4, 0.7, 40), Link(6, 2, 60))
MIXED_MTU = (Link(50, 10, 20, mtu=1500), Link(20, 10, 40, mtu=1430), Link(20, 10, 60, mtu=1280))
THREE = (Link(50, 10, 20), Link(20, 10, 60), Link(20, 10, 40))


class Lab:
    """The namespaces and programs of a row."""

    def __init__(self, settings, links):
        self.settings, self.links = settings, links
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="trial-"))
        self.env = {**os.environ, "XDG_STATE_HOME": str(self.directory / "state"), "XDG_RUNTIME_DIR": str(self.directory),
                    "HOME": str(self.directory), "NO_COLOR": "1"}
        self.processes, self.netlab = [], None
        self.near = self.far = None

    def __enter__(self):
        try:
            self.lay_links()
            self.lay_networks()
            self.targets()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(self, *_):
        self.end()

    def lay_links(self):
        file = self.directory / "links.toml"
        file.write_text("\n".join(map(str, self.links)))
        command = [self.settings.netlab, "up", file, "--in", "host", "--json", self.directory / "links.json", "--", "sleep", "infinity"]
        self.netlab = rig.Process(command, stdin=subprocess.DEVNULL)
        number = self.netlab.pid
        self.spaces = {"router": f"nl-c-{number}", "server": f"nl-s-{number}", "a": f"trial-a-{number}", "b": f"trial-b-{number}",
                       "target": f"trial-t-{number}"}
        end = time.monotonic() + 10
        last = f"p{len(self.links) - 1}s"
        while subprocess.run(["ip", "-n", self.spaces["server"], "addr", "show", "dev", last], capture_output=True).returncode:
            if time.monotonic() > end or self.netlab.process.poll() is not None:
                raise rig.Fault(f"netlab does not lay the links: {self.netlab.text(True)[-300:]}")
            time.sleep(0.1)
        time.sleep(0.3)

    def ip(self, space, text):
        """Runs lines of `ip` in a namespace."""
        subprocess.run(["ip", "-n", self.spaces[space], "-batch", "-"], input=text, text=True, check=True, capture_output=True)

    def join(self, one, device, address, other, far_device, far_address):
        """Two namespaces with a cable between."""
        subprocess.run(["ip", "link", "add", device, "netns", self.spaces[one], "type", "veth", "peer", "name", far_device, "netns",
                        self.spaces[other]], check=True)
        for space, name, own in ((one, device, address), (other, far_device, far_address)):
            self.ip(space, f"addr add {own} dev {name}\nlink set {name} up\nlink set lo up\n")

    def lay_networks(self):
        for space in ("a", "b", "target"):
            subprocess.run(["ip", "netns", "add", self.spaces[space]], check=True)
        for number, host in ((1, "a"), (2, "b")):
            self.join(host, "eth0", f"192.168.{number}.10/24", "router", f"lan{number}", f"192.168.{number}.1/24")
            self.ip(host, f"route add default via 192.168.{number}.1\n")
        self.join("server", "out", "45.33.31.1/24", "target", "eth0", f"{DIRECT}/24")
        self.ip("server", f"addr add {SERVER}/32 dev lo\nroute add 45.33.32.0/19 via {DIRECT}\nroute add 192.168.0.0/16 dev p0s\n")
        local = "".join(f"route add local {network} dev lo\n" for network in ("45.33.40.0/21", "45.33.48.0/23"))
        silent = "".join(f"route add blackhole {network}\n" for network in ("45.33.52.0/22", "45.33.56.0/21"))
        self.ip("target", f"addr add {TARGET}/32 dev lo\nroute add default via 45.33.31.1\n{local}{silent}")
        self.ip("router", "".join(f"route add default dev p{number}c metric {100 * number + 100}\n" for number in range(len(self.links))))
        for space in ("router", "server", "target"):
            self.run(space, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0")
        self.etc("router", "resolv.conf", "nameserver 192.0.2.53\n")
        self.etc("router", "hosts", f"{SERVER} {NAME}\n")

    def v6(self):
        """Gives the LAN, the router, the server and the target addresses of IPv6; the links have none. Answers the target's."""
        for space in ("router", "server"):
            self.run(space, "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
        for space, device, own in (("a", "eth0", "fd11::10"), ("router", "lan1", "fd11::1"), ("server", "out", f"{OUTSIDE_V6}1"),
                                   ("target", "eth0", f"{OUTSIDE_V6}2")):
            self.ip(space, f"addr add {own}/64 dev {device} nodad\n")
        self.ip("a", "route add default via fd11::1\n")
        self.ip("target", f"route add default via {OUTSIDE_V6}1\n")
        return f"{OUTSIDE_V6}2"

    def etc(self, space, name, text):
        """A file that stands in the place of /etc/NAME for programs in the namespace."""
        folder = pathlib.Path("/etc/netns") / self.spaces[space]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
        return folder / name

    def run(self, space, *command):
        return subprocess.run(["ip", "netns", "exec", self.spaces[space], *map(str, command)], check=True, capture_output=True, text=True,
                              env=self.env).stdout

    def start(self, space, *command, **more):
        """Starts a command in a namespace, its output and its errors in one file."""
        process = rig.Process(["ip", "netns", "exec", self.spaces[space], *command], together=True, env=self.env, cwd=self.directory, **more)
        self.processes.append(process)
        return process

    def targets(self):
        for kind in ("tcp", "udp"):
            self.start("target", sys.executable, HERE / "targets.py", kind).wait_for("ready")

    def host(self, space, work, **arguments):
        """Starts a work of hosts.py on a host of the LAN; `told` waits for its answer."""
        return self.start(space, sys.executable, HERE / "hosts.py", work, json.dumps(arguments))

    def do(self, space, work, **arguments):
        return told(self.host(space, work, **arguments))

    def serve(self, *options, wait=True):
        """Starts the server. `pin` becomes its fingerprint, unless it has a certificate of the row."""
        users = self.directory / "users"
        users.write_text("basic van:wonderland\n")
        users.chmod(0o600)
        self.far = self.start("server", self.settings.binary, "proxy", "server", "--credentials", users, "--listen", f"{SERVER}:4433",
                              "--status-socket", self.directory / "proxy-server.sock", *options)
        if "--cert" in options:
            self.far.wait_for("listening on")
        elif wait:
            self.pin = self.far.wait_for(r"sha256:[0-9a-f:]+")[0].decode()
        return self.far

    def local(self, *numbers):
        """Options for paths over these links, or over all."""
        return [word for number in numbers or range(len(self.links)) for word in ("--local", f"p{number}c")]

    def client(self, *options, url=f"https://{SERVER}:4433", wait=20, local=None):
        """Starts the client with a device."""
        local = self.local() if local is None else local
        self.near = self.start("router", self.settings.binary, "proxy", "client", "--credentials", self.directory / "users", "--pin", self.pin,
                               "--tun", "--status-socket", self.directory / "proxy-client.sock", *local, *options, url)
        if wait:
            self.near.wait_for("tun on", wait)
        return self.near

    def proxy(self, server=(), client=(), warm=3, local=None):
        """Server and client, whose paths have carried data for some seconds."""
        self.serve(*server)
        self.client(*client, local=local)
        time.sleep(1)
        if warm:
            self.do("a", "downloads", count=1, seconds=warm)

    def status(self, side="client"):
        """What `mpquic proxy status` says."""
        return json.loads(self.run("router" if side == "client" else "server", self.settings.binary, "proxy", "status", "--json",
                                   self.directory / f"proxy-{side}.sock"))

    def paths(self):
        """The paths of the client's connection that are open."""
        with contextlib.suppress(subprocess.CalledProcessError, json.JSONDecodeError):
            return [path for connection in self.status()["connections"] for path in connection["paths"]
                    if path["state"] in ("active", "backup")]
        return []

    def wait_for_paths(self, count, seconds=15):
        """How long it takes until this many paths are open; `None` if they do not open."""
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            if len(self.paths()) >= count:
                return time.monotonic() - began
            time.sleep(0.2)
        return None

    def dark(self, *numbers):
        """From now on nothing passes over these links, silently; over the others everything does."""
        for space, end in (("router", "c"), ("server", "s")):
            rules = "table inet trial\ndelete table inet trial\n"
            if numbers:
                rules += FIREWALL.format(", ".join(f"p{number}{end}" for number in numbers))
            subprocess.run(["ip", "netns", "exec", self.spaces[space], "nft", "-f", "-"], input=rules, text=True, check=True, capture_output=True)

    def end(self):
        for process in reversed(self.processes):
            if process.process.poll() is None:
                process.process.terminate()
        for process in self.processes:
            process.stop()
        if self.netlab:
            # netlab ends what still runs in its own namespaces.
            self.netlab.stop()
            for space in self.spaces.values():
                subprocess.run(["ip", "netns", "del", space], capture_output=True)
                shutil.rmtree(pathlib.Path("/etc/netns") / space, ignore_errors=True)
        if self.settings.keep:
            self.keep()
        shutil.rmtree(self.directory, ignore_errors=True)

    def keep(self):
        """Keeps what the proxy's sides have said."""
        for name, process in (("server", self.far), ("client", self.near)):
            if process:
                (pathlib.Path(self.settings.keep) / f"{self.settings.row}.{name}.log").write_text(process.said())


def told(process, seconds=900):
    """The answer of a work on a host."""
    if process.wait(seconds) is None:
        process.stop()
        raise rig.Fault("a host does not come to an end")
    lines = process.said().strip().splitlines()
    if process.process.returncode != 0 or not lines:
        raise rig.Fault(f"a host's work failed: {process.said()[-300:]}")
    return json.loads(lines[-1])


def kill(process):
    """Ends a program by SIGKILL."""
    process.process.send_signal(signal.SIGKILL)
    process.process.wait()
