"""Rows about what ends, comes back, or is not there yet: links, sides of the proxy, names, certificates."""

import itertools
import signal
import subprocess
import time

from lab import BASE, NAME, SERVER, THREE, Lab, kill, rig, told
from rows_sizes import come
from trial import check_call, check_opens, check_talks, ms, quantile, rate, row


@row("one-connection", "good")
def one_connection(row, settings):
    """The yardstick: one TCP connection has nearly all of two links, in both directions."""
    with Lab(settings, BASE) as lab:
        lab.proxy(warm=5)
        down = lab.do("a", "downloads", count=1, seconds=8)[0]
        up = lab.do("a", "uploads", count=1, seconds=8)[0]
    got, sent = rate(down["bytes"], 8), rate(up["received"][-1][1], up["received"][-1][0] - up["began"])
    row.check(got >= 0.9 * 70, f"down {got:.1f} of 70 Mbit/s", "90 %")
    row.check(sent >= 0.85 * 20, f"up {sent:.1f} of 20 Mbit/s", "85 %")


@row("flapping", "good")
def flapping(row, settings):
    """Either link goes dark every three seconds, under a call and a download."""
    with Lab(settings, BASE) as lab:
        lab.proxy()
        load = lab.host("a", "downloads", count=1, seconds=24)
        call = lab.host("b", "call", seconds=24)
        for turn in range(8):
            lab.dark(turn % 2)
            time.sleep(2)
            lab.dark()
            time.sleep(1)
        check_call(row, told(call), 0.001, silence=0.5)
        flow = told(load)[0]
    row.check(not flow["error"] and flow["gap"] <= 2, f"download {rate(flow['bytes'], 24):.1f} Mbit/s, gap {ms(flow['gap'])}", "2000 ms")


@row("backup", "good")
def backup(row, settings):
    """A metered link carries nothing until the other one dies."""
    with Lab(settings, BASE) as lab:
        lab.proxy(client=("--backup", "p1c"))
        before = carried(lab, "10.101.")
        lab.do("a", "downloads", count=1, seconds=8)
        used = carried(lab, "10.101.") - before
        call = lab.host("b", "call", seconds=14)
        time.sleep(3)
        lab.dark(0)
        time.sleep(6)
        lab.dark()
        check_call(row, told(call), 0.02, silence=0.5)
    row.check(used <= 100_000, f"{used} bytes on the idle link in 8 s of download", "100 kB")


def carried(lab, local):
    """Bytes of the paths with such a local address."""
    rows = [path for one in lab.status()["connections"] for path in one["paths"] if path["local"].startswith(local)]
    return sum(path["bytes_sent"] + path["bytes_received"] for path in rows)


@row("absent-links", "3")
def absent(row, settings):
    """The client starts with one link there, one without an address, and one whose interface does not exist yet."""
    with Lab(settings, THREE) as lab:
        lab.serve()
        lab.ip("router", "link set p2c down\nlink set p2c name later\n")
        lab.ip("router", "addr flush dev p1c\n")
        options = ["--local", "p0c", "--local", "p1c", "--local", "wwan0", "--backup", "wwan0"]
        for local in (["--local", "p0c", "--local", "wwan0", "--cost", "wwan0=2"], options):
            if lab.near:
                lab.near.stop()
            lab.client(local=local, wait=None)
            try:
                lab.near.wait_for("tun on", 10)
            except rig.Fault:
                row.fail(f"no start with {' '.join(local)}: {lab.near.said()[:160].strip()}")
                return
        check_opens(row, lab.do("a", "opens", seconds=2), THREE)
        lab.ip("router", "addr add 10.101.0.1/24 dev p1c\nroute replace default dev p1c table 101\nroute replace default dev p1c metric 200\n")
        took = lab.wait_for_paths(2)
        row.check(took is not None and took <= 5, f"path of the new address after {took and round(took, 1)} s", "5 s")
        lab.ip("router", "link set later name wwan0\nlink set wwan0 up\n")
        lab.ip("router", "addr replace 10.102.0.1/24 dev wwan0\n")
        come(lab, 2, "wwan0")
        took = lab.wait_for_paths(3)
        row.check(took is not None and took <= 5, f"path of the new interface after {took and round(took, 1)} s", "5 s")
        before = carried(lab, "10.102.")
        flow = lab.do("a", "downloads", count=1, seconds=4)[0]
        used = carried(lab, "10.102.") - before
        row.check(used <= 100_000, f"{rate(flow['bytes'], 4):.0f} Mbit/s, of them {used} bytes on the backup", "100 kB")


