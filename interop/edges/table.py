"""The table of reports: what other projects' users reported, and which cases and tests show that the tool does not have it.

A case names the keys of its rows. Rows 1 to 27 were faults of the tool, rows with a word were right from the beginning.
"""

import collections
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
# `tests` are arguments of `cargo test`; `note` says which part of the report no case tries, and why.
Row = collections.namedtuple("Row", "key reports tried tests note", defaults=((), ""))
CORE, CLI, UNITS = "-p mpquic-core --test all", "-p mpquic-cli --test cli", "-p mpquic-core --lib"

ROWS = [
    Row("1a", "moondownloader#114, httpdownloader#319, yt-dlp#1066, llama.cpp#28803", "two transfers share one part file"),
    Row("1b", "moondownloader#114, httpdownloader#319, yt-dlp#1066, llama.cpp#28803", "a part file of somebody else is overwritten"),
    Row("2", "go-gost/gost#592, fluxzy.core#719", "a kept connection of the HTTP entrance goes to the wrong host"),
    Row("3", "curl#1764, curl#686, openwrt/packages#21782, pjproject#2217, cpp-httplib#1243", "ULA and deprecated addresses first"),
    Row("4", "EpicGames/lore#79, aioquic#550, sing-box#4152", "one address of a name is dead"),
    Row("5", "hyperium/headers#230, actix-web#2748, miniserve#1288", "files dated before 1970 and after 9999"),
    Row("6", "magic-wormhole#363, strata#641", "a pipe in a tree and as output"),
    Row("7", "noq#512, UniClipboard#696", "a link dies within the handshake"),
    Row("8", "masque-go#15, draft-ietf-masque-connect-ip#45, usque#123", "payloads larger than a packet through SOCKS and `--tun`"),
    Row("9", "curl#473, curl#4445, wreq-js#218", "Location raw, with blanks, or missing"),
    Row("10", "modelscope_hub#50 and kin", "the rest of a file from servers with odd answers"),
    Row("11", "s3cmd#803, fd#251, broot#1094", "names that are not UTF-8"),
    Row("12", "static-web-server#699, #47", "the served directory is a link that is switched"),
    Row("13a", "gvisor-tap-vsock#621 kind", "more than 256 flows on a forwarded UDP port"),
    Row("13b", "gvisor-tap-vsock#621 kind", "300 targets of a SOCKS association"),
    Row("13c", "gvisor-tap-vsock#621 kind", "563 flows of `--tun`"),
    Row("14a", "fastmcp#4400, langflow#14174, librefang#2409", "denied IPv4 addresses within IPv6 addresses"),
    Row("14b", "fastmcp#4400, langflow#14174, librefang#2409", "private IPv4 addresses as 6to4, Teredo, ISATAP, NAT64, ::/96"),
    Row("15", "BaiduPCS-Go#316, owncloud#25425", "names of 241 to 255 bytes"),
    Row("16", "quic-go#4647, xquic#746, #793, nghttp2#2883, quic-go#5780", "malformed HTTP/3 from clients and servers"),
    Row("17", "GHSA-f3pg-qwvg-p99c, golang/go#39017", "`Content-Length: +5`"),
    Row("18", "GHSA-xwfj-jgwm-7wp5 kind", "lines in the reason of a close"),
    Row("19", "hyper#1570, phala#1479", "600 names that hang"),
    Row("20", "fish#4007, mir#1734, hertz#441", "nohup"),
    Row("21", "zoxy#167, h2o#1742", "rotation of the access log"),
    Row("22", "libsystemd-rs#122, pebble#1046", "an abstract NOTIFY_SOCKET"),
    Row("23", "msquic#3813, curl#21728, okhttp#1706", "link-local servers"),
    Row("24", "js-libp2p-quic#28, encrypted-dns-server#9", "0.0.0.0 and [::] with one port"),
    Row("25a", "webpki#205, reqwest#2041", "a certificate of a server that is its own authority"),
    Row("25b", "rustls#1246, rustls-native-certs#5", "a broken certificate in a bundle"),
    Row("25c", "tinyproxy#101, curl#21663", "WebSocket through the HTTP entrance", note="`http` URLs; programs send CONNECT for `ws` URLs"),
    Row("25d", "hyper-util#302", "`[::1]` as a name in SOCKS"),
    Row("25e", "badvpn#104, v2ray#2610", "the family of the address in a SOCKS reply"),
    Row("25f", "hackney#935, corefx#31305", "fields of connections in `-H`"),
    Row("25g", "RFC 9114 5.2 cases", "a request behind the client's own GOAWAY"),
    Row("25h", "curl and wget", "203, 204 and 205 for GET"),
    Row("25i", "IDN (curl kind)", "`https://b\u00fccher.example`"),
    Row("25j", "proxies kind", "`` ` `` in a path, `\"` in a query"),
    Row("empty", "werkzeug#1937, rack#2159", "Range, HEAD and --continue on an empty file"),
    Row("4GiB", "aria2, curl kind", "more than 4 GiB, sparse, killed and continued", note="the part is prolonged, instead of fetched, up to 4 GiB"),
    Row("cut", "aria2 kind", "files cut or grown while they are served or sent"),
    Row("names", "wget kind", "odd names there and back"),
    Row("grease", "picoquic#1537 and kin", "reserved frames, streams and settings, 1xx, trailers, tiny frames"),
    Row("retry", "curl kind", "503 with Retry-After, REQUEST_REJECTED, GOAWAY of the server, 416"),
    Row("parameters", "ngtcp2#2157, quinn#210", "transport parameters of all sizes"),
    Row("done", "quic-go CVE-2025-59530", "HANDSHAKE_DONE too early"),
    Row("zero", "curl#19978, ngtcp2#1134", "empty UDP datagrams to `serve` and through SOCKS"),
    Row("GSO", "quinn#2399, quic-go#3911, envoy#21200", "an interface that refuses segmentation", note="newer kernels cut the datagrams themselves: the refusal comes from a library before the system call"),
    Row("ICMP", "picoquic#1562", "ICMP unreachable for 2 s, on one path and on all"),
    Row("carrier", "mqvpn#184, OMR#2936", "the carrier is lost and comes back, at both sides"),
    Row("dead link", "mqvpn#46", "the first link is dead at the start"),
    Row("MTU", "quiche#2646", "MTU 1000 on either link"),
    Row("ECN", "neqo#1925", "ECT dropped, CE always, both ways, at the start and later"),
    Row("sleep", "DnsLibs#109, freenet#2976", "a client stopped for 45 s", note="no clock jumps: a process cannot have a clock of its own"),
    Row("wildcard", "multihomed servers kind", "answers from the address that was asked"),
    Row("no IPv6", "no-IPv6 host kind", "IPv6 switched off"),
    Row("chains", "certificate chains kind", "a chain of six, with and without Retry"),
    Row("PEM", "PEM kind", "ten forms of certificates and keys"),
    Row("certificate names", "names kind", "IP SAN, wildcard, trailing dot, upper case, wrong clocks"),
    Row("terminal", "all-smi#326, nevi#295, curl#4818", "windows of 0x0 and 1x1"),
    Row("SOCKS", "SOCKS kind", "single bytes, early data, methods, BIND, SOCKS 4, fragments"),
    Row("HTTP entrance", "HTTP proxy kind", "LF only, HTTP/1.0, folded lines, blanks before colons, Expect"),
    Row("descriptors", "accept loop kind", "24 descriptors and 60 files"),
    Row("26", "swift-http-import#512, qftp#182, PortkeyDrop#142", "links in a circle"),
    Row("27", "flexi_logger#75, dropshot#811, bupstash#65", "servers whose standard error is full"),
    Row("terminal gone", "flexi_logger#75, dropshot#811, bupstash#65", "terminal gone, access log full, output full, 0, 1 and 2 closed"),
    Row("full", "aria2, curl kind", "full disks for get, put, -o - and --json"),
    Row("tls", "quic-go, Chromium kind", "X25519MLKEM768, HelloRetryRequest, version 2, 0-RTT, key update, Retry",
        (f"{CORE} endpoint::two_datagrams::a_hello_retry_request_costs_a_round_trip_whatever_is_lost", f"{CLI} keys_and_address_change_in_a_drill"),
        "no case does HelloRetryRequest and key updates; `interop/run quic-go` has the handshakes with quic-go"),
    Row("versions", "RFC 9369 5", "tickets and tokens of another version",
        (f"{UNITS} crypto::rustls::tests::rfc_9369_5_tickets_are_good_in_one_version", f"{CORE} rules::versions::rfc_9369_5_tokens_are_good_in_one_version",
         f"{CORE} endpoint::zero_rtt::rfc_9369_5_a_change_of_the_version_rejects_early_data"), "the case sees that connections work; the tests see that nothing is taken"),
    Row("priority", "quic-go#5789, neqo#3802, nghttp2#2840", "PRIORITY_UPDATE for wrong streams, junk, 20,000 of them"),
    Row("evil", "axel#477, dora#3311", "`..%2f..%2fevil` as a name"),
    Row("double", "Linux bugs kind", "each datagram twice, both ways", note="by a relay, over one path"),
    Row("flapping", "mqvpn#184 kind", "an address that goes and comes 40 times"),
    Row("bridges", "docker kind", "8 bridges with addresses of 172.x"),
    Row("SSRF", "SSRF kind", "127.0.0.1 in 35 spellings, by SOCKS and HTTP"),
    Row("25k", "miniserve kind", "more than 10,000 files in a directory"),
    Row("25l", "smuggling kind", "messages of HTTP/1.1 that can be read in two ways, old versions",
        (f"{CLI} alt_svc::silent_connections_of_one_address_leave_room_for_others",), "silent connections: the test, and `interop/attacks/run 9`"),
    Row("25m", "curl kind", "`+4433` and no digits as a port, `[::ffff:127.0.0.1]`"),
]


