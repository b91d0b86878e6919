"""Cases about the proxy."""

import contextlib
import socket
import subprocess

from place import case, echo, expect, proxy, socks_reply, tcp_server


def http_origin(name, seen):
    """An HTTP server that keeps its connections and notes the requests."""
    def one(connection):
        waiting = b""
        with contextlib.suppress(OSError):
            while True:
                while b"\r\n\r\n" not in waiting:
                    more = connection.recv(65536)
                    if not more:
                        return
                    waiting += more
                head, waiting = waiting.split(b"\r\n\r\n", 1)
                seen.append(head)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(name), name))

    return tcp_server(one)


@case("2")
def kept_connection_of_the_http_entrance(place):
    first, second = [], []
    a, b = http_origin(b"A", first), http_origin(b"B", second)
    proxy(place, "--http", "127.0.0.1:4741", server=("--allow", "127.0.0.0/8"))
    by = ["-s", "-m", "5", "-x", "http://127.0.0.1:4741"]
    out = subprocess.run(["curl", *by, f"http://127.0.0.1:{a}/1", "--next", *by, "-H", "Cookie: b=1",
                          f"http://127.0.0.1:{b}/secret"], capture_output=True).stdout
    expect(out == b"AB", f"curl printed {out}")
    expect(len(first) == 1 and len(second) == 1, f"{len(first)} requests at A, {len(second)} at B")
    expect(not any(b"Cookie" in head for head in first), "the cookie of B went to A")


@case("13a")
def many_udp_flows(place):
    answers = echo()
    target = f"127.0.0.1:{answers.getsockname()[1]}"
    proxy(place, "-L", f"udp:127.0.0.1:4742:{target}", server=("--allow", "127.0.0.0/8"))
    answered = 0
    for number in range(600):
        if number - answered > 5:
            break
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as query:
            query.settimeout(1)
            query.connect(("127.0.0.1", 4742))
            query.send(b"%d" % number)
            with contextlib.suppress(OSError):
                answered += query.recv(100) == b"%d" % number
    answers.close()
    expect(answered >= 595, f"{answered} of 600 queries from as many ports were answered")


@case("14a")
def denied_addresses_in_other_forms(place):
    proxy(place, "--socks", "127.0.0.1:4743", server=("--deny", "1.2.3.4"))
    names = ("1.2.3.4", "::ffff:1.2.3.4", "64:ff9b::1.2.3.4", "2002:102:304::1")
    replies = {name: socks_reply(("127.0.0.1", 4743), name, 80) for name in names}
    expect(all(reply == 2 for reply in replies.values()), f"replies {replies}, wanted 2 for each")
