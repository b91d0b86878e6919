"""picoquic's own client and server, behind the command line that all peers have, and --alpn."""

import os
import socket
import subprocess
import sys
import tempfile
from urllib.parse import urlparse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import common

# Packets received before a key update.
PACKETS_BEFORE_UPDATE = 400
# BBR, its default, takes a loopback whose processes wait for each other for a slow network.
CONTROLLER = ["-G", "cubic"]
# The interface of loopback, which an address of a path is given with.
LOOPBACK = socket.if_nametoindex("lo")


def serve(args):
    # It listens at all addresses.
    host, port = common.address(args.listen)
    command = [args.program, "-p", str(port), "-w", args.dir, "-c", args.cert, "-k", args.key]
    command += ["-M", "-a", args.alpn] + CONTROLLER
    if args.retry:
        command.append("-r")
    with tempfile.TemporaryDirectory() as scratch:
        code = common.run_server(command, host, port, scratch)
        print("picoquicdemo ended with", code, file=sys.stderr)
        return code


def drilled(drill):
    """The options for what is to be done in the middle of the transfer."""
    options = []
    for step in filter(None, drill.split(",")):
        name, _, _ = step.partition("=")
        if name == "update-keys" and "-u" not in options:
            options += ["-u", str(PACKETS_BEFORE_UPDATE)]
        elif name == "move":
            # To another port, which is another address as far as QUIC goes.
            options += ["-f", "3"]
        else:
            sys.exit(f"error: picoquicdemo has no {step}")
    return options


def fetch(args):
    urls = [urlparse(url) for url in args.urls]
    # Each on the next stream, without waiting for the one before.
    part = f":#bytes={args.range}" if args.range else ""
    scenario = "".join(f"{4 * number}:-:{url.path}{part};" for number, url in enumerate(urls))
    command = [args.program, "-a", args.alpn, "-o", os.path.abspath(args.out), "-n", "localhost"]
    command += CONTROLLER
    command += drilled(args.drill)
    if args.paths > 1:
        locals_ = [f"127.0.0.{number}/{LOOPBACK}" for number in range(2, args.paths + 1)]
        command += ["-M", "-A", ",".join(locals_)]
    with tempfile.TemporaryDirectory() as scratch:
        command += ["-T", os.path.join(scratch, "tickets"), "-N", os.path.join(scratch, "tokens")]
        command += [urls[0].hostname, str(urls[0].port), scenario]
        for _ in range(args.connections):
            done = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, check=False, cwd=scratch
            )
            sys.stderr.write(done.stdout)
            # Its exit code does not tell.
            if done.returncode != 0 or "Client exit with code = 0\n" not in done.stdout:
                return 1
    return 0


def arguments():
    parser, server, client = common.parsers(__doc__)
    # With --early-data or without, it sends 0-RTT data whenever it has a ticket.
    client.add_argument("--paths", type=int, default=1)
    client.add_argument("--drill", default="")
    client.add_argument("--range")
    for role in (server, client):
        role.add_argument("--program", required=True)
        role.add_argument("--alpn", default="hq-interop", choices=["hq-interop", "h3"])
    return parser.parse_args()


def main():
    args = arguments()
    sys.exit(serve(args) if args.role == "server" else fetch(args))


if __name__ == "__main__":
    main()