def darkness(row, settings, seconds):
    """Both links dark: sessions, a transfer, and new connections afterwards."""
    with Lab(settings, BASE) as lab:
        lab.proxy()
        sessions = lab.host("a", "talks", count=10, seconds=seconds + 25)
        load = lab.host("a", "downloads", count=2, seconds=seconds + 25)
        time.sleep(3)
        lab.dark(0, 1)
        time.sleep(seconds)
        lab.dark()
        opens = lab.do("b", "opens", seconds=12, every=0.5)
        sessions, load = told(sessions), told(load)
    check_talks(row, sessions, seconds + 10)
    ends = [flow["error"] for flow in load if flow["error"]]
    row.check(not ends, f"downloads: {len(load) - len(ends)} of 2 live {sorted(set(ends)) or ''}".strip(), "all live")
    gap = max(flow["gap"] for flow in load)
    row.check(gap <= seconds + 10, f"gap {gap:.1f} s", f"{seconds + 10} s")
    firsts = [one["connect"] for one in opens if not one["error"]]
    failed = sum(bool(one["error"]) for one in opens)
    row.check(not failed and max(firsts) <= 8, f"opens right after: {failed} of {len(opens)} failed, max {max(firsts, default=0):.1f} s", "8 s")


@row("dark-45-s", "5")
def dark(row, settings):
    darkness(row, settings, 45)


@row("dark-10-min", "5", slow=True)
def dark_long(row, settings):
    darkness(row, settings, 600)


@row("two-families", "8")
def families(row, settings):
    """The server's name has both families; one link has IPv4 only, the other IPv6 only."""
    with Lab(settings, BASE) as lab:
        for space, device, address in (("router", "p1c", "2001:db8:1::1/64"), ("server", "p1s", "2001:db8:1::2/64")):
            lab.run(space, "sysctl", "-qw", f"net.ipv6.conf.{device}.disable_ipv6=0", f"net.ipv6.conf.{device}.accept_dad=0")
            lab.ip(space, f"addr add {address} dev {device} nodad\n")
        lab.ip("router", "addr flush dev p1c scope global\naddr replace 2001:db8:1::1/64 dev p1c nodad\nroute add ::/0 dev p1c\n")
        lab.ip("server", "addr add 2001:db8:9::9/128 dev lo nodad\n")
        lab.etc("router", "hosts", f"{SERVER} {NAME}\n2001:db8:9::9 {NAME}\n")
        lab.serve("--listen", "[2001:db8:9::9]:4433")
        lab.client(url=f"https://{NAME}:4433")
        lab.do("a", "downloads", count=1, seconds=3)
        flow = lab.do("a", "downloads", count=1, seconds=6)[0]
        count = len(lab.paths())
    row.check(count >= 2, f"{count} paths", "2")
    row.check(rate(flow["bytes"], 6) >= 0.85 * 70, f"{rate(flow['bytes'], 6):.1f} of 70 Mbit/s", "85 %")


@row("dead-first-address", "8")
def dead_address(row, settings):
    """The first address of the server's name is dead."""
    with Lab(settings, BASE) as lab:
        lab.ip("server", "route add blackhole 45.33.1.0/24\n")
        lab.etc("router", "hosts", f"45.33.1.1 {NAME}\n{SERVER} {NAME}\n")
        lab.serve()
        began = time.monotonic()
        lab.client(url=f"https://{NAME}:4433", wait=30)
        first = time.monotonic() - began
    row.check(first <= 3, f"device after {first:.1f} s", "3 s")


def certificate(lab, name):
    cert, key = lab.directory / f"{name}.pem", lab.directory / f"{name}.key"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", cert,
                    "-days", "9", "-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"], check=True, capture_output=True)
    digest = subprocess.run(["openssl", "x509", "-in", cert, "-noout", "-fingerprint", "-sha256"], check=True, capture_output=True, text=True).stdout
    return cert, key, "sha256:" + digest.strip().partition("=")[2].replace(":", "").lower()


@row("renewed-certificate", "9")
def renewed(row, settings):
    """Certificate and key are replaced, then SIGHUP: sessions live, and a new client sees the new certificate."""
    with Lab(settings, BASE) as lab:
        cert, key, lab.pin = certificate(lab, "now")
        lab.proxy(server=("--cert", cert, "--key", key))
        sessions = lab.host("a", "talks", count=5, seconds=8)
        time.sleep(2)
        new_cert, new_key, pin = certificate(lab, "new")
        cert.write_bytes(new_cert.read_bytes())
        key.write_bytes(new_key.read_bytes())
        lab.far.process.send_signal(1)
        time.sleep(1)
        other = lab.start("router", lab.settings.binary, "proxy", "client", "--credentials", lab.directory / "users", "--pin", pin,
                          "--socks", "1099", "--status-socket", lab.directory / "other.sock", *lab.local(), f"https://{SERVER}:4433")
        try:
            other.wait_for("connected to", 8)
            row.check(True, "a new client sees the new certificate", "the new certificate")
        except rig.Fault:
            row.check(False, f"a new client: {other.said()[-150:].strip()}", "the new certificate")
        check_talks(row, told(sessions), 1)