def passes(test):
    """Whether a test in Rust passes; one that is not there does not."""
    words, name = test.rsplit(" ", 1)
    done = subprocess.run(["cargo", "test", *words.split(), name, "--", "--exact"], cwd=ROOT, capture_output=True, text=True)
    right = done.returncode == 0 and "test result: ok. 1 passed" in done.stdout
    print(f"{name:<80} {'right' if right else 'FAULT: ' + (done.stdout + done.stderr)[-500:]}", flush=True)
    return right


def report(faults, every, tests):
    """Prints a line for each row with its verdict; `faults` has the rows and the fault of each case. Answers whether a row failed
    whose cases did not, because it has no case or because a test in Rust fails. Without `every`, only rows of these cases count."""
    keys = {key for keys, _ in faults for key in keys}
    unknown = keys - {row.key for row in ROWS}
    failed = bool(unknown)
    rows = [row for row in ROWS if every or row.key in keys]
    judged = []
    for row in rows:
        held = [fault for keys, fault in faults if row.key in keys]
        broken = [test for test in row.tests if not passes(test)] if tests else []
        failed |= not held or bool(broken)
        verdict = "NO CASE" if not held else "FAULT" if any(held) or broken else "right"
        verdict += f" in {len(held)} cases" if len(held) > 1 else ""
        if row.tests:
            verdict += f", {'with' if tests else 'without'} {', '.join(test.rsplit(' ', 1)[1] for test in row.tests)}"
        judged.append(f"{row.key} | {row.reports} | {row.tried} | {verdict}{f' ({row.note})' if row.note else ''}")
    print("number or word | reports | tried | verdict", *judged, sep="\n", flush=True)
    if unknown:
        print(f"cases name rows that are not in the table: {sorted(unknown)}")
    return failed
