"""Cases about links, addresses and names of servers."""

import contextlib

import rig
from links import CLIENT, SERVER, SERVER_V4, SERVER_V6, Links
from place import case, expect, write


@contextlib.contextmanager
def served(place, listen):
    with Links() as links:
        write(place / "s/a.txt", b"hello")
        place.serve(place / "s", namespace=SERVER, listen=listen)
        yield links


def quick(place, url, seconds, **more):
    code, took, text = place.get("-q", "-o", "/dev/null", url, namespace=CLIENT, **more)
    expect(code == 0, f"exit {code} after {took:.1f} s: {text[-300:]}")
    expect(took < seconds, f"{took:.1f} s, wanted less than {seconds} s")


@case("3")
def unique_local_and_deprecated_addresses(place):
    with served(place, "[::]:4433") as links:
        url = f"https://[{SERVER_V6}]:4433/a.txt"
        quick(place, url, 2)
        for number in (0, 1):
            links.address(CLIENT, number, f"fd77:aaaa:{number}::1/64")
        quick(place, url, 2)
        for number in (0, 1):
            links.address(CLIENT, number, f"fd77:aaaa:{number}::1/64", "del")
            links.address(CLIENT, number, f"2001:db8:bad:{number}::1/64", "add", "preferred_lft", "0", "valid_lft", "3600")
        quick(place, url, 2)


@case()
def two_networks_on_each_link(place):
    with served(place, "[::]:4433") as links:
        for number in (0, 1):
            links.address(CLIENT, number, f"2001:db8:bad:{number}::1/64")
        quick(place, f"https://[{SERVER_V6}]:4433/a.txt", 2)
        for number in (0, 1):
            links.run(CLIENT, "ip", "-4", "addr", "flush", "dev", f"eth{number}")
            for address in (f"10.9.{number}.1/24", f"10.77.{number}.1/24"):
                links.run(CLIENT, "ip", "addr", "add", address, "dev", f"eth{number}")
            metric = str(100 * (number + 1))
            links.run(CLIENT, "ip", "route", "add", "default", "via", f"10.77.{number}.2", "dev", f"eth{number}", "metric", metric)
        quick(place, f"https://{SERVER_V4}:4433/a.txt", 2)


@case()
def the_address_that_the_system_chooses_is_silent(place):
    with served(place, "[::]:4433") as links:
        # They have more bits of the server's address than others, and the server has no route to them.
        for number, network in ((0, "8"), (1, "b")):
            links.address(CLIENT, number, f"2001:db8:77:{network}::1/64")
        chosen = links.run(CLIENT, "ip", "-6", "route", "get", SERVER_V6, "oif", "eth0")
        expect("src 2001:db8:77:8::1" in chosen, f"the system chooses {chosen}")
        quick(place, f"https://[{SERVER_V6}]:4433/a.txt", 3)


@case()
def flags_of_addresses_without_proc_net(place):
    """As in the shipped units, with ProcSubset=pid."""
    with Links() as links:
        links.address(CLIENT, 0, "2001:db8:77:0::dead/64", "add", "preferred_lft", "0", "valid_lft", "3600")
        hide = 'mount -t proc -o subset=pid proc /proc && ! test -e /proc/sys && exec "$@"'
        listed = links.run(CLIENT, "unshare", "--mount", "sh", "-c", hide, "sh", rig.MPQUIC, "paths")
        line = next(line for line in listed.splitlines() if "2001:db8:77::dead" in line)
        expect(line.endswith("left out: deprecated"), line)


@case("4")
def a_dead_address_of_the_server(place):
    with served(place, f"{SERVER_V4}:4433") as links:
        links.etc(CLIENT, "hosts", f"2001:db8:77:dead::1 two.example\n{SERVER_V4} two.example\n127.0.0.1 localhost\n")
        links.run(SERVER, "ip", "-6", "route", "add", "blackhole", "2001:db8:77:dead::/64")
        quick(place, "https://two.example:4433/a.txt", 2)
        quick(place, "https://two.example:4433/a.txt", 2)


