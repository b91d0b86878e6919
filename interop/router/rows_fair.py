"""Rows about flows beside each other: none starves, none waits, none hides what it cannot send."""

import itertools
import time

from lab import BASE, SLOW, Lab, told
from trial import check_call, check_names, check_opens, jain, ms, opening, quantile, rate, row

# The best that one TCP connection had on BASE: 67 of 70 Mbit/s.
SHARE = 0.9


def until(notes, moment):
    """The bytes of a transfer at a moment."""
    return max((total for at, total in notes if at <= moment), default=0)


def received(upload, since, end):
    """Bytes that the target had of an upload in this time, and the longest time without a byte."""
    notes = upload["received"]
    times = [since, *(at for at, _ in notes if since < at < end), end]
    return until(notes, end) - until(notes, since), max(later - earlier for earlier, later in zip(times, times[1:]))


def parallel(row, settings, count, seconds, links=BASE, gap=1.0, share=0.8):
    """Downloads at once: index of fairness, gaps, first bytes."""
    with Lab(settings, links) as lab:
        lab.proxy()
        flows = lab.do("a", "downloads", count=count, seconds=seconds)
    got = [flow["bytes"] for flow in flows]
    errors, silent = [flow["error"] for flow in flows if flow["error"]], sum(flow["first"] is None for flow in flows)
    total, whole = rate(sum(got), seconds), sum(link.down for link in links)
    row.check(total >= share * whole, f"{total:.1f} of {whole} Mbit/s", f"{100 * share:.0f} %")
    row.check(jain(got) >= 0.95, f"Jain {jain(got):.2f}", "0.95")
    longest = max(flow["gap"] if flow["first"] is not None else seconds for flow in flows)
    row.check(longest <= gap, f"gap p50 {ms(quantile([flow['gap'] for flow in flows], 0.5))} max {ms(longest)}", ms(gap))
    firsts = [flow["first"] if flow["first"] is not None else seconds for flow in flows]
    row.check(max(firsts) <= gap, f"first byte p50 {ms(quantile(firsts, 0.5))} max {ms(max(firsts))}", ms(gap))
    if errors or silent:
        row.fail(f"{silent} without a byte, errors {sorted(set(errors))}")


for number in (1, 4, 10, 20, 50):
    def downloads(result, settings, number=number):
        parallel(result, settings, number, 8)

    row(f"downloads-{number}", "4")(downloads)


@row("downloads-10-slow", "4")
def downloads_slow(row, settings):
    # A round of ten flows with 9 kB each takes 80 ms at 10 Mbit/s: a gap of 3 s is a queue, not the rate.
    parallel(row, settings, 10, 20, SLOW, gap=3.0, share=0.7)


@row("page-beside-30", "4")
def page(row, settings):
    with Lab(settings, BASE) as lab:
        lab.proxy()
        loads = lab.host("a", "downloads", count=30, seconds=12)
        time.sleep(3)
        page = lab.do("b", "page", count=30, size=100_000)
        told(loads)
    objects = page["objects"]
    # Six of 36 flows have a sixth of 70 Mbit/s: 3 MB in 2.1 s.
    row.check(page["seconds"] <= 4, f"page of 3 MB in {page['seconds']:.1f} s", "4 s (2.1 s is its fair share)")
    row.check(max(objects) <= 2 and not page["short"], f"objects p50 {ms(quantile(objects, 0.5))} max {ms(max(objects))}", "2 s")


@row("uploads-10", "4")
def uploads(row, settings):
    with Lab(settings, BASE) as lab:
        lab.proxy()
        flows = lab.do("a", "uploads", count=10, seconds=8)
    shares = [received(flow, flow["began"], flow["ended"]) for flow in flows if not flow["error"]]
    got = [count for count, _ in shares]
    total = rate(sum(got), 8)
    row.check(len(got) == len(flows), f"{len(got)} of {len(flows)} arrive", "all")
    row.check(total >= 0.8 * 20, f"{total:.1f} of 20 Mbit/s", "80 %")
    row.check(jain(got) >= 0.95, f"Jain {jain(got):.2f}", "0.95")
    longest = max((gap for _, gap in shares), default=8)
    row.check(longest <= 1, f"gap max {ms(longest)}", "1000 ms")


