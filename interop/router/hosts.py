#!/usr/bin/env python3
"""What the hosts of the LAN do in the rows of interop/router/run: `hosts.py WORK JSON`. WORK is a function, JSON an object with
its arguments. The last line of the output is JSON as well. Times are in seconds.
"""

import array
import asyncio
import errno
import fcntl
import json
import os
import socket
import struct
import sys
import time

from targets import ANSWER, COUNT, HEADER, PIECE, REPORT

TARGET = "45.33.32.10"
# Of Linux: the bytes of a socket that are not acknowledged, the MTU of its route, and whether packets say "don't fragment".
SIOCOUTQ = 0x5411
IP_MTU_DISCOVER, IP_PMTUDISC_DONT, IP_PMTUDISC_DO, IP_MTU = 10, 0, 2, 14
IPV6_MTU_DISCOVER, IPV6_MTU = 23, 24


async def connect(port, seconds=15, target=TARGET):
    """A connection to a port of the target, and how long it took."""
    loop, began = asyncio.get_running_loop(), time.monotonic()
    connection = socket.socket()
    connection.setblocking(False)
    try:
        await asyncio.wait_for(loop.sock_connect(connection, (target, port)), seconds)
    except BaseException:
        connection.close()
        raise
    return connection, time.monotonic() - began


def fault(error):
    """A short name of an error."""
    return errno.errorcode.get(getattr(error, "errno", None), type(error).__name__)


async def download(end, began, port, size=0, target=TARGET):
    """Reads until the end; answers bytes, the first byte's time, and the longest time without a byte until the end."""
    loop, told = asyncio.get_running_loop(), {"bytes": 0, "first": None, "gap": 0.0, "error": None}
    last = began
    try:
        connection, _ = await connect(port, target=target)
        with connection:
            await loop.sock_sendall(connection, b"GET %d\n" % size)
            while (left := end - time.monotonic()) > 0:
                piece = await asyncio.wait_for(loop.sock_recv(connection, 1 << 18), left)
                if not piece:
                    break
                now = time.monotonic()
                if told["first"] is None:
                    told["first"] = now - began
                else:
                    told["gap"] = max(told["gap"], now - last)
                last = now
                told["bytes"] += len(piece)
    except (OSError, TimeoutError) as error:
        if time.monotonic() < end - 0.1:
            told["error"] = fault(error)
    told["seconds"] = time.monotonic() - began
    if not size and told["first"] is not None:
        told["gap"] = max(told["gap"], time.monotonic() - last)
    return told


async def downloads(count, seconds, port=443, target=TARGET):
    """Downloads without an end, all at once."""
    began = time.monotonic()
    return await asyncio.gather(*(download(began + seconds, began, port, target=target) for _ in range(count)))


async def page(count, size, port=443, patience=20):
    """The objects of a page, six at a time as in a browser: the seconds of each."""
    began, slots = time.monotonic(), asyncio.Semaphore(6)

    async def fetch():
        async with slots:
            now = time.monotonic()
            return await download(now + patience, now, port, size)

    objects = await asyncio.gather(*(fetch() for _ in range(count)))
    return {"seconds": time.monotonic() - began, "objects": [one["seconds"] for one in objects],
            "short": sum(one["bytes"] != size for one in objects)}


async def upload(end, began, port, patience, target, share=1):
    """Writes until the end, then waits for the target's notes. `taken` has times and bytes that the router has acknowledged."""
    loop, told, written = asyncio.get_running_loop(), {"taken": [], "received": [], "error": None, "began": began}, 0
    unsent, noted = array.array("i", [0]), 0.0
    try:
        connection, _ = await connect(port, target=target)
        with connection:
            # Otherwise the host's own kernel holds megabytes, and the drain after the end is not the router's alone.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, (64 << 10) // share)
            await loop.sock_sendall(connection, b"PUT\n")
            while (left := end - time.monotonic()) > 0:
                # `sock_sendall` would not say how much of a piece was written at the end.
                try:
                    written += connection.send(PIECE[:16384])
                except BlockingIOError:
                    await asyncio.sleep(min(left, 0.005))
                if time.monotonic() - noted > 0.1:
                    fcntl.ioctl(connection.fileno(), SIOCOUTQ, unsent)
                    noted = time.monotonic()
                    told["taken"].append((noted, written - unsent[0]))
                await asyncio.sleep(0)
            told["ended"] = time.monotonic()
            connection.shutdown(socket.SHUT_WR)
            notes = b""
            while piece := await asyncio.wait_for(loop.sock_recv(connection, 1 << 18), patience):
                notes += piece
            told["received"] = json.loads(notes)
    except (OSError, TimeoutError, ValueError) as error:
        told["error"] = fault(error)
    told["written"] = written
    return told


async def uploads(count, seconds, port=443, patience=90, target=TARGET):
    began = time.monotonic()
    return await asyncio.gather(*(upload(began + seconds, began, port, patience, target, count) for _ in range(count)))