@case()
def one_link_for_each_ip_version(place):
    with Links() as links:
        write(place / "s/f", bytes(20_000_000))
        place.serve(place / "s", "--listen", f"[{SERVER_V6}]:4433", namespace=SERVER, listen=f"{SERVER_V4}:4433")
        links.etc(CLIENT, "hosts", f"{SERVER_V6} two.example\n{SERVER_V4} two.example\n127.0.0.1 localhost\n")
        links.run(CLIENT, "ip", "-6", "addr", "flush", "dev", "eth0", "scope", "global")
        links.run(CLIENT, "ip", "-4", "addr", "flush", "dev", "eth1")
        code, _, text = place.get("--rate", "100M", "-o", "/dev/null", "https://two.example:4433/f", namespace=CLIENT)
        expect(code == 0 and "over 2 paths" in text, f"exit {code}: {text[-400:]}")


@case("23")
def link_local_servers(place):
    with Links() as links:
        write(place / "s/a.txt", b"hello")
        place.serve(place / "s", namespace=SERVER, listen="[::]:4433")
        address = links.link_local(SERVER, 0)
        for url in (f"https://[{address}%25eth0]:4433/a.txt", f"https://[{address}%eth0]:4433/a.txt"):
            quick(place, url, 5)


@case("23")
def link_local_addresses_in_options(place):
    with Links() as links:
        write(place / "s/a.txt", b"hello")
        server, client = links.link_local(SERVER, 0), links.link_local(CLIENT, 0)
        place.serve(place / "s", namespace=SERVER, listen=f"[{server}%eth0]:4433")
        url = f"https://[{server}%25eth0]:4433/a.txt"
        for local in (client, f"{client}%eth0", f"{client}%25eth0"):
            code, took, text = place.get("-q", "-o", "/dev/null", "--local", local, url, namespace=CLIENT)
            expect(code == 0, f"{local}: exit {code} after {took:.1f} s: {text[-300:]}")


@case("7")
def a_link_that_dies_after_the_first_datagram(place):
    with served(place, f"{SERVER_V4}:4433") as links:
        for _ in range(2):
            links.let_one_datagram_pass(0)
            quick(place, f"https://{SERVER_V4}:4433/a.txt", 3)
            links.let_all_pass()


@case()
def links_that_carry_no_more_than_1280_bytes(place):
    """A ClientHello with a hybrid key exchange takes two datagrams, none of which may be larger than the links carry."""
    for server in (SERVER_V4, f"[{SERVER_V6}]"):
        with served(place, f"{server}:4433") as links:
            links.mtu(1280)
            url = f"https://{server}:4433/a.txt"
            code, _, text = place.get("--json", "--key-exchange", "hybrid", "-o", "/dev/null", url, namespace=CLIENT)
            expect(code == 0 and "X25519MLKEM768" in text, f"exit {code}: {text[-400:]}")


@case()
def an_interface_that_is_absent_yet(place):
    with served(place, f"{SERVER_V4}:4433"):
        url = f"https://{SERVER_V4}:4433/a.txt"
        quick(place, url, 5)
        code, took, text = place.get("-q", "-o", "/dev/null", "--local", "eth0", "--local", "wwan7", url, namespace=CLIENT)
        expect(code == 0, f"exit {code} after {took:.1f} s: {text[-300:]}")


@case()
def an_address_that_is_absent_yet(place):
    with served(place, f"{SERVER_V4}:4433") as links:
        url = f"https://{SERVER_V4}:4433/a.txt"
        code, took, text = place.get("-o", "/dev/null", "--local", "eth0", "--backup", "10.77.0.51", "--local", "10.77.0.51", url, namespace=CLIENT)
        expect(code == 0 and took < 3, f"exit {code} after {took:.1f} s: {text[-300:]}")
        expect(text.count("10.77.0.51 is no address of this machine yet") == 1, text[-300:])
        getting = place.begin_get("-q", "-o", "/dev/null", "--local", "10.77.0.50", url, namespace=CLIENT)
        expect(getting.wait(1) is None, f"it has ended: {getting.said()[-300:]}")
        links.run(CLIENT, "ip", "addr", "add", "10.77.0.50/24", "dev", "eth0")
        expect(getting.wait(5) == 0, f"exit {getting.process.poll()}: {getting.said()[-300:]}")
        link = "https://[fe80::1%25wwan7]:4433"
        client = place.tool("proxy", "client", link, "--pin", place.pin, "--socks", "0", namespace=CLIENT)
        expect(client.wait(3) is None, f"it has ended: {client.said()[-300:]}")
        expect(client.said().count("there is no link `wwan7`") == 1, client.said()[-500:])