@row("upgrade", "10")
def upgrade(row, settings):
    """SIGUSR2 at the server: a new process of the installed program; 50 sessions, a call, and new connections all the while."""
    with Lab(settings, BASE) as lab:
        lab.proxy(server=("--udp-idle", "5"))
        sessions = lab.host("a", "talks", count=50, seconds=26)
        time.sleep(2)
        opens = lab.host("b", "opens", seconds=20)
        call = lab.host("b", "call", seconds=20)
        time.sleep(2)
        lab.far.process.send_signal(signal.SIGUSR2)
        check_talks(row, told(sessions), 2)
        check_opens(row, told(opens), BASE, "connect", 2.0)
        check_call(row, told(call), 0.02, silence=2)
        ended = lab.far.process.poll()
        began = time.monotonic()
        while ended is None and time.monotonic() < began + 30:
            time.sleep(0.2)
            ended = lab.far.process.poll()
        row.check(ended == 0, f"the old process ended with {ended}", "0, within 30 s of its last flow")


@row("restart", "10")
def restart(row, settings):
    """SIGTERM of the server, and a new start after its end: sessions go on until then, and new connections wait."""
    with Lab(settings, BASE) as lab:
        lab.proxy()
        sessions = lab.host("a", "talks", count=50, seconds=26)
        time.sleep(2)
        opens = lab.host("b", "opens", seconds=20)
        time.sleep(2)
        began = time.monotonic()
        lab.far.process.terminate()
        lab.far.wait(30)
        ended = time.monotonic() - began
        lab.serve(wait=False)
        told(sessions)
        check_opens(row, told(opens), BASE, "connect", ended + 3)
    row.check(ended <= 7, f"the old server ended after {ended:.1f} s", "7 s: 5 s for its flows")


@row("server-killed", "10")
def server_killed(row, settings):
    """`kill -9` of the server under load and at once a new one: when the LAN works again."""
    with Lab(settings, BASE) as lab:
        lab.proxy()
        load = lab.host("a", "downloads", count=4, seconds=10)
        opens = lab.host("b", "opens", seconds=14)
        time.sleep(4)
        killed = time.monotonic()
        kill(lab.far)
        lab.serve(wait=False)
        opens, load = told(opens), told(load)
    row.tell(f"{sum(bool(flow['error']) for flow in load)} of 4 downloads ended")
    failed = [one for one in opens if one["error"]]
    back = [one["at"] + one["connect"] - killed for one in opens if not one["error"] and one["at"] >= killed]
    row.check(bool(back) and min(back) <= 3, f"first connection {min(back, default=99):.1f} s after", "3 s")
    row.check(len(failed) <= 1, f"{len(failed)} of {len(opens)} new connections failed", "1 at most (the one on its way)")


@row("server-killed-in-the-dark", "5 10")
def killed_in_dark(row, settings):
    """The server restarts while both links are dark."""
    with Lab(settings, BASE) as lab:
        lab.proxy()
        sessions = lab.host("a", "talks", count=3, seconds=20)
        time.sleep(2)
        lab.dark(0, 1)
        time.sleep(3)
        kill(lab.far)
        lab.serve(wait=False)
        time.sleep(5)
        lab.dark()
        light = time.monotonic()
        opens = lab.do("b", "opens", seconds=20, every=0.5, patience=30)
        told(sessions)
    back = [one["at"] + one["connect"] - light for one in opens if not one["error"]]
    failed = sum(bool(one["error"]) for one in opens)
    row.check(bool(back) and min(back) <= 10, f"first connection {min(back, default=99):.1f} s after the light, {failed} of {len(opens)} failed", "10 s")


def network(lab):
    """What a client with a device changes: rules, its device, the resolver's file."""
    rules = lab.run("router", "ip", "rule")
    device = "mpquic0" in lab.run("router", "ip", "-o", "link")
    resolver = lab.run("router", "cat", "/etc/resolv.conf")
    return rules, device, resolver


def works(lab):
    """Whether a host reaches the target."""
    opens = lab.do("a", "opens", seconds=1.5, every=0.3, patience=4)
    return f"{sum(not one['error'] for one in opens)} of {len(opens)}", all(not one["error"] for one in opens)


