"""The cases, named after those of the QUIC interop runner.

Each is a function of a cell and holds for both directions: "client" and "server" are whoever plays
that part. What a case is about is checked in mpquic's own log of the connection, which names every
packet and frame of both sides, or in what the relay saw.
"""

from collections import namedtuple

Case = namedtuple("Case", "name short run multipath smoke")
CASES = []

SMALL, MEDIUM, LARGE, HUGE = "small", "medium", "large", "huge"
MANY = [f"many-{number}" for number in range(300)]
# Packets with STREAM frames that make a path a used one.
USED = 50
# RFC 9369
V2 = "6b3343cf"
# Datagrams of the client before something happens to its address, and of both before the network
# goes dark.
MIDDLE, TWILIGHT = 40, 150


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
    # H3_NO_ERROR
    codes = {event["data"].get("error_code") for event in log.named("connection_closed")}
    cell.expect(codes == {0x100}, f"closed in order, not with {codes}")


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
    if cell.we_serve:
        cell.expect(not cell.relay_said("the server sent"), cell.relay.output())


def several(cell, relay):
    cell.run([SMALL], relay=relay, connections=4)
    cell.expect(len(cell.ours()) == 4, "four connections")


@case("handshakeloss", "L1")
def handshakeloss(cell):
    several(cell, ["--drop", 30])


@case("transferloss", "L2")
def transferloss(cell):
    cell.run([MEDIUM], relay=["--drop", 3])


@case("handshakecorruption", "C1")
def handshakecorruption(cell):
    several(cell, ["--corrupt", 30])


@case("transfercorruption", "C2")
def transfercorruption(cell):
    cell.run([MEDIUM], relay=["--corrupt", 3])


def rebinding(cell, option):
    cell.run([LARGE], relay=[option, MIDDLE])
    cell.expect(cell.relay_said(" now"), "the relay changed the client's address")
    log = cell.log()
    challenges, responses = ("sent", "received") if cell.we_serve else ("received", "sent")
    cell.expect(log.frames(challenges, "path_challenge"), "the server asked at the new address")
    cell.expect(log.frames(responses, "path_response"), "and was answered")
    if cell.we_serve:
        cell.expect(len(set(log.tuples())) > 1, "the path moved")


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
    cell.run([LARGE], relay=["--dark-after", TWILIGHT, "--dark-for", 1500])
    cell.expect(cell.relay_said("is back"), "the network was gone and came back")


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
    """Both sides' data ran over all of these paths."""
    direction = "sent" if cell.we_serve else "received"
    used = cell.log().paths(direction, USED)
    cell.expect(used == paths, f"data on paths {paths}: {used}")


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


@case("pathreturn", "PR", multipath=True)
def pathreturn(cell):
    relay = ["--dark-after", TWILIGHT, "--dark-for", 300, "--second", "--delay", 5]
    cell.run([HUGE], client=two_paths(cell), relay=relay, ours=spread(cell))
    cell.expect(cell.relay_said("is back"), "the second path came back")


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