def opens_beside(row, settings, port, way):
    """New connections and names while a transfer fills the links."""
    with Lab(settings, BASE) as lab:
        lab.proxy()
        load = lab.host("a", way, count=1, seconds=14, port=port)
        time.sleep(2)
        names = lab.host("b", "names", seconds=10)
        opens = lab.do("b", "opens", seconds=10)
        names = told(names)
        load = told(load)[0]
    moved = load["written"] if way == "uploads" else load["bytes"]
    row.tell(f"{rate(moved, 14):.1f} Mbit/s {way[:-1]}")
    check_opens(row, opens, BASE)
    # The first byte comes a round trip later, and not behind the transfer.
    firsts = [one.get("first", 15) for one in opens]
    limit = opening(BASE) + 0.1
    row.check(max(firsts) <= limit, f"first byte p50 {ms(quantile(firsts, 0.5))} max {ms(max(firsts))}", ms(limit))
    check_names(row, names, 0.5)


for way, port in itertools.product(("uploads", "downloads"), (22, 443, 3389)):
    def beside(result, settings, way=way, port=port):
        opens_beside(result, settings, port, way)

    row(f"opens-beside-{way[:-1]}-{port}", "1")(beside)


RULES = {"bulk": 7001, "interactive": 7002, "real-time": 7003}


@row("classes", "1")
def classes(row, settings):
    """Each pair of classes, as rules name them, both ways: a transfer of each."""
    rules = [word for name, port in RULES.items() for word in ("--class", f"{name}=:{port}")]
    with Lab(settings, BASE) as lab:
        lab.proxy(client=rules)
        for way, (one, other) in itertools.product(("downloads", "uploads"), itertools.combinations(RULES, 2)):
            seconds = 8
            loads = [lab.host(host, way, count=1, seconds=seconds, port=RULES[name]) for host, name in (("a", one), ("b", other))]
            time.sleep(3)
            opens = lab.do("b", "opens", seconds=4)
            flows = [told(load)[0] for load in loads]
            if way == "uploads":
                got = [received(flow, flow["began"] + 1, flow["began"] + seconds)[0] for flow in flows]
            else:
                got = [flow["bytes"] for flow in flows]
            least = min(got) / max(1, sum(got))
            row.check(least >= 0.1, f"{way[:-1]} {one} {rate(got[0], seconds):.1f}, {other} {rate(got[1], seconds):.1f} Mbit/s", "10 % each")
            slow = [one.get("connect", 15) for one in opens]
            row.check(max(slow) <= opening(BASE), f"connect max {ms(max(slow))}", ms(opening(BASE)))


@row("ports-22-and-443", "1")
def ports(row, settings):
    """Transfers of port 22 and port 443 beside each other, without rules."""
    with Lab(settings, BASE) as lab:
        lab.proxy()
        for way in ("downloads", "uploads"):
            loads = [lab.host(host, way, count=1, seconds=8, port=port) for host, port in (("a", 22), ("b", 443))]
            flows = [told(load)[0] for load in loads]
            if way == "uploads":
                got = [received(flow, flow["began"] + 1, flow["began"] + 8)[0] for flow in flows]
                gap = max(received(flow, flow["began"] + 1, flow["began"] + 8)[1] for flow in flows)
            else:
                got, gap = [flow["bytes"] for flow in flows], max(flow["gap"] for flow in flows)
            row.check(min(got) >= 0.3 * sum(got), f"{way[:-1]}: 22 has {rate(got[0], 8):.1f}, 443 {rate(got[1], 8):.1f} Mbit/s", "30 % each")
            row.check(gap <= 1, f"gap {ms(gap)}", "1000 ms")


