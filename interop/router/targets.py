#!/usr/bin/env python3
"""What the hosts of interop/router/run talk to, beyond the proxy's server: `targets.py tcp` and `targets.py udp`.

A TCP connection begins with a line. `GET N` gets N bytes, or bytes without an end if N is 0. After `PUT` all bytes are read; the
answer is a JSON list of pairs: a time, and the bytes until then. After `TALK` all bytes come back.

A UDP payload begins with `HEADER`: whether to answer, the size of the answer, a number and a time. Answers repeat the header. A
payload with `REPORT` is answered with the bytes that came without a wish for an answer.
"""

import asyncio
import json
import os
import socket
import struct
import sys
import threading
import time

# The services: HTTPS, SSH, HTTP, remote desktop, and three for rules of `--class`.
TCP_PORTS = (443, 22, 80, 3389, 7001, 7002, 7003)
# DNS, HTTP/3, SIP, BitTorrent, a call, a game.
UDP_PORTS = (53, 443, 5060, 6881, 9000, 9001)
HEADER = struct.Struct(">cHQd")
ANSWER, COUNT, REPORT = b"a", b"c", b"r"
# How often a receiver of an upload notes its bytes, in seconds.
NOTE = 0.05
PIECE = bytes(65536)
# `IP_PKTINFO` of Linux: the address that a packet was sent to, and that its answer comes from.
IP_PKTINFO = 8


async def get(connection, count):
    loop, left = asyncio.get_running_loop(), count or 1 << 60
    while left > 0:
        piece = PIECE[:min(left, len(PIECE))]
        await loop.sock_sendall(connection, piece)
        left -= len(piece)


async def put(connection, begun):
    loop, total, notes, noted = asyncio.get_running_loop(), len(begun), [], 0.0
    while piece := await loop.sock_recv(connection, len(PIECE)):
        total += len(piece)
        now = time.monotonic()
        if now - noted > NOTE:
            notes.append((now, total))
            noted = now
    notes.append((time.monotonic(), total))
    await loop.sock_sendall(connection, json.dumps(notes).encode())


async def talk(connection, begun):
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(connection, begun)
    while line := await loop.sock_recv(connection, 4096):
        await loop.sock_sendall(connection, line)


async def serve(connection):
    loop, text = asyncio.get_running_loop(), b""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        while b"\n" not in text:
            piece = await loop.sock_recv(connection, 4096)
            if not piece:
                return
            text += piece
        line, _, begun = text.partition(b"\n")
        word, _, number = line.decode().partition(" ")
        if word == "GET":
            await get(connection, int(number))
        elif word == "PUT":
            await put(connection, begun)
        else:
            await talk(connection, begun)
    except OSError:
        pass
    finally:
        connection.close()


async def listen(port):
    loop = asyncio.get_running_loop()
    listener = socket.create_server(("", port), backlog=1024)
    listener.setblocking(False)
    serving = set()
    while True:
        connection, _ = await loop.sock_accept(listener)
        connection.setblocking(False)
        task = asyncio.create_task(serve(connection))
        serving.add(task)
        task.add_done_callback(serving.discard)


async def tcp():
    tasks = [asyncio.create_task(listen(port)) for port in TCP_PORTS]
    await asyncio.sleep(0.1)
    print("ready", flush=True)
    await asyncio.gather(*tasks)


def udp_port(port):
    """Answers on a port, from the address that was asked."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setsockopt(socket.IPPROTO_IP, IP_PKTINFO, 1)
        udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        udp.bind(("", port))
        counted = 0
        while True:
            data, ancillary, _, peer = udp.recvmsg(70000, 100)
            if len(data) < HEADER.size:
                continue
            kind, size, _, _ = HEADER.unpack_from(data)
            if kind == COUNT:
                counted += len(data)
                continue
            answer = data[:HEADER.size] + (b"%d" % counted if kind == REPORT else b"")
            answer += bytes(max(0, size - len(answer)))
            # The answer comes from the address that the kernel calls local: the second one of three words.
            local = ancillary[0][2][4:8] if ancillary else bytes(4)
            info = bytes(4) + local + bytes(4)
            try:
                udp.sendmsg([answer], [(socket.IPPROTO_IP, IP_PKTINFO, info)], 0, peer)
            except OSError:
                pass


def udp_v6(port):
    """Answers on a port, over IPv6, where the target has one address."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as udp:
        udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        udp.bind(("", port))
        while True:
            data, peer = udp.recvfrom(70000)
            if len(data) >= HEADER.size and (size := HEADER.unpack_from(data)[1]) is not None:
                udp.sendto(data[:HEADER.size] + bytes(max(0, size - HEADER.size)), peer)


def main():
    if sys.argv[1] == "tcp":
        asyncio.run(tcp())
    for port in UDP_PORTS:
        threading.Thread(target=udp_port, args=(port,), daemon=True).start()
    threading.Thread(target=udp_v6, args=(9001,), daemon=True).start()
    time.sleep(0.1)
    print("ready", flush=True)
    while os.getppid() > 1:
        time.sleep(1)


if __name__ == "__main__":
    main()
