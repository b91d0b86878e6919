"""Two network namespaces with two links between them, for interop/edges/run."""

import contextlib
import ctypes
import json
import pathlib
import shutil
import subprocess

CLIENT, SERVER = "mpe-client", "mpe-server"
CLONE_NEWNET = 0x40000000
SERVER_V4, SERVER_V6 = "10.77.9.9", "2001:db8:77:9::9"
# Of each link `n`: 10.77.n.1 and 2001:db8:77:n::1 at the client, .2 at the server. The server has 10.77.9.9 and
# 2001:db8:77:9::9 besides, which both links lead to.
FIREWALL = """table inet dead {{
    chain to_server {{
        type filter hook input priority 0
        iifname "eth{0}" udp dport 4433 limit rate over 1/hour burst 1 packets drop
    }}
    chain to_client {{
        type filter hook output priority 0
        oifname "eth{0}" udp sport 4433 limit rate over 1/hour burst 1 packets drop
    }}
}}
"""


def inside(namespace, command):
    return ["ip", "netns", "exec", namespace, *command] if namespace else command


@contextlib.contextmanager
def entered(namespace):
    """Sockets that this thread makes meanwhile are in the namespace, and stay there."""
    system = ctypes.CDLL(None, use_errno=True)

    def enter(file):
        if system.setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns {namespace}")

    with open("/proc/thread-self/ns/net") as before, open(f"/run/netns/{namespace}") as there:
        enter(there)
        try:
            yield
        finally:
            enter(before)


class Links:
    def run(self, namespace, *command, **more):
        return subprocess.run(inside(namespace, list(command)), check=True, capture_output=True, text=True, **more).stdout

    def address(self, namespace, number, address, verb="add", *more):
        self.run(namespace, "ip", "addr", verb, address, "dev", f"eth{number}", *(["nodad"] if verb == "add" else []), *more)

    def etc(self, namespace, name, text):
        """A file inside of a namespace; `ip netns exec` puts it in the place of /etc/NAME."""
        folder = pathlib.Path("/etc/netns") / namespace
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)

    def link_local(self, namespace, number):
        links = json.loads(self.run(namespace, "ip", "-j", "-6", "addr", "show", "dev", f"eth{number}", "scope", "link"))
        return next(address["local"] for link in links for address in link.get("addr_info", []) if "local" in address)

    def mtu(self, size, numbers=(0, 1)):
        for number in numbers:
            for namespace in (CLIENT, SERVER):
                self.run(namespace, "ip", "link", "set", f"eth{number}", "mtu", str(size))

    def let_one_datagram_pass(self, number):
        self.run(SERVER, "nft", "-f", "-", input=FIREWALL.format(number))

    def let_all_pass(self):
        self.run(SERVER, "nft", "delete", "table", "inet", "dead")

    def remove(self):
        for namespace in (CLIENT, SERVER):
            subprocess.run(["ip", "netns", "del", namespace], capture_output=True)
            shutil.rmtree(pathlib.Path("/etc/netns") / namespace, ignore_errors=True)

    def __enter__(self):
        self.remove()
        for namespace in (CLIENT, SERVER):
            self.run(None, "ip", "netns", "add", namespace)
            self.run(namespace, "ip", "link", "set", "lo", "up")
        for number in (0, 1):
            self.run(None, "ip", "link", "add", f"mpec{number}", "type", "veth", "peer", "name", f"mpes{number}")
            for namespace, name, end in ((CLIENT, f"mpec{number}", 1), (SERVER, f"mpes{number}", 2)):
                device = f"eth{number}"
                self.run(None, "ip", "link", "set", name, "netns", namespace, "name", device)
                self.run(namespace, "sysctl", "-qw", f"net.ipv6.conf.{device}.accept_dad=0",
                         f"net.ipv4.conf.{device}.rp_filter=0", "net.ipv4.conf.all.rp_filter=0")
                self.run(namespace, "ip", "addr", "add", f"10.77.{number}.{end}/24", "dev", device)
                self.run(namespace, "ip", "link", "set", device, "up")
                self.address(namespace, number, f"2001:db8:77:{number}::{end}/64")
        self.run(SERVER, "ip", "addr", "add", "10.77.9.9/32", "dev", "lo")
        self.run(SERVER, "ip", "addr", "add", "2001:db8:77:9::9/128", "dev", "lo")
        for number in (0, 1):
            metric = ["metric", str(100 * (number + 1))]
            self.run(CLIENT, "ip", "route", "add", "default", "via", f"10.77.{number}.2", "dev", f"eth{number}", *metric)
            self.run(CLIENT, "ip", "-6", "route", "add", "default", "via", f"2001:db8:77:{number}::2", "dev", f"eth{number}", *metric)
        return self

    def __exit__(self, *_):
        self.remove()
