"""Rows about sizes: payloads, fragments, links of unlike MTUs, and protocols with tunnels inside."""

import json
import time

from lab import BASE, MIXED_MTU, TARGET, Lab, told
from rows_fair import SHARE
from trial import check_call, rate, row

# Around the limits of links with 1280, 1430 and 1500 bytes, and of the device with 1400.
SIZES = (1200, 1210, 1232, 1252, 1280, 1340, 1350, 1372, 1373, 1400, 1450, 1472)
FRAGMENTED = (*SIZES, 1500, 1600, 2000, 4000, 8000)


def pieces(found):
    """The sizes whose payloads did not all come, as text."""
    return " ".join(f"{one['size']}>{one['answer']}:{one['answers']}/3" for one in found) or "none"


def check_sizes(row, lab, name):
    """All sizes with and without DF: each passes, or the host learns that it does not."""
    both = lab.do("a", "sizes", pairs=[(size, size) for size in FRAGMENTED], fragment=True)
    lost = [one for one in both if one["answers"] < 3]
    row.check(not lost, f"{name}: without DF, lost of {len(both)} sizes to {FRAGMENTED[-1]}: {pieces(lost)}", "none")
    whole = lab.do("b", "sizes", pairs=[(size, size) for size in SIZES], fragment=False)
    silent = [one for one in whole if one["answers"] < 3 and not one["told"]]
    told_of = [one["size"] for one in whole if one["told"]]
    row.check(not silent, f"with DF, silently lost: {pieces(silent)}", "none")
    small = [one for one in whole if one["size"] <= 1350 and one["answers"] < 3]
    row.check(not small, f"lost up to 1350: {pieces(small)}; told of too big: {told_of}", "none lost")


@row("sizes-mixed-mtu", "6 7")
def sizes_mixed(row, settings):
    with Lab(settings, MIXED_MTU) as lab:
        lab.proxy()
        row.tell(f"{len(lab.paths())} paths")
        check_sizes(row, lab, "MTU 1500, 1430, 1280")


for place, size in enumerate((1500, 1430, 1280)):
    def alone(result, settings, place=place, size=size):
        with Lab(settings, MIXED_MTU) as lab:
            lab.serve()
            lab.client(local=lab.local(place))
            lab.do("a", "downloads", count=1, seconds=2)
            check_sizes(result, lab, f"only MTU {size}")

    row(f"sizes-mtu-{size}", "6 7")(alone)


@row("fragments", "7")
def fragments(row, settings):
    """Large payloads in one direction, small ones in the other; and large pings."""
    with Lab(settings, BASE) as lab:
        lab.proxy()
        large = (1373, 1400, 1472, 1600, 2000, 8000, 30000, 60000)
        up = lab.do("a", "sizes", pairs=[(size, 100) for size in large], fragment=True)
        down = lab.do("a", "sizes", pairs=[(100, size) for size in large], fragment=True)
        pings = lab.do("a", "ping", sizes=[56, 1350, 1372, 1400, 1472, 1972, 8000])
    for way, found in (("to the target", up), ("back", down)):
        lost = [one for one in found if one["answers"] < 3]
        row.check(not lost, f"{way}, lost: {pieces(lost)}", "none of 1373 to 60000")
    lost = {size: count for size, count in pings.items() if count < 3}
    row.check(not lost, f"ping, lost: {' '.join(f'{size}:{count}/3' for size, count in lost.items()) or 'none'}", "none of 56 to 8000")


@row("sizes-ipv6", "6 7")
def sizes_v6(row, settings):
    """Payloads of all sizes over IPv6, both ways."""
    with Lab(settings, MIXED_MTU) as lab:
        target = lab.v6()
        lab.proxy()
        check_ways(row, lab, target)


def check_ways(row, lab, target, told=False):
    """Payloads of all sizes to a target, and answers of all sizes. If the host must be `told` of an MTU, its first payload may be lost."""
    large = (*SIZES, 1453, 1473, 1600, 2000, 8000, 30000, 60000)
    up = lab.do("a", "sizes", pairs=[(size, 100) for size in large], fragment=True, target=target)
    down = lab.do("a", "sizes", pairs=[(100, size) for size in large], fragment=True, target=target)
    for way, found in (("to the target", up), ("back", down)):
        lost = sum(3 - one["answers"] for one in found)
        row.check(lost <= (1 if told else 0), f"{way}, lost: {pieces([one for one in found if one['answers'] < 3])}",
                  "one payload" if told else "none of 1200 to 60000")


@row("lan-mtu-1300", "6 7")
def narrow(row, settings):
    """The router's way to a host has a smaller MTU than the host knows of, and than the device."""
    with Lab(settings, BASE) as lab:
        target = lab.v6()
        lab.ip("router", "route replace 192.168.1.0/24 dev lan1 src 192.168.1.1 mtu lock 1300\nroute replace fd11::/64 dev lan1 metric 256 mtu lock 1300\n")
        lab.proxy(warm=0)
        check_ways(row, lab, TARGET)
        check_ways(row, lab, target, told=True)
        flow = lab.do("a", "downloads", count=1, seconds=8)[0]
    row.check(not flow["error"] and rate(flow["bytes"], 8) >= SHARE * 60, f"TCP download {rate(flow['bytes'], 8):.1f} Mbit/s", f"{SHARE * 60:.0f}")


