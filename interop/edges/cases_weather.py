"""Cases about what happens to links: they lose their carrier, shrink, mark packets, and come and go."""

import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import re
import shutil
import socket
import struct
import subprocess
import time

from cases_links import quick, served
from links import CLIENT, SERVER, SERVER_V4, SERVER_V6, Links, entered
from place import case, expect, sha256, write

URL = f"https://{SERVER_V4}:4433"
# Of the kernel's ethtool.h.
SIOCETHTOOL, TX_CHECKSUMS, GENERIC_SEGMENTATION = 0x8946, 0x17, 0x24
DROP = """table inet weather {{
    chain to_server {{
        type filter hook input priority 0
        {0}
    }}
    chain to_client {{
        type filter hook output priority 0
        {1}
    }}
}}
"""


@contextlib.contextmanager
def weather(links, incoming, outgoing=""):
    """Rules for the datagrams that reach the server and those that leave it."""
    links.run(SERVER, "nft", "-f", "-", input=DROP.format(incoming, outgoing))
    try:
        yield
    finally:
        links.run(SERVER, "nft", "delete", "table", "inet", "weather")


@contextlib.contextmanager
def transfer(place, megabytes, rate, seconds=40):
    """A download over both links; when the block has ended, the file must come."""
    with served(place, f"{SERVER_V4}:4433") as links:
        content = write(place / "s/f", os.urandom(1 << 20) * megabytes)
        getting = place.begin_get("--rate", rate, "-o", place / "out", f"{URL}/f", namespace=CLIENT)
        time.sleep(1)
        expect(getting.process.poll() is None, f"it has ended too early: {getting.said()[-300:]}")
        yield links, getting
        code = getting.wait(seconds)
        text = getting.said()
        expect(code == 0 and sha256(place / "out") == sha256(content), f"exit {code}: {text[-400:]}")


def offload(interface, command, value):
    """A setting of an interface of this thread's namespace."""
    setting = ctypes.create_string_buffer(struct.pack("II", command, value))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCETHTOOL, struct.pack("16sP", interface.encode(), ctypes.addressof(setting)))