async def opens(seconds, every=0.25, port=443, patience=15):
    """New connections at a steady pace: how long each took to open, and until its first byte."""

    async def once():
        loop, told, began = asyncio.get_running_loop(), {"at": time.monotonic(), "error": None}, time.monotonic()
        try:
            connection, told["connect"] = await connect(port, patience)
            with connection:
                await loop.sock_sendall(connection, b"GET 1\n")
                if not await asyncio.wait_for(loop.sock_recv(connection, 10), patience):
                    told["error"] = "closed"
                told["first"] = time.monotonic() - began
        except (OSError, TimeoutError) as error:
            told["error"] = fault(error)
            told["after"] = time.monotonic() - began
        return told

    return await paced(once, seconds, every)


async def paced(once, seconds, every):
    tasks, began = [], time.monotonic()
    for number in range(int(seconds / every)):
        await asyncio.sleep(max(0, began + number * every - time.monotonic()))
        tasks.append(asyncio.create_task(once()))
    return await asyncio.gather(*tasks)


async def names(seconds, every=0.25, patience=5):
    """Questions to a name server, each from a new port: the seconds of each, `None` without an answer."""

    async def once():
        loop, began = asyncio.get_running_loop(), time.monotonic()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.setblocking(False)
            udp.connect((TARGET, 53))
            try:
                udp.send(HEADER.pack(ANSWER, 200, 0, 0).ljust(40, b"\0"))
                await asyncio.wait_for(loop.sock_recv(udp, 1000), patience)
                return time.monotonic() - began
            except (OSError, TimeoutError):
                return None

    return await paced(once, seconds, every)


async def call(seconds, per_second=50, size=172, port=9000):
    """A call, both ways: how many payloads did not come back, the most of them in a row, the delays, and the longest silence."""
    loop, delays, silence, count = asyncio.get_running_loop(), {}, 0.0, int(seconds * per_second)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setblocking(False)
        udp.connect((TARGET, port))

        async def listen():
            nonlocal silence
            last = time.monotonic()
            while True:
                data = await loop.sock_recv(udp, 4096)
                _, _, number, sent = HEADER.unpack_from(data)
                now = time.monotonic()
                silence, last = max(silence, now - last), now
                delays.setdefault(number, now - sent)

        listening, began = asyncio.create_task(listen()), time.monotonic()
        for number in range(count):
            await asyncio.sleep(max(0, began + number / per_second - time.monotonic()))
            try:
                udp.send(HEADER.pack(ANSWER, size, number, time.monotonic()).ljust(size, b"\0"))
            except OSError:
                pass
        await asyncio.sleep(2)
        listening.cancel()
    run = most = 0
    for number in range(count):
        run = 0 if number in delays else run + 1
        most = max(most, run)
    return {"count": count, "lost": count - len(delays), "run": most, "silence": silence, "delays": sorted(delays.values())}


async def torrent(flows, opening, seconds, bulk=0):
    """One socket asks up to 5,000 nodes, of which half answer, and asks each of them again every ten seconds. `bulk` of the nodes get
    20 payloads of 1200 bytes a second."""
    loop, answered = asyncio.get_running_loop(), set()
    # Even nodes are in networks that the target answers for, odd ones in networks that swallow everything.
    nodes = [(f"45.33.{(40, 52)[number % 2] + number // 500}.{1 + number // 2 % 250}", 6881) for number in range(flows)]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        udp.setblocking(False)

        def heard():
            try:
                while True:
                    answered.add(HEADER.unpack_from(udp.recv(2000))[2])
            except OSError:
                pass

        def ask(number, size=110, kind=ANSWER):
            try:
                udp.sendto(HEADER.pack(kind, 400, number, 0).ljust(size, b"\0"), nodes[number])
            except OSError:
                pass

        loop.add_reader(udp.fileno(), heard)
        began, asked, fed = time.monotonic(), 0, 0
        while (now := time.monotonic() - began) < seconds:
            # In the first `opening` seconds each node once, afterwards the tenth part of all each second.
            due = int(flows * now / opening) if now < opening else int(flows + flows * (now - opening) / 10)
            while asked < due:
                ask(asked % flows)
                asked += 1
            while bulk and fed < now * 20 * bulk:
                ask(fed % bulk * 2, 1200, COUNT)
                fed += 1
            await asyncio.sleep(0.01)
        loop.remove_reader(udp.fileno())
    return {"asked": asked, "answering": len(range(0, flows, 2)), "answered": len(answered)}


async def idle(count, seconds, port=443):
    """Connections without data: how many are open at the end, and the errors of the others."""
    errors, held = {}, []

    async def once():
        try:
            held.append((await connect(port))[0])
        except (OSError, TimeoutError) as error:
            errors[fault(error)] = errors.get(fault(error), 0) + 1

    for _ in range(0, count, 50):
        await asyncio.gather(*(once() for _ in range(50)))
    print("held", flush=True)
    await asyncio.sleep(seconds)
    return {"open": len(held), "errors": errors}


