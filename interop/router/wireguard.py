"""WireGuard between a LAN host and the target, by wireguard-go, for interop/router/run.

WIREGUARD_GO names the program. Otherwise `go install` builds it into interop/router/target.
"""

import os
import pathlib
import shutil
import socket
import subprocess
import time

import lab as network

HERE = pathlib.Path(__file__).resolve().parent
MODULE = "golang.zx2c4.com/wireguard@latest"
NEAR, FAR = "10.9.0.1", "10.9.0.2"
PORT = 51820
SOCKETS = pathlib.Path("/var/run/wireguard")


def program():
    """The path of wireguard-go; `None` without Go."""
    built = HERE / "target/wireguard"
    if "WIREGUARD_GO" in os.environ:
        return pathlib.Path(os.environ["WIREGUARD_GO"])
    if not built.exists():
        go = shutil.which("go") or "/usr/local/go/bin/go"
        if not pathlib.Path(go).exists():
            return None
        built.parent.mkdir(exist_ok=True)
        subprocess.run([go, "install", MODULE], env={**os.environ, "GOBIN": str(built.parent)}, check=True, capture_output=True)
    return built


def keys():
    """A private key and its public key in hexadecimal digits."""
    private = subprocess.run(["openssl", "genpkey", "-algorithm", "X25519", "-outform", "DER"], check=True, capture_output=True).stdout
    public = subprocess.run(["openssl", "pkey", "-inform", "DER", "-pubout", "-outform", "DER"], input=private, check=True,
                            capture_output=True).stdout
    return private[-32:].hex(), public[-32:].hex()


class Tunnel:
    """The tunnel; its ends are `NEAR` and `FAR`."""

    def __init__(self, lab, program):
        self.lab, self.program = lab, program
        number = lab.netlab.pid % 100_000
        self.devices = {"a": f"wga{number}", "target": f"wgt{number}"}
        self.processes = []

    def __enter__(self):
        pairs = {space: keys() for space in self.devices}
        # The target first: a handshake that nobody answers is repeated after five seconds.
        for space, other, address in (("target", "a", FAR), ("a", "target", NEAR)):
            device = self.devices[space]
            self.processes.append(self.lab.start(space, self.program, "-f", device))
            endpoint = f"endpoint={network.DIRECT}:{PORT}\n" if space == "a" else ""
            configure(device, f"set=1\nprivate_key={pairs[space][0]}\nlisten_port={PORT}\npublic_key={pairs[other][1]}\n{endpoint}"
                              "allowed_ip=10.9.0.0/24\npersistent_keepalive_interval=25\n\n")
            self.lab.ip(space, f"addr add {address}/24 dev {device}\nlink set {device} mtu 1420 up\n")
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.stop()


def configure(device, text):
    """Tells wireguard-go a configuration, once its socket is there."""
    end = time.monotonic() + 5
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as stream:
                stream.connect(str(SOCKETS / f"{device}.sock"))
                stream.sendall(text.encode())
                answer = stream.recv(1000)
                if b"errno=0" not in answer:
                    raise network.rig.Fault(f"wireguard-go says {answer!r}")
                return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