# A sendmsg that refuses datagrams which the kernel shall cut into segments, as kernels before 6.11 do at such interfaces.
REFUSING = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/udp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
ssize_t sendmsg(int socket, const struct msghdr *message, int flags) {
    for (struct cmsghdr *each = CMSG_FIRSTHDR(message); each; each = CMSG_NXTHDR((struct msghdr *)message, each))
        if (each->cmsg_level == IPPROTO_UDP && each->cmsg_type == UDP_SEGMENT) {
            creat(getenv("MPE_REFUSED"), 0600);
            errno = EIO;
            return -1;
        }
    return ((ssize_t(*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg"))(socket, message, flags);
}
"""


@case("GSO")
def interfaces_that_refuse_segmentation(place):
    """The interfaces make no checksums; besides, the system call refuses segments at both sides, if there is a C compiler."""
    source, library, refused = place / "refusing.c", place / "refusing.so", place / "refused"
    source.write_text(REFUSING)
    compiler = shutil.which("cc")
    if compiler:
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, capture_output=True)
        place.env.update(LD_PRELOAD=str(library), MPE_REFUSED=str(refused))
    with served(place, f"{SERVER_V4}:4433"):
        content = write(place / "s/f", os.urandom(1 << 20) * 5)
        for namespace in (CLIENT, SERVER):
            with entered(namespace):
                for interface in ("eth0", "eth1"):
                    offload(interface, TX_CHECKSUMS, 0)
                    offload(interface, GENERIC_SEGMENTATION, 0)
        expect(place.fetched(f"{URL}/f", namespace=CLIENT) == content.read_bytes(), "other content")
        expect(refused.exists() or not compiler, "no datagram had segments")


@case("ICMP")
def a_port_that_is_closed_for_two_seconds(place):
    for links_hit, rule in (("eth0", 'iifname "eth0" udp dport 4433 reject'), ("both", "udp dport 4433 reject")):
        with transfer(place, 10, "20M") as (links, getting):
            with weather(links, rule):
                time.sleep(2)
                expect(getting.process.poll() is None, f"{links_hit}: it has ended: {getting.said()[-300:]}")


def datagrams(namespace, interface):
    """How many packets an interface has received."""
    with entered(namespace):
        for line in pathlib.Path("/proc/thread-self/net/dev").read_text().splitlines():
            if line.strip().startswith(interface + ":"):
                return int(line.split(":")[1].split()[1])
    raise LookupError(interface)


@case("carrier")
def a_carrier_that_is_lost_and_comes_back(place):
    for namespace in (SERVER, CLIENT):
        with transfer(place, 16, "20M") as (links, _):
            links.run(namespace, "ip", "link", "set", "eth0", "down")
            time.sleep(2)
            links.run(namespace, "ip", "link", "set", "eth0", "up")
            if namespace == CLIENT:
                links.run(CLIENT, "ip", "route", "add", "default", "via", "10.77.0.2", "dev", "eth0", "metric", "100")
            time.sleep(1)
            before = datagrams(CLIENT, "eth0")
            time.sleep(1)
            expect(datagrams(CLIENT, "eth0") - before > 20, f"{namespace}: a second later nothing comes over the first link")


@case("carrier")
def bytes_of_a_link_that_is_gone(place):
    with served(place, f"{SERVER_V4}:4433") as links:
        size = write(place / "s/f", os.urandom(16 << 20)).stat().st_size
        getting = place.begin_get("--rate", "20M", "--json", "-o", place / "out", f"{URL}/f", namespace=CLIENT)
        time.sleep(2)
        busier = max(("eth0", "eth1"), key=lambda interface: datagrams(CLIENT, interface))
        links.run(CLIENT, "ip", "link", "set", busier, "down")
        code = getting.wait(40)
        text = getting.said()
        expect(code == 0, f"exit {code}: {text[-400:]}")
        result = json.loads(text.strip().splitlines()[-1])
        paths = [path["bytes_received"] for path in result["paths"]]
        expect(sum(paths) >= size, f"paths carried {paths} bytes of {size}")
        received = {link["link"]: link["bytes_received"] for link in result["links"]}
        expect(sorted(received) == ["eth0", "eth1"], f"links: {received}")
        expect(received[busier] > size / 10 and sum(received.values()) > sum(paths), f"{received} and {paths}")


@case("dead link")
def a_first_link_that_is_dead(place):
    with served(place, f"{SERVER_V4}:4433") as links, weather(links, 'iifname "eth0" drop', 'oifname "eth0" drop'):
        quick(place, f"{URL}/a.txt", 2)


@case("MTU")
def links_that_carry_1000_bytes(place):
    for numbers in ((0,), (1,)):
        with served(place, f"{SERVER_V4}:4433") as links:
            content = write(place / "s/f", os.urandom(1 << 20) * 5)
            links.mtu(1000, numbers)
            expect(place.fetched(f"{URL}/f", namespace=CLIENT) == content.read_bytes(), "other content")
            links.mtu(1500, numbers)
        with transfer(place, 10, "40M") as (links, _):
            links.mtu(1000, numbers)
            time.sleep(1)


@case("ECN")
def links_that_drop_or_mark_ecn(place):
    marks = {"dropped": ("ip ecn != not-ect udp dport 4433 drop", "ip ecn != not-ect udp sport 4433 drop"),
             "marked": ("udp dport 4433 ip ecn set ce", "udp sport 4433 ip ecn set ce"),
             "cleared": ("udp dport 4433 ip ecn set not-ect", "udp sport 4433 ip ecn set not-ect")}
    for name, rules in marks.items():
        with served(place, f"{SERVER_V4}:4433") as links, weather(links, *rules):
            quick(place, f"{URL}/a.txt", 3)
        with transfer(place, 10, "40M") as (links, _):
            with weather(links, *rules):
                time.sleep(4)


@case("wildcard")
def answers_from_the_address_that_was_asked(place):
    with served(place, "[::]:4433"):
        for address in (SERVER_V4, "10.77.0.2", "10.77.1.2", f"[{SERVER_V6}]", "[2001:db8:77:0::2]"):
            quick(place, f"https://{address}:4433/a.txt", 2)


@case("no IPv6")
def machines_without_ipv6(place):
    with Links() as links:
        for namespace in (CLIENT, SERVER):
            links.run(namespace, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
        write(place / "s/a.txt", b"hello")
        place.serve(place / "s", namespace=SERVER, listen="[::]:4433")
        quick(place, f"{URL}/a.txt", 2)
        links.etc(CLIENT, "hosts", f"{SERVER_V6} two.example\n{SERVER_V4} two.example\n127.0.0.1 localhost\n")
        quick(place, "https://two.example:4433/a.txt", 2)
        code, took, text = place.get("-q", "-o", "/dev/null", f"https://[{SERVER_V6}]:4433/a.txt", namespace=CLIENT)
        expect(code == 5 and took < 12, f"an IPv6 server: exit {code} after {took:.1f} s: {text[-200:]}")


@case("flapping")
def an_address_that_goes_and_comes_40_times(place):
    with transfer(place, 40, "20M", seconds=60) as (links, getting):
        for _ in range(40):
            links.run(CLIENT, "ip", "addr", "del", "10.77.1.1/24", "dev", "eth1")
            time.sleep(0.1)
            links.run(CLIENT, "ip", "addr", "add", "10.77.1.1/24", "dev", "eth1")
            links.run(CLIENT, "ip", "route", "add", "default", "via", "10.77.1.2", "dev", "eth1", "metric", "200")
            time.sleep(0.1)
        time.sleep(2)
        open_files = len(os.listdir(f"/proc/{getting.pid}/fd"))
        expect(open_files < 40, f"{open_files} descriptors are open")
        before = datagrams(CLIENT, "eth1")
        time.sleep(1)
        expect(datagrams(CLIENT, "eth1") - before > 20, "in the end nothing comes over the second link")


@case()
def links_that_are_all_down(place):
    """At the start, and in the middle for longer than a connection lives: afterwards both carry, and a backup stands by.

    10 Mbit/s fit on either link, so the sender may leave the link with the longer round trip unused. Each link
    therefore has to carry the file alone, without a wait for a new connection.
    """

    def set_links(links, state, *numbers):
        for number in numbers:
            links.run(CLIENT, "ip", "link", "set", f"eth{number}", state)
            if state == "up":
                via = ("via", f"10.77.{number}.2", "dev", f"eth{number}", "metric", str(100 * (number + 1)))
                links.run(CLIENT, "ip", "route", "replace", "default", *via)

    def carried(seconds):
        before = [datagrams(CLIENT, f"eth{number}") for number in (0, 1)]
        time.sleep(seconds)
        return [datagrams(CLIENT, f"eth{number}") - one for number, one in enumerate(before)]

    with served(place, f"{SERVER_V4}:4433") as links:
        write(place / "s/f", bytes(30 << 20))
        set_links(links, "down", 0, 1)
        getting = place.begin_get("-q", "-o", "/dev/null", "--rate", "10M", f"{URL}/f", namespace=CLIENT)
        expect(getting.wait(3) is None, f"it has ended: {getting.said()[-300:]}")
        for repeated in (False, True):
            if repeated:
                set_links(links, "down", 0, 1)
                time.sleep(40)
            set_links(links, "up", 1)
            time.sleep(1)
            set_links(links, "up", 0)
            time.sleep(6 if repeated else 2)
            for number in (1, 0):
                set_links(links, "down", number)
                time.sleep(0.5)
                counts = carried(1)
                set_links(links, "up", number)
                time.sleep(2)
                when = "later" if repeated else "at the start"
                expect(counts[1 - number] > 40, f"datagrams in a second without link {number}, {when}: {counts}")
        getting.end()
        set_links(links, "down", 0, 1)
        getting = place.begin_get("-q", "-o", "/dev/null", "--rate", "10M", "--backup", "eth1", f"{URL}/f", namespace=CLIENT)
        time.sleep(1)
        set_links(links, "up", 1)
        time.sleep(1)
        set_links(links, "up", 0)
        time.sleep(2)
        first, backup = carried(1)
        expect(first > 40 and backup < 20, f"with a backup: {first} and {backup} datagrams within a second")


@case()
def links_without_carrier_at_the_start(place):
    """The other ends are down: addresses and routes stay, and lead nowhere. Afterwards each link carries alone."""
    with served(place, f"{SERVER_V4}:4433") as links:
        write(place / "s/f", bytes(30 << 20))
        for number in (0, 1):
            links.run(SERVER, "ip", "link", "set", f"eth{number}", "down")
        getting = place.begin_get("-q", "-o", "/dev/null", "--rate", "10M", f"{URL}/f", namespace=CLIENT)
        expect(getting.wait(3) is None, f"it has ended: {getting.said()[-300:]}")
        for number in (0, 1):
            links.run(SERVER, "ip", "link", "set", f"eth{number}", "up")
        time.sleep(3)
        for number in (1, 0):
            links.run(SERVER, "ip", "link", "set", f"eth{number}", "down")
            time.sleep(0.5)
            before = datagrams(CLIENT, f"eth{1 - number}")
            time.sleep(1)
            count = datagrams(CLIENT, f"eth{1 - number}") - before
            links.run(SERVER, "ip", "link", "set", f"eth{number}", "up")
            time.sleep(2)
            expect(count > 40, f"{count} datagrams in a second without link {number}")
        getting.end()


@case("bridges")
def bridges_to_containers(place):
    with served(place, f"{SERVER_V4}:4433") as links:
        for number in range(8):
            links.run(CLIENT, "ip", "link", "add", f"docker{number}", "type", "bridge")
            links.run(CLIENT, "ip", "addr", "add", f"172.{17 + number}.0.1/16", "dev", f"docker{number}")
            links.run(CLIENT, "ip", "link", "set", f"docker{number}", "up")
        quick(place, f"{URL}/a.txt", 1.5)
        code, _, text = place.get("--json", "-o", "/dev/null", f"{URL}/a.txt", namespace=CLIENT)
        expect(code == 0 and not re.search(r'"172\.', text), f"a path begins at a bridge: {text[-500:]}")


@case()
def a_server_that_is_killed_under_load(place):
    """The server's system limits its ICMP messages, and the packets of a download ask for most of them at first."""
    with Links() as links:
        for number in (0, 1):
            for namespace in (CLIENT, SERVER):
                links.run(namespace, "tc", "qdisc", "add", "dev", f"eth{number}", "root", "tbf", "rate", "40mbit", "burst", "16kb", "latency", "50ms")
        write(place / "s/f", bytes(60 << 20))
        for options, most in ((["--retry-time", "3"], 20), (["--retry-time", "3", "--local", "eth0"], 20)):
            server = place.serve(place / "s", namespace=SERVER, listen=f"{SERVER_V4}:4433")
            getting = place.begin_get("-o", place / "out", *options, f"{URL}/f", namespace=CLIENT)
            time.sleep(1)
            server.process.kill()
            began = time.monotonic()
            code = getting.wait(40)
            took, text = time.monotonic() - began, getting.said()
            expect(code in (5, 8) and "nobody listens" in text and took < most, f"{options}: exit {code} after {took:.1f} s: {text[-300:]}")
