"""The cases, named after those of the QUIC interop runner.

Each is a function of a cell and holds for both directions: "client" and "server" are whoever plays
that part. What a case is about is checked in mpquic's own log of the connection, which names every
packet and frame of both sides, or in what the relay saw.
"""

from collections import namedtuple

Case = namedtuple("Case", "name short run multipath smoke")
CASES = []

SMALL, MEDIUM, LARGE, HUGE = "small", "medium", "large", "huge"
SIZE_OF_LARGE = 12 << 20
MANY = [f"many-{number}" for number in range(300)]
# Packets with STREAM frames that make a path a used one.
USED = 50
# RFC 9369
V2 = "6b3343cf"
# Datagrams of the client before something happens to its address, and of both before the network
# goes dark.
MIDDLE, TWILIGHT = 40, 150
# Least datagrams that a relay has lost or changed of a file of 2 MiB, of 3 % of all.
SUFFERED = 10
# How long the network is dark, in ms: for all, and for the second path while the first one works.
DARK, DARK_SECOND = 1500, 300
# Within so many ms after a path died its data runs over another one: if mpquic sends, which notices
# after a few probe timeouts, and if noq does, which the peer here has wait for two seconds.
FAILOVER = {True: 1000, False: 4000}
# Within so many ms a path that works again is used, as probe timeouts of a path that is silent go up
# to two seconds.
RETURN = 3000
# First and last byte that are asked for of a large file.
PART = (5_000_000, 9_999_999)


def case(name, short, multipath=False, smoke=False):
    """`short` heads the column; the interop runner's letters where it has the case."""

    def add(run):
        CASES.append(Case(name, short, run, multipath, smoke))
        return run

    return add


@case("handshake", "H", smoke=True)
def handshake(cell):
    cell.run([SMALL])
    log = cell.log()
    cell.expect(log.frames("sent" if cell.we_serve else "received", "handshake_done"), "confirmed")


@case("transfer", "DC", smoke=True)
def transfer(cell):
    cell.run([LARGE])
    sender, receiver = ("received", "sent") if cell.we_serve else ("sent", "received")
    limits = cell.log().frames(sender, "max_data") + cell.log().frames(sender, "max_stream_data")
    cell.expect(limits, "flow control credit was given")
    cell.expect(cell.log().frames(receiver, "stream"), "data")


@case("longrtt", "LR")
def longrtt(cell):
    cell.run([SMALL], relay=["--delay", 375])
    metrics = cell.log().named("recovery_metrics_updated")
    samples = [event["data"]["min_rtt"] for event in metrics if "min_rtt" in event["data"]]
    cell.expect(samples and min(samples) >= 740, "the round trip was measured")


@case("chacha20", "C20")
def chacha20(cell):
    # We offer no other, so a handshake that succeeds has chosen it.
    cell.run([MEDIUM], ours=["--cipher", "chacha20"])


@case("multiplexing", "M")
def multiplexing(cell):
    cell.run(MANY)
    cell.expect(len(cell.log().streams()) >= len(MANY), "a stream for each file")


@case("http3", "3")
def http3(cell):
    # Large and small files at once, each on a stream of its own.
    names = [LARGE, MEDIUM, SMALL] + MANY[:50]
    cell.run(names, alpn="h3")
    log = cell.log()
    cell.expect(len(log.streams()) >= len(names), "a stream for each file")
    # H3_NO_ERROR; these clients end with 0 instead.
    order = 0 if cell.we_serve and cell.peer.name in ("quic-go", "picoquic") else 0x100
    codes = {event["data"].get("error_code") for event in log.named("connection_closed")}
    cell.expect(codes == {order}, f"closed in order, not with {codes}")