async def talks(count, seconds, every=0.5, port=22):
    """Sessions that say a line again and again until an end: how many live, the errors, the longest wait for an answer."""

    async def once():
        loop, told, began = asyncio.get_running_loop(), {"error": None, "longest": 0.0, "lines": 0}, time.monotonic()
        try:
            connection, _ = await connect(port)
            with connection:
                await loop.sock_sendall(connection, b"TALK\n")
                while time.monotonic() - began < seconds:
                    sent = time.monotonic()
                    await loop.sock_sendall(connection, b"x" * 100)
                    left = 100
                    while left > 0:
                        piece = await loop.sock_recv(connection, left)
                        if not piece:
                            raise ConnectionAbortedError(errno.ECONNABORTED, "closed")
                        left -= len(piece)
                    told["longest"] = max(told["longest"], time.monotonic() - sent)
                    told["lines"] += 1
                    await asyncio.sleep(every)
        except (OSError, TimeoutError) as error:
            told["error"], told["after"] = fault(error), time.monotonic() - began
        return told

    # A session whose answer never comes must not hold the row.
    return await asyncio.wait_for(asyncio.gather(*(once() for _ in range(count))), seconds + 60)


def asked(size, answer, fragment, tries, target=TARGET, port=9001):
    """Sends payloads of a size and counts the answers; also whether the network has told of a smaller MTU."""
    answers, told, is_v6 = 0, False, ":" in target
    level, discover, mtu = (socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, IPV6_MTU) if is_v6 else (socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_MTU)
    with socket.socket(socket.AF_INET6 if is_v6 else socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setsockopt(level, discover, IP_PMTUDISC_DONT if fragment else IP_PMTUDISC_DO)
        udp.settimeout(0.7)
        udp.connect((target, port))
        for number in range(tries):
            try:
                udp.send(HEADER.pack(ANSWER, answer, number, 0).ljust(size, b"\0"))
                answers += len(udp.recv(70000)) == max(answer, HEADER.size)
            except TimeoutError:
                pass
            except OSError as error:
                told = told or error.errno == errno.EMSGSIZE
        known = udp.getsockopt(level, mtu)
        told = told or known < size + (48 if is_v6 else 28)
    return {"size": size, "answer": answer, "answers": answers, "told": told, "mtu": known}


async def sizes(pairs, fragment, tries=3, target=TARGET):
    """Payloads of these sizes, with answers of these sizes."""
    return [asked(size, answer, fragment, tries, target) for size, answer in pairs]


async def ping(sizes, tries=3, target=TARGET):
    """Echo requests with these sizes of payload: how many of them are answered."""
    answers = {size: 0 for size in sizes}
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as raw:
        raw.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT)
        raw.settimeout(0.7)
        raw.connect((target, 0))
        for size in sizes:
            for number in range(tries):
                body = struct.pack(">BBHHH", 8, 0, 0, os.getpid() & 0xffff, number) + bytes(size)
                total = sum(word for word, in struct.iter_unpack(">H", body + bytes(len(body) % 2)))
                total = (total & 0xffff) + (total >> 16)
                checksum = ~((total & 0xffff) + (total >> 16)) & 0xffff
                raw.send(body[:2] + struct.pack(">H", checksum) + body[4:])
                try:
                    while True:
                        packet = raw.recv(70000)
                        if packet[20] == 0 and packet[24:28] == body[4:8]:
                            answers[size] += len(packet) == 28 + size
                            break
                except TimeoutError:
                    pass
    return answers


async def flood(seconds, megabits, port, size=1200):
    """UDP at a rate, which the target counts: the bytes that were sent, and that came."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.settimeout(5)
        udp.connect((TARGET, port))
        before = counted(udp)
        began, sent = time.monotonic(), 0
        while (now := time.monotonic() - began) < seconds:
            while sent * size * 8 < now * megabits * 1e6:
                udp.send(HEADER.pack(COUNT, 0, sent, 0).ljust(size, b"\0"))
                sent += 1
            await asyncio.sleep(0.002)
        # What still waits in queues has another second.
        await asyncio.sleep(1)
        return {"sent": sent * size, "came": counted(udp) - before}


def counted(udp):
    """What the target has counted; it is asked again if an answer is lost."""
    for _ in range(5):
        udp.send(HEADER.pack(REPORT, 0, 0, 0))
        try:
            return int(udp.recv(1000)[HEADER.size:].rstrip(b"\0"))
        except TimeoutError:
            continue
    return 0


if __name__ == "__main__":
    print(json.dumps(asyncio.run(globals()[sys.argv[1]](**json.loads(sys.argv[2])))), flush=True)
