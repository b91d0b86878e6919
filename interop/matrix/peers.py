"""The peers: how they are installed, and what they cannot do."""

import os
import subprocess
from dataclasses import dataclass, field

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

NAMES = ["quinn", "noq", "s2n-quic", "quiche", "tquic", "quic-go", "aioquic", "ngtcp2", "picoquic"]
# CI runs these: each other peer takes minutes to build.
SMOKE = ["quinn", "noq"]
MULTIPATH = ["noq", "picoquic"]
# Those whose programs here speak HTTP/3 as well.
HTTP3 = ["quic-go", "aioquic", "ngtcp2", "picoquic"]

SERVE, FETCH = "serve", "fetch"

V1_ONLY = "speaks QUIC version 1 only"
NO_PATH_STEPS = "picoquicdemo has no option to abandon a path or to change its status"
# What a stack cannot do: as a client ("serve": mpquic is the server), as a server, or at all.
LIMITS = {
    "quinn": {"v2": V1_ONLY},
    "noq": {"v2": V1_ONLY},
    "ngtcp2": {
        "v2": "ngtcp2 0.12 has version 2 under the number of a draft only",
        ("range", SERVE): "ngtcp2's client has no option for a field of a request",
        ("range", FETCH): "ngtcp2's server sends whole files only",
    },
    "s2n-quic": {
        "v2": V1_ONLY,
        "resumption": "s2n-quic sends and reads TLS tickets only with the s2n-tls provider and its"
        " feature unstable_resumption, where nobody can trust a self-signed certificate",
        "zerortt": "s2n-quic does not keep the header keys of 0-RTT packets",
        ("keyupdate", SERVE): "s2n-quic updates keys only close to the limit of the cipher",
        ("connectionmigration", SERVE): "s2n-quic clients cannot change their address",
    },
    "quiche": {
        "v2": V1_ONLY,
        ("keyupdate", SERVE): "quiche follows key updates, but starts none",
        "ecn": "quiche neither marks packets nor counts marks",
        ("rebind-port", FETCH): "quiche's server does not give up for lost what was under way to"
        " the old address",
        ("rebind-addr", FETCH): "quiche's server does not give up for lost what was under way to"
        " the old address",
        ("connectionmigration", FETCH): "quiche's server does not give up for lost what was under"
        " way to the old address",
    },
    "tquic": {
        "v2": V1_ONLY,
        ("keyupdate", SERVE): "TQUIC's client has no way to start a key update",
        "ecn": "TQUIC neither marks packets nor counts marks",
        ("rebind-port", FETCH): "TQUIC's server stays at the old address",
        ("rebind-addr", FETCH): "TQUIC's server stays at the old address",
        "connectionmigration": "TQUIC does not migrate (migrate_path is empty)",
    },
    "quic-go": {
        ("v2", FETCH): "quic-go's server announces no version_information, which version 2 needs",
    },
    "aioquic": {
        "ecn": "aioquic neither marks packets nor counts marks",
    },
    "picoquic": {
        "v2": "picoquicdemo changes the version of a connection only when it is told to what",
        ("range", FETCH): "picoquicdemo's server sends whole files only",
        ("abandon-client", SERVE): NO_PATH_STEPS,
        ("abandon-server", FETCH): NO_PATH_STEPS,
        ("status", SERVE): NO_PATH_STEPS,
        ("pathids", SERVE): NO_PATH_STEPS,
        ("pathids", FETCH): "picoquicdemo's server crashes (SIGSEGV) when paths are renewed often",
        "morepaths": "picoquicdemo allows three paths at a time",
    },
}


@dataclass
class Peer:
    """A peer that is installed."""

    name: str
    version: str
    command: str
    multipath: bool = field(default=False)

    def limit(self, case, direction):
        """Why the peer cannot do this; `None` if it can."""
        if case in ("http3", "range") and self.name not in HTTP3:
            return "the peer's program speaks HTTP/0.9 only"
        limits = LIMITS.get(self.name, {})
        return limits.get((case, direction)) or limits.get(case)


def install(name):
    """Installs a peer by its script, which ends with a line of version and program."""
    script = os.path.join(HERE, "peers", name, "install")
    done = subprocess.run([script], stdout=subprocess.PIPE, text=True, check=True)
    version, command = done.stdout.splitlines()[-1].split("\t")
    return Peer(name, version, command, name in MULTIPATH)