@case("range", "RG")
def part_of_a_file(cell):
    # A peer's client asks for a part. Ours asks for the rest of a file when a connection is lost.
    if cell.we_serve:
        cell.run([LARGE], alpn="h3", part=PART)
        length = PART[1] + 1 - PART[0]
        sent = cell.log().stream_bytes("sent")
        cell.expect(length <= sent < length * 1.2, f"{sent} bytes for a part of {length}")
        return
    relay = ["--dark-after", 5 * TWILIGHT, "--first"]
    cell.run([LARGE], alpn="h3", relay=relay, ours=["--stall-timeout", "1"])
    logs = cell.ours()
    cell.expect(len(logs) == 2, f"a second connection: {len(logs)}")
    first, second = (log.stream_bytes("received") for log in logs)
    cell.expect(first > 100_000, f"{first} bytes over the connection that was lost")
    # What lay behind a gap is lost with the first connection.
    cell.expect(second < SIZE_OF_LARGE - first / 2, f"{first} bytes before, and then {second}")


@case("retry", "S", smoke=True)
def retry(cell):
    cell.run([SMALL], server=["--retry"], relay=[])
    cell.expect(cell.relay_said("Retry of version"), "a Retry on the wire")
    cell.expect(cell.log().retried(), "its connection ID in the transport parameters")


@case("resumption", "R", smoke=True)
def resumption(cell):
    cell.run([SMALL], connections=2)
    resumed = [log.resumed() for log in cell.ours()]
    cell.expect(resumed == [False, True], f"the second connection is resumed: {resumed}")


@case("zerortt", "Z")
def zerortt(cell):
    # Without delay a peer's handshake can be over before the request is there. Several times: rustls
    # tells a ticket's age in whole seconds, and GnuTLS refuses one that is too large.
    delay = ["--delay", 50 if cell.we_serve else 5]
    cell.run([SMALL], connections=4, early=True, relay=delay)
    direction = "received" if cell.we_serve else "sent"
    early = [bool(log.frames(direction, "stream", "0RTT")) for log in cell.ours()]
    cell.expect(not early[0] and any(early), f"later requests were 0-RTT data: {early}")
    if not cell.we_serve:
        taken = [report.get("early_data", False) for report in cell.client.reports()]
        cell.expect(not taken[0] and any(taken), f"and were taken: {taken}")


@case("keyupdate", "U")
def keyupdate(cell):
    # We do it twice: the second has to wait until the peer has acknowledged the first with new keys.
    # Some peers update keys by themselves; ours wait for those as well, perhaps to the end.
    # TQUIC's server follows one only (see the README).
    ours = "remote_update" if cell.we_serve else "local_update"
    wanted = 1 if cell.we_serve or cell.peer.name == "tquic" else 2
    cell.run([HUGE], client=["--drill", ",".join(["update-keys"] * wanted)])
    updates = cell.log().key_updates()
    cell.expect(ours in updates and len(updates) >= wanted, f"updates: {updates}")


@case("ecn", "E")
def ecn(cell):
    cell.run([MEDIUM])
    log = cell.log()
    cell.expect(log.marked("sent") > 0, "we saw marks of the peer")
    cell.expect(log.marked("received") > 0, "the peer saw marks of ours")
    states = [event["data"]["new"] for event in log.named("ecn_state_updated")]
    cell.expect(states[-1:] == ["capable"], f"the path carries marks: {states}")


@case("v2", "V2")
def v2(cell):
    if cell.peer.name == "quic-go":
        # It speaks version 2, but does not change the version of a connection.
        first, versions = "v2", ["--quic-version", "v2"]
    else:
        # Both prefer version 2, but the client cannot know that and begins with version 1.
        first, versions = "v1", ["--quic-version", "v2,v1"]
    cell.run([MEDIUM], client=versions, server=versions, relay=[])
    numbers = {"v1": "00000001", "v2": V2}
    cell.expect(cell.relay_said(f"Initial of version {numbers[first]} from the client"), first)
    for side in ("client", "server"):
        cell.expect(cell.relay_said(f"Handshake of version {V2} from the {side}"), "v2 afterwards")


