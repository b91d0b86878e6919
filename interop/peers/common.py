"""What the peers in Python have in common: their command line, and servers that are programs of others."""

import argparse
import signal
import socket
import subprocess
import sys
import time


def parsers(description):
    """The parser, and those of the two roles, with the options that all peers have."""
    parser = argparse.ArgumentParser(description=description)
    roles = parser.add_subparsers(dest="role", required=True)
    server = roles.add_parser("server")
    server.add_argument("--listen", required=True)
    server.add_argument("--dir", required=True)
    server.add_argument("--cert", required=True)
    server.add_argument("--key", required=True)
    server.add_argument("--retry", action="store_true")
    client = roles.add_parser("client")
    client.add_argument("urls", nargs="+")
    client.add_argument("--out", required=True)
    client.add_argument("--connections", type=int, default=1)
    client.add_argument("--early-data", action="store_true")
    return parser, server, client


def address(listen):
    """Host and port to listen at; a free port instead of 0."""
    host, _, port = listen.rpartition(":")
    return host, _bind(host, int(port))


def _bind(host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((host.strip("[]"), port))
        return probe.getsockname()[1]


def _is_taken(host, port):
    try:
        _bind(host, port)
    except OSError:
        return True
    return False


def run_server(command, host, port, directory=None):
    """Runs a server until SIGTERM, and tells when it listens; its exit code."""
    server = subprocess.Popen(command, stdout=sys.stderr, cwd=directory)
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    while server.poll() is None and not _is_taken(host, port):
        time.sleep(0.01)
    print("listening on", f"{host}:{port}", flush=True)
    return server.wait()
