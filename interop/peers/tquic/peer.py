"""TQUIC's own client and server, behind the command line that all peers have."""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import common

# Milliseconds for a handshake, whatever its help says.
PATIENCE = ["--handshake-timeout", "60000"]


def serve(args, programs):
    host, port = common.address(args.listen)
    command = [os.path.join(programs, "tquic_server"), "--listen", f"{host}:{port}"]
    command += ["--root", args.dir, "--cert", args.cert, "--key", args.key]
    command += ["--log-level", args.log] + PATIENCE
    if args.retry:
        command.append("--enable-retry")
    return common.run_server(command, host, port)


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
    parser, server, client = common.parsers(__doc__)
    for role in (server, client):
        role.add_argument("--programs", required=True)
        role.add_argument("--log", default=os.environ.get("TQUIC_LOG", "WARN"))
    return parser.parse_args()


def main():
    args = arguments()
    sys.exit((serve if args.role == "server" else fetch)(args, args.programs))


if __name__ == "__main__":
    main()