@case("amplificationlimit", "A")
def amplificationlimit(cell):
    lost = ["--drop-from-client", "2,3,4,5,6,7"]
    cell.run([SMALL], relay=lost, certificate="long-")
    cell.expect(cell.relayed("lost") > 0, "datagrams were lost")
    if cell.we_serve:
        cell.expect(not cell.relay_said("the server sent"), cell.relay.output())


def several(cell, relay):
    cell.run([SMALL], relay=relay, connections=4)
    cell.expect(len(cell.ours()) == 4, "four connections")


def suffered(cell, what, least):
    count = cell.relayed(what)
    cell.expect(count >= least, f"{least} datagrams or more were {what}: {count}")


@case("handshakeloss", "L1")
def handshakeloss(cell):
    several(cell, ["--drop", 30])
    suffered(cell, "lost", 4)


@case("transferloss", "L2")
def transferloss(cell):
    cell.run([MEDIUM], relay=["--drop", 3])
    suffered(cell, "lost", SUFFERED)
    if cell.we_serve:
        cell.expect(cell.log().named("packet_lost"), "what was lost is known to be")


@case("handshakecorruption", "C1")
def handshakecorruption(cell):
    several(cell, ["--corrupt", 30])
    suffered(cell, "changed", 4)


@case("transfercorruption", "C2")
def transfercorruption(cell):
    cell.run([MEDIUM], relay=["--corrupt", 3])
    suffered(cell, "changed", SUFFERED)
    if not cell.we_serve:
        cell.expect(cell.log().named("packet_dropped"), "what was changed is dropped")


def rebinding(cell, option):
    cell.run([LARGE], relay=[option, MIDDLE])
    cell.expect(cell.relay_said(" now"), "the relay changed the client's address")
    log = cell.log()
    challenges, responses = ("sent", "received") if cell.we_serve else ("received", "sent")
    # Not the challenges of a path that is opened.
    since = moved(cell, log)
    for direction, frame in ((challenges, "path_challenge"), (responses, "path_response")):
        times = [packet["time"] for packet, _ in log.frames(direction, frame)]
        cell.expect(max(times, default=-1) >= since, f"{frame} at {times} after {since} ms")
    if cell.we_serve:
        cell.expect(len(set(log.tuples())) > 1, "the path moved")


def moved(cell, log):
    """When the client had another address at the earliest."""
    if cell.we_serve:
        assigned = [event for event in log.named("tuple_assigned") if event["data"]["path_id"] == 0]
        cell.expect(len(assigned) > 1, "another address was seen")
        return assigned[1]["time"]
    # A datagram has a packet at least.
    return log.packets("sent")[MIDDLE - 1]["time"]


@case("rebind-port", "BP")
def rebind_port(cell):
    rebinding(cell, "--rebind-after")


@case("rebind-addr", "BA")
def rebind_addr(cell):
    rebinding(cell, "--readdress-after")


@case("connectionmigration", "CM")
def connectionmigration(cell):
    # Of a single path: with several, another address is another path.
    ours = ["--max-paths", "0"] if cell.we_serve else ["--paths", "1", "--local", "127.0.0.1"]
    cell.run([LARGE], client=["--drill", "move=127.0.0.2"], ours=ours)
    log = cell.log()
    end = 1 if cell.we_serve else 0
    clients = [addresses[end] for addresses in log.tuples()]
    cell.expect(clients[0] != clients[-1], f"the client is elsewhere: {clients}")
    ids = {
        packet["data"]["header"]["dcid"]
        for packet in log.packets("received" if cell.we_serve else "sent", "1RTT")
    }
    cell.expect(len(ids) > 1, "it used another connection ID there")


@case("blackhole", "B")
def blackhole(cell):
    cell.run([LARGE], relay=["--dark-after", TWILIGHT, "--dark-for", DARK])
    cell.expect(cell.relay_said("is back"), "the network was gone and came back")
    suffered(cell, "swallowed", 1)
    silence, _ = longest_gap(packet["time"] for packet in cell.log().packets("received"))
    cell.expect(silence >= DARK * 0.9, f"nothing arrived for {silence:.0f} ms")