@row("client-killed", "11")
def client_killed(row, settings):
    """`kill -9` of the client in three states: the network afterwards, a new start, and the undoing of all changes."""
    with Lab(settings, BASE) as lab:
        lab.serve()
        before = network(lab)
        for state in ("under load", "connecting", "in the dark"):
            run_and_kill(row, lab, state)
            told_text, fine = works(lab)
            row.check(fine, f"{state}: then {told_text} by the first link", "all")
            began = time.monotonic()
            lab.client("--dns", "45.33.32.10", wait=None)
            try:
                lab.near.wait_for("tun on", 15)
                told_text, fine = works(lab)
                row.check(fine, f"a new start after {time.monotonic() - began:.1f} s: {told_text}", "works")
            except rig.Fault:
                row.fail(f"{state}: no new start: {lab.near.said()[-160:].strip()}")
            kill(lab.near)
            lab.run("router", lab.settings.binary, "proxy", "down")
            row.check(network(lab) == before, "down: all as before" if network(lab) == before else f"after down: {difference(before, network(lab))}", "as before")
        lab.client("--dns", "45.33.32.10")
        lab.near.stop()
        row.check(network(lab) == before, "SIGTERM: all as before" if network(lab) == before else f"after SIGTERM: {difference(before, network(lab))}", "as before")


def run_and_kill(row, lab, state):
    """Brings a client into a state and kills it there."""
    if state == "connecting":
        lab.dark(0, 1)
    lab.client("--dns", "45.33.32.10", wait=None if state == "connecting" else 20)
    load = None
    if state == "under load":
        load = lab.host("a", "downloads", count=3, seconds=3)
    if state == "in the dark":
        lab.dark(0, 1)
    time.sleep(2)
    kill(lab.near)
    lab.dark()
    if load:
        told(load)


def difference(before, after):
    changed = [name for name, one, other in zip(("rules", "device", "resolv.conf"), before, after) if one != other]
    return f"{', '.join(changed)} differ"


@row("kill-switch", "11")
def kill_switch(row, settings):
    """With `--kill-switch`, nothing leaves past the tunnel after `kill -9`, until a new start or `down`."""
    with Lab(settings, BASE) as lab:
        lab.serve()
        lab.client("--kill-switch=lan")
        told_text, fine = works(lab)
        row.check(fine, f"with it {told_text}", "all")
        kill(lab.near)
        opens = lab.do("a", "opens", seconds=1, every=0.5, patience=3)
        leaked = sum(not one["error"] for one in opens)
        row.check(leaked == 0, f"after kill -9, {leaked} of {len(opens)} leave", "none")
        lab.client("--kill-switch=lan")
        told_text, fine = works(lab)
        row.check(fine, f"after a new start {told_text}", "all")
        kill(lab.near)
        lab.run("router", lab.settings.binary, "proxy", "down")
        told_text, fine = works(lab)
        row.check(fine, f"after down {told_text} by the first link", "all")


@row("boot-without-network", "11")
def boot(row, settings):
    """The client starts before any link and any name is there."""
    with Lab(settings, BASE) as lab:
        lab.serve()
        hosts = lab.etc("router", "hosts", "")
        lab.ip("router", "link set p0c down\nlink set p1c down\n")
        lab.client(url=f"https://{NAME}:4433", wait=None)
        time.sleep(5)
        row.check(lab.near.process.poll() is None, "waits" if lab.near.process.poll() is None else f"ends: {lab.near.said()[-150:].strip()}", "waits")
        for number in range(2):
            come(lab, number)
        with hosts.open("w") as file:
            file.write(f"{SERVER} {NAME}\n")
        began = time.monotonic()
        try:
            lab.near.wait_for("tun on", 40)
        except rig.Fault:
            row.fail(f"no device: {lab.near.said()[-200:].strip()}")
            return
        row.check(time.monotonic() - began <= 15, f"device {time.monotonic() - began:.1f} s after the network", "15 s")
        told_text, fine = works(lab)
        row.check(fine, f"then {told_text}", "all")


@row("server-away", "11")
def server_away(row, settings):
    """The server is away for half a minute: the client goes on, and says so to programs."""
    with Lab(settings, BASE) as lab:
        lab.proxy()
        kill(lab.far)
        opens = lab.host("a", "opens", seconds=34, every=1)
        time.sleep(30)
        lab.serve(wait=False)
        began = time.monotonic()
        found = None
        for _ in itertools.repeat(None, 20):
            if not lab.do("b", "opens", seconds=0.5, every=0.5, patience=3)[0]["error"]:
                found = time.monotonic() - began
                break
        opens = told(opens)
    failed = [one for one in opens if one["error"]]
    row.tell(f"meanwhile {len(failed)} of {len(opens)} failed ({', '.join(sorted({one['error'] for one in failed}))}) "
             f"after {quantile([one['after'] for one in failed], 0.5):.1f} s")
    row.check(found is not None and found <= 9, f"works {found and round(found, 1)} s after the server's return", "9 s")