@row("udp-beside-tcp", "1")
def udp_beside_tcp(row, settings):
    """UDP of 30 Mbit/s in each class, to 20 Mbit/s of links, beside an upload: neither has all of it."""
    with Lab(settings, BASE) as lab:
        lab.proxy()
        for name, port in (("SIP", 5060), ("game", 9001), ("HTTP/3", 443)):
            load = lab.host("a", "uploads", count=1, seconds=8)
            flood = lab.host("b", "flood", seconds=8, megabits=30, port=port)
            opens = lab.do("b", "opens", seconds=6)
            upload, flood = told(load)[0], told(flood)
            got = received(upload, upload["began"] + 1, upload["began"] + 8)[0]
            tcp, udp = rate(got, 7), rate(flood["came"], 8)
            row.check(min(tcp, udp) >= 2, f"{name}: UDP {udp:.1f}, TCP {tcp:.1f} Mbit/s", "2 each")
            slow = [one.get("connect", 15) for one in opens]
            row.check(max(slow) <= opening(BASE), f"connect max {ms(max(slow))}", ms(opening(BASE)))


@row("call-beside-flood", "2")
def call_beside_flood(row, settings):
    """UDP of 30 Mbit/s of one host, to 20 Mbit/s of links; a call and names of the other host."""
    with Lab(settings, BASE) as lab:
        lab.proxy()
        for name, port in (("SIP", 5060), ("game", 9001)):
            flood = lab.host("a", "flood", seconds=10, megabits=30, port=port)
            time.sleep(1)
            call, names = lab.host("b", "call", seconds=8), lab.host("b", "names", seconds=8)
            call, names, flood = told(call), told(names), told(flood)
            row.tell(f"{name}: UDP {rate(flood['came'], 10):.1f} Mbit/s")
            check_call(row, call, 0.01)
            check_names(row, names, 0.5)


@row("torrent", "2")
def torrent(row, settings):
    """5,000 UDP flows of a host in 15 s, and names, connections and a call of the other host."""
    with Lab(settings, BASE) as lab:
        lab.proxy()
        before = lab.near.memory()
        load = lab.host("a", "torrent", flows=5000, opening=15, seconds=45, bulk=20)
        call = lab.host("b", "call", seconds=42)
        names = lab.host("b", "names", seconds=42)
        opens = lab.do("b", "opens", seconds=42)
        names, call = told(names), told(call)
        grown = (lab.near.memory() - before) >> 20
        load = told(load)
        time.sleep(30)
        later = lab.do("b", "names", seconds=3)
        lines = sum("displaced" in line or "flows" in line for line in lab.near.said().splitlines() if "WARN" in line)
    row.check(load["answered"] >= 0.98 * load["answering"], f"nodes heard {load['answered']} of {load['answering']}", "98 %")
    check_opens(row, opens, BASE)
    check_names(row, names)
    check_names(row, later)
    check_call(row, call, 0.005)
    row.tell(f"client grows by {grown} MiB, {lines} warnings about flows")


def crowd(row, settings, opening, server=()):
    """A torrent of 5,000 flows that meets a limit, and the other host beside it."""
    with Lab(settings, BASE) as lab:
        lab.proxy(server=server)
        load = lab.host("a", "torrent", flows=5000, opening=opening, seconds=30)
        call = lab.host("b", "call", seconds=27)
        names = lab.host("b", "names", seconds=27)
        opens = lab.do("b", "opens", seconds=27)
        names, call, load = told(names), told(call), told(load)
        warned = sum("WARN" in line for line in lab.near.said().splitlines())
    row.tell(f"nodes heard {load['answered']} of {load['answering']}")
    check_opens(row, opens, BASE)
    check_names(row, names)
    check_call(row, call, 0.01)
    row.check(warned <= 20, f"{warned} lines of warnings at the client", "20 at most")


@row("torrent-burst", "2")
def torrent_burst(row, settings):
    """5,000 flows in 4 s: more than a user may open in a second."""
    crowd(row, settings, 4)