def longest_gap(times):
    """The longest time between two of them, and when it began."""
    times = list(times)
    return max((after - before, before) for before, after in zip(times, times[1:]))


@case("ipv6", "6")
def ipv6(cell):
    cell.run([MEDIUM], ip="[::1]")
    (mine, theirs) = cell.log().tuples()[0]
    cell.expect(theirs[0] == "::1", f"the peer is at {theirs}")


def two_paths(cell):
    """Options of the client for two paths."""
    if cell.we_serve:
        return ["--paths", "2"]
    return ["--local", "127.0.0.1", "--local", "127.0.0.2"]


def spread(cell):
    """Options of mpquic for using all paths alike, if it is the one that sends."""
    return ["--scheduler", "round-robin"] if cell.we_serve else []


# noq fills its paths in order, so the second carries what the first has no room for. Some loss
# keeps the first one's window small.
SOME_LOSS = ["--drop", 1]


def carrying(cell, paths):
    """The server's data ran over all of these paths, and over all at a time."""
    direction = "sent" if cell.we_serve else "received"
    log = cell.log()
    used = log.paths(direction, USED)
    cell.expect(used == paths, f"data on paths {paths}: {used}")
    times = [log.stream_times(direction, path) for path in paths]
    begin, end = max(of[0] for of in times), min(of[-1] for of in times)
    cell.expect(begin < end, f"all at a time: from {begin} to {end} ms")


@case("multipath", "MP", multipath=True, smoke=True)
def multipath(cell):
    relay = None if cell.we_serve else SOME_LOSS
    cell.run([LARGE], client=two_paths(cell), relay=relay, ours=spread(cell))
    carrying(cell, [0, 1])


@case("abandon-client", "PA", multipath=True)
def abandon_client(cell):
    abandon(cell, client=two_paths(cell) + ["--drill", "close=0"])


@case("abandon-server", "PB", multipath=True)
def abandon_server(cell):
    abandon(cell, client=two_paths(cell), server=["--drill", "close=0"])


def abandon(cell, **options):
    cell.run([LARGE], **options)
    log = cell.log()
    for direction in ("sent", "received"):
        ids = {frame["path_id"] for _, frame in log.frames(direction, "path_abandon")}
        cell.expect(ids == {0}, f"PATH_ABANDON of path 0 {direction}: {ids}")
    carrying_only(cell, log, 1, log.frames("sent", "path_abandon")[0][0]["time"])


def carrying_only(cell, log, path, since, until=float("inf")):
    """From then on, data ran over this path and not over the other, but for what was under way."""
    direction = "sent" if cell.we_serve else "received"
    other = log.stream_packets(direction, 1 - path, since, until)
    this = log.stream_packets(direction, path, since, until)
    cell.expect(this >= USED, f"{this} packets on path {path}")
    cell.expect(other * 4 < this, f"{other} packets on the other path, {this} on path {path}")


@case("status", "PS", multipath=True)
def status(cell):
    # With some MiB in between: what is under way must not count for much.
    waits = "" if cell.we_serve else "wait," * 4
    steps = ["--drill", f"{waits}backup=0,{waits}available=0,{waits}backup=1"]
    cell.run([HUGE], client=two_paths(cell) + steps)
    log = cell.log()
    direction = "received" if cell.we_serve else "sent"
    backup = log.frames(direction, "path_status_backup")
    available = log.frames(direction, "path_status_available")
    # mpquic lets a backup stand in when the other path is silent, so there may be more of them.
    paths = list(dict.fromkeys(frame["path_id"] for _, frame in backup))
    cell.expect(paths == [0, 1], f"path 0 and then path 1 became a backup: {paths}")
    first, second = (
        next(packet["time"] for packet, frame in backup if frame["path_id"] == path)
        for path in paths
    )
    again = [
        packet["time"]
        for packet, frame in available
        if frame["path_id"] == 0 and packet["time"] > first
    ]
    cell.expect(again, "path 0 became available again")
    again = again[0]
    carrying_only(cell, log, 1, (first + again) / 2, again)
    carrying_only(cell, log, 0, second + 20)


