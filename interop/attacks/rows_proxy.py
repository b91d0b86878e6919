"""Rows about `mpquic proxy`."""

import socket
import threading
import time

from rig import MIB, row, siege

# SECURITY.md: 16 connections of strangers add 20 MiB.
A_STRANGER = 20 * MIB // 16
SECRET = "proxy-authorization=Basic YWxpY2U6d29uZGVybGFuZA=="


class Echo:
    """A target that sends back what it gets."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.at = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.streams = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                stream, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.answer, args=(stream,), daemon=True).start()

    @staticmethod
    def answer(stream):
        with stream:
            try:
                while piece := stream.recv(65536):
                    stream.sendall(piece)
            except OSError:
                pass


@row("5a a user guesses another's password")
def user_guesses(place, row):
    server = place.proxy()
    seconds = 8 if place.quick else 20
    guesser = place.attacker("guess.py", server.at, "mix", "--seconds", seconds, "--target", Echo().at)
    told = guesser.end()
    looked = told["guesses"].get("407", 0)
    row.check(looked <= 5 + seconds, f"{looked} guesses looked at in {seconds} s ({looked / seconds:.1f}/s), {told['guesses'].get('429', 0)}"
              f" answered 429; own password {told['own']}", "5, and one a second")


def neighbour(place, row, name):
    """An honest user at the address of somebody who guesses twice a second. Alice was there before, bob was not."""
    server, target = place.proxy(), Echo().at
    place.attacker("guess.py", server.at, "polite", "--seconds", 1, "--target", target).end()
    guesser = place.attacker("guess.py", server.at, "neighbour", "--name", name, "--target", target)
    seconds = 10 if place.quick else 70
    options = ["--seconds", seconds, "--target", target]
    polite = [place.program("guess.py", server.at, "polite", *options, *kept, nice=-5) for kept in ((), ("--keep",))]
    for one in polite:
        one.wait_for("ready", seconds + 60)
    told = [one.end() for one in polite]
    guesses = guesser.end()["seen"]
    for one, kind in zip(told, ("new connections", "one connection")):
        seen = one["seen"]
        good, bad = seen.get("200", 0), sum(seen.values()) - seen.get("200", 0)
        holds = good > 0 and (bad <= 0.2 * (good + bad) if kind == "new connections" else one.get("first", 99) < 5 and bad <= 3)
        limit = "1 of 5 refused" if kind == "new connections" else "3 refused at the start"
        row.check(holds, f"{kind}: {bad} of {good + bad} refused, first let in after {one.get('first', -1):.1f} s", f"{kind}: {limit}")
    row.tell(f"guesses {guesses}")


@row("5b a neighbour guesses one name")
def neighbour_of_one_name(place, row):
    neighbour(place, row, "bob")


@row("5c a neighbour guesses a new name each time")
def neighbour_of_new_names(place, row):
    neighbour(place, row, "new")


@row("6 streams before credentials")
def strangers(place, row):
    server, target = place.proxy(), Echo().at
    begin = lambda: [place.attacker("strangers.py", server.at, 32, 1040, "--local", "127.0.0.66")]
    honest = ["/", "--connect", target, "--field", SECRET]
    why = "20 MiB for 16 strangers"
    told = siege(place, row, server, begin, honest, connections=32, allowance=32 * A_STRANGER, why=why)
    row.tell(f"{told[0].get('streams', 0)} streams granted to {told[0].get('open', 0)} connections")


@row("13 all descriptors for one user's flows")
def descriptors(place, row):
    server, target = place.proxy(files=1024), Echo().at
    alice = place.attacker("flows.py", server.at, target, "alice:wonderland", 3000)
    other = place.attacker("flows.py", server.at, target, "bob:wonderland", 1, "--local", "127.0.0.3")
    seen, flows = other.end()["seen"], alice.end()["seen"]
    row.check(seen.get("200", 0) > 0, f"alice {flows}, then bob {seen}", "bob gets a flow")


@row("14a silent connections to a SOCKS entrance")
def socks(place, row):
    server, target = place.proxy(), Echo().at
    me = place / "me"
    me.write_text("basic alice:wonderland\n")
    me.chmod(0o600)
    client = place.mpquic("proxy", "client", "--credentials", me, "--insecure", "--socks", "127.0.0.1:0", f"https://{server.at}")
    client.at = client.wait_for(r"socks[^\n]* on (127\S+)")[1].decode()
    time.sleep(1)
    begin = lambda: [place.attacker("silent.py", client.at, 4200, venv=False)]
    told = siege(place, row, client, begin, ["-", "--socks", target], connections=1024, why="64 KiB for each of 1024")
    row.tell(f"{told[0].get('opened', 0)} connections opened")