@row("torrent-beyond-the-limit", "2")
def torrent_beyond(row, settings):
    """5,000 flows in 15 s, where a user may have 1,000 at a time."""
    crowd(row, settings, 15, ("--max-flows", "1000"))


@row("idle-connections", "2")
def idle(row, settings):
    """1,100 idle TCP connections of an office, and a new one beside them."""
    with Lab(settings, BASE) as lab:
        lab.proxy()
        load = lab.host("a", "idle", count=1100, seconds=8)
        load.wait_for("held", 60)
        opens = lab.do("b", "opens", seconds=4)
        names = lab.do("b", "names", seconds=3)
        load = told(load)
    row.check(load["open"] == 1100, f"{load['open']} of 1100 open {load['errors'] or ''}".strip(), "all")
    check_opens(row, opens, BASE)
    check_names(row, names)


@row("accepted-not-sent", "medium")
def accepted(row, settings):
    """How much of an upload the router takes that the target has not: by rate and time."""
    for name, links, count in (("6 + 2 down, 0.7 + 2 up", SLOW, 1), ("10 + 10 up", BASE, 1), ("0.7 + 2 up, 8 uploads", SLOW, 8)):
        with Lab(settings, links) as lab:
            lab.proxy()
            before = lab.near.memory()
            call = lab.host("b", "call", seconds=12)
            flows = lab.do("a", "uploads", count=count, seconds=14)
            grown = (lab.near.memory() - before) >> 20
            call = told(call)
        up = sum(link.up for link in links) * 1e6 / 8
        whole = [flow for flow in flows if not flow["error"]]
        if len(whole) < count:
            row.fail(f"{count - len(whole)} of {count} uploads fail: {', '.join({flow['error'] for flow in flows if flow['error']})}")
            continue
        moments = [at for at, _ in whole[0]["taken"]]
        most = max(sum(until(flow["taken"], at) - until(flow["received"], at) for flow in whole) for at in moments)
        drained = max(flow["received"][-1][0] - flow["ended"] for flow in whole)
        row.check(most / up <= 1, f"{name}: {most / 1e3:.0f} kB taken and not there = {most / up:.1f} s of the links", "1 s")
        row.check(drained <= 3, f"all there {drained:.1f} s after the end", "3 s")
        row.tell(f"call beside it p50 {ms(quantile(call['delays'], 0.5))}, lost {call['lost']} of {call['count']}; "
                 f"client grows by {grown} MiB")


@row("mixed", "1 2 4")
def mixed(row, settings):
    """A torrent, downloads and an upload to port 22 of one host, a link that comes and goes, and the other host works."""
    with Lab(settings, BASE) as lab:
        lab.proxy()
        loads = [lab.host("a", "torrent", flows=2000, opening=10, seconds=34, bulk=10),
                 lab.host("a", "downloads", count=8, seconds=34),
                 lab.host("a", "uploads", count=1, seconds=30, port=22)]
        time.sleep(3)
        works = [lab.host("b", "call", seconds=26), lab.host("b", "names", seconds=26), lab.host("b", "opens", seconds=26),
                 lab.host("b", "talks", count=3, seconds=26)]
        for turn in range(4):
            time.sleep(3)
            lab.dark(1)
            time.sleep(3)
            lab.dark()
        call, names, opens, talks = map(told, works)
        downloads = told(loads[1])
    longest = max(talk["longest"] for talk in talks)
    check_call(row, call, 0.01)
    check_names(row, names)
    # A link dies under the load: what was on it is sent again a probe timeout later.
    check_opens(row, opens, BASE, limit=1.0)
    row.check(longest <= 1 and not any(talk["error"] for talk in talks), f"keys answered within {ms(longest)}", "1000 ms")
    gap = max(flow["gap"] for flow in downloads)
    row.check(gap <= 2 and not any(flow["error"] for flow in downloads), f"downloads' gap {ms(gap)}", "2000 ms")
    row.tell(f"downloads {rate(sum(flow['bytes'] for flow in downloads), 34):.0f} Mbit/s")
