"""ngtcp2's own client and server, which speak HTTP/3 (nghttp3), behind the command line that all peers have."""

import os
import subprocess
import sys
from urllib.parse import urlparse

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import common


def serve(args):
    host, port = common.address(args.listen)
    command = ["gtlsserver", "--quiet", "--htdocs", args.dir, host.strip("[]"), str(port)]
    return common.run_server(command + [args.key, args.cert], host, port)


def fetch(args):
    first = urlparse(args.urls[0])
    command = ["gtlsclient", "--quiet", "--exit-on-all-streams-close"]
    command += ["--download", args.out, first.hostname, str(first.port)]
    for _ in range(args.connections):
        done = subprocess.run(command + args.urls, stdout=sys.stderr, check=False)
        if done.returncode != 0:
            return done.returncode
    return 0


def main():
    parser, server, client = common.parsers(__doc__)
    for role in (server, client):
        role.add_argument("--alpn", choices=["h3"], required=True)
    args = parser.parse_args()
    sys.exit(serve(args) if args.role == "server" else fetch(args))


if __name__ == "__main__":
    main()
