"""A local writer that replaces directories below a served one as fast as it can, until SIGTERM. Standard library only.

    swap.py exchange ROOT      exchanges ROOT/d (a directory) and ROOT/l (a link that leads outside), by renameat2
    swap.py rename ROOT        the same with three renames
    swap.py bind ROOT OUTSIDE  mounts OUTSIDE/x on ROOT/d and takes it away; for root, in a mount namespace of its own
"""

import ctypes
import json
import os
import signal
import sys

AT_FDCWD, RENAME_EXCHANGE, MS_BIND, MNT_DETACH = -100, 2, 4096, 2
LIBC = ctypes.CDLL(None, use_errno=True)
TOLD = {"swaps": 0}


def stop(*_):
    print(json.dumps(TOLD), flush=True)
    raise SystemExit


def checked(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def exchange(directory, link, *_):
    checked(LIBC.renameat2(AT_FDCWD, directory, AT_FDCWD, link, RENAME_EXCHANGE))


def rename(directory, link, aside, *_):
    os.rename(directory, aside)
    os.rename(link, directory)
    os.rename(aside, link)


def bind(directory, _, __, outside):
    checked(LIBC.mount(outside + b"/x", directory, None, MS_BIND, None))
    checked(LIBC.umount2(directory, MNT_DETACH))


def main():
    what, root = sys.argv[1], sys.argv[2].encode()
    outside = sys.argv[3].encode() if len(sys.argv) > 3 else b""
    signal.signal(signal.SIGTERM, stop)
    act = {"exchange": exchange, "rename": rename, "bind": bind}[what]
    print("ready", flush=True)
    while True:
        act(root + b"/d", root + b"/l", root + b"/aside", outside)
        TOLD["swaps"] += 1


main()