@case("pathloss", "PL", multipath=True)
def pathloss(cell):
    relay = ["--dark-after", TWILIGHT, "--second"]
    cell.run([LARGE], client=two_paths(cell), relay=relay, ours=spread(cell))
    cell.expect(cell.relay_said("in the dark"), "the second path died")
    suffered(cell, "swallowed", 1)
    log = cell.log()
    direction = "sent" if cell.we_serve else "received"
    # Nothing arrives on the path any more.
    died = max(packet["time"] for packet in log.packets("received") if path_of(packet) == 1)
    before = [time for time in log.stream_times(direction, 1) if time <= died]
    after = [time for time in log.stream_times(direction, 0) if time >= died]
    cell.expect(before, "the path carried data before it died")
    cell.expect(len(after) >= USED, f"{len(after)} packets with data over the other path then")
    waited, since = longest_gap([died] + after)
    limit = FAILOVER[cell.we_serve]
    cell.expect(waited <= limit, f"data waited for {waited:.0f} ms from {since:.0f} ms on")
    late = [time for time in log.stream_times(direction, 1) if time > died + limit]
    cell.expect(not late, f"{len(late)} packets with data into the dark")


@case("pathreturn", "PR", multipath=True)
def pathreturn(cell):
    relay = ["--dark-after", TWILIGHT, "--dark-for", DARK_SECOND, "--second", "--delay", 5]
    cell.run([HUGE], client=two_paths(cell), relay=relay, ours=spread(cell))
    cell.expect(cell.relay_said("is back"), "the second path came back")
    suffered(cell, "swallowed", 1)
    suffered(cell, "returned", 2 * USED)
    log = cell.log()
    direction = "sent" if cell.we_serve else "received"
    times = [packet["time"] for packet in log.packets("received") if path_of(packet) == 1]
    silence, since = longest_gap(times)
    cell.expect(silence >= DARK_SECOND * 0.9, f"silent for {silence:.0f} ms")
    cell.expect(silence <= DARK_SECOND + RETURN, f"silent for {silence:.0f} ms")
    data = [time for time in log.stream_times(direction, 1) if time >= since + silence]
    cell.expect(len(data) >= USED, f"{len(data)} packets with data on the path that came back")


def path_of(packet):
    return packet["data"]["header"]["path_id"]


@case("morepaths", "P4", multipath=True)
def morepaths(cell):
    locals_ = [f"127.0.0.{number}" for number in range(1, 5)]
    client = ["--paths", "4"]
    if not cell.we_serve:
        client = [word for local in locals_ for word in ("--local", local)]
    cell.run([LARGE], client=client, ours=spread(cell), relay=None if cell.we_serve else SOME_LOSS)
    carrying(cell, [0, 1, 2, 3])


@case("pathids", "PI", multipath=True)
def pathids(cell):
    client = two_paths(cell) + ["--drill", ",".join(["renew"] * 6)]
    # Fewer IDs to use up. Some loss, as it takes noq a second to repeat a challenge if the answer is
    # lost in a full socket.
    ours = ["--max-paths", "4"] + spread(cell) if cell.we_serve else []
    cell.run([HUGE], client=client, ours=ours, relay=SOME_LOSS)
    log = cell.log()
    server = "local" if cell.we_serve else "remote"
    first = log.parameters(server)["initial_max_path_id"]
    used = max(log.paths("sent" if cell.we_serve else "received"))
    cell.expect(used > first, f"path {used} is beyond the first limit, {first}")
    raised = log.frames("sent" if cell.we_serve else "received", "max_path_id")
    cell.expect(raised, "MAX_PATH_ID rose")
