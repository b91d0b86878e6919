"""TQUIC's own client and server, behind the command line that all peers have."""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

# Milliseconds for a handshake, whatever its help says.
PATIENCE = ["--handshake-timeout", "60000"]


def bind(host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.bind((host, port))
        return probe.getsockname()[1]


def is_taken(host, port):
    try:
        bind(host, port)
    except OSError:
        return True
    return False


def serve(args, programs):
    host, _, port = args.listen.rpartition(":")
    port = bind(host.strip("[]"), int(port))
    address = f"{host}:{port}"
    command = [os.path.join(programs, "tquic_server"), "--listen", address, "--root", args.dir]
    command += ["--cert", args.cert, "--key", args.key, "--log-level", args.log] + PATIENCE
    if args.retry:
        command.append("--enable-retry")
    server = subprocess.Popen(command, stdout=sys.stderr)
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    while server.poll() is None and not is_taken(host.strip("[]"), port):
        time.sleep(0.01)
    print("listening on", address, flush=True)
    return server.wait()


def fetch(args, programs):
    with tempfile.TemporaryDirectory() as scratch:
        count = str(len(args.urls))
        address = args.urls[0].removeprefix("https://").split("/")[0]
        command = [os.path.join(programs, "tquic_client"), "--connect-to", address]
        command += ["--alpn", "hq-interop", "--dump-dir", args.out, "--log-level", args.log]
        command += ["--max-requests-per-conn", count, "--total-requests-per-thread", count]
        command += ["--max-concurrent-requests", count, "--connection-failure-threshold", "1"]
        command += ["--session-file", os.path.join(scratch, "session"), "--duration", "100"]
        command += PATIENCE
        if args.early_data:
            command.append("--enable-early-data")
        for _ in range(args.connections):
            done = subprocess.run(command + args.urls, stdout=subprocess.PIPE, text=True, check=False)
            sys.stderr.write(done.stdout)
            # Its exit code does not tell.
            if done.returncode != 0 or f"success {count}\n" not in done.stdout:
                return 1
    return 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
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
    for role in (server, client):
        role.add_argument("--programs", required=True)
        role.add_argument("--log", default=os.environ.get("TQUIC_LOG", "WARN"))
    return parser.parse_args()


def main():
    args = arguments()
    sys.exit((serve if args.role == "server" else fetch)(args, args.programs))


if __name__ == "__main__":
    main()