@row("lan-mtu-9000", "6 7")
def jumbo(row, settings):
    """A host with jumbo frames learns the MTU of the device."""
    with Lab(settings, BASE) as lab:
        target = lab.v6()
        for space, device in (("a", "eth0"), ("router", "lan1")):
            lab.run(space, "ip", "link", "set", device, "mtu", "9000")
        lab.proxy()
        for address in (TARGET, target):
            whole = lab.do("a", "sizes", pairs=[(size, size) for size in (1400, 1473, 4000, 8000)], fragment=False, target=address)
            small, *others = whole
            row.check(small["answers"] == 3, f"{address}, with DF: 1400 has {small['answers']} of 3 answers", "3")
            row.check(all(one["mtu"] == 1500 for one in others), f"MTU told: {[one['mtu'] for one in others]}", "1500")
            check_ways(row, lab, address, told=True)


@row("link-joins", "6")
def joins(row, settings):
    """A link with a smaller MTU comes and goes while a flow of 1300 bytes is on a good one."""
    with Lab(settings, MIXED_MTU) as lab:
        lab.serve()
        lab.run("router", "ip", "link", "set", "p2c", "down")
        lab.client(local=lab.local(0, 2))
        lab.do("a", "downloads", count=1, seconds=2)
        flow = lab.host("a", "call", seconds=32, per_second=100, size=1300, port=9001)
        for turn in range(3):
            time.sleep(4)
            come(lab, 2)
            time.sleep(5)
            lab.run("router", "ip", "link", "set", "p2c", "down")
        found = told(flow)
    check_call(row, found, 0, silence=0.1)


def come(lab, number, device=None):
    """A link that was down is there again, with the routes that netlab gave it."""
    device = device or f"p{number}c"
    lab.ip("router", f"link set {device} up\nroute replace default dev {device} table {100 + number}\n"
                     f"route replace default dev {device} metric {100 * number + 100}\n")


@row("inner-quic", "6 7")
def inner_quic(row, settings):
    """A QUIC connection of the LAN through the proxy: its rate, of which one TCP connection has nearly all."""
    with Lab(settings, BASE) as lab:
        lab.proxy()
        inside(row, lab, SHARE * 70, SHARE * 20)


@row("inner-quic-mixed-mtu", "6 7")
def inner_quic_mixed(row, settings):
    with Lab(settings, MIXED_MTU) as lab:
        lab.proxy()
        inside(row, lab, 0.8 * 90, 0.8 * 30)


def inside(row, lab, down, up):
    """Runs `mpquic perf` and `mpquic get` from a LAN host to a target."""
    folder = lab.directory / "served"
    folder.mkdir()
    (folder / "file").write_bytes(bytes(20_000_000))
    for port, served in ((4433, "--perf"), (4434, folder)):
        server = lab.start("target", lab.settings.binary, "serve", served, "--listen", f"{TARGET}:{port}", "--state", lab.directory / "target")
        trust = ["--pin", server.wait_for(r"sha256:[0-9a-f:]+")[0].decode()]
    for test, wanted in (("download", down), ("upload", up)):
        perf = lab.start("a", lab.settings.binary, "perf", f"https://{TARGET}:4433", *trust, "--test", test, "--time", 8, "--interval", 0, "--json")
        code, got = perf.wait(60), megabits(perf.said(), test)
        if code != 0 or got is None:
            row.fail(f"perf {test}: exit {code}: {perf.said()[-150:].strip()}")
            continue
        row.check(got >= wanted, f"{test} {got:.1f} Mbit/s", f"{wanted:.0f}")
    began = time.monotonic()
    get = lab.start("a", lab.settings.binary, "get", f"https://{TARGET}:4434/file", *trust, "-q", "-o", lab.directory / "got")
    code = get.wait(60)
    row.check(code == 0, f"get of 20 MB: exit {code}, {rate(20_000_000, time.monotonic() - began):.1f} Mbit/s", "exit 0")


def megabits(text, test):
    """The rate in the lines of `mpquic perf --json`."""
    for line in text.splitlines():
        if line.startswith("{") and (told := json.loads(line))["event"] == "result":
            return told[test]["bits_per_second"] / 1e6
    return None


@row("wireguard", "7")
def wireguard(row, settings):
    """WireGuard from a LAN host, with its default MTU of 1420."""
    import wireguard

    program = wireguard.program()
    if not program:
        row.tell("wireguard-go is not there: set WIREGUARD_GO, or install Go")
        return
    with Lab(settings, BASE) as lab:
        lab.proxy()
        with wireguard.Tunnel(lab, program):
            pings = lab.do("a", "ping", sizes=[56, 1350, 1372, 1392], target=wireguard.FAR)
            lost = {size: count for size, count in pings.items() if count < 3}
            row.check(not lost, f"ping in it, lost: {lost or 'none'}", "none of 56 to 1392")
            down = lab.do("a", "downloads", count=1, seconds=10, target=wireguard.FAR)[0]
            up = lab.do("a", "uploads", count=1, seconds=10, target=wireguard.FAR, patience=20)[0]
        got, came = rate(down["bytes"], 10), rate(up["written"] if not up["error"] else 0, 10)
        row.check(got >= SHARE * 70 * 0.93, f"TCP in it {got:.1f} Mbit/s", f"{SHARE * 70 * 0.93:.0f} (90 % of what its headers leave)")
        row.check(came >= 0.8 * 20 * 0.93, f"upload {came:.1f} Mbit/s", f"{0.8 * 20 * 0.93:.0f}")
