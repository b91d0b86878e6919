//! The bridge of a router to its own network. The machines there reach the Internet through the
//! router, so no path leads to a server through them.

/// The routes of Linux. `/proc/net` is not there for services whose `/proc` shows processes only
/// (systemd's `ProcSubset=pid`).
const ROUTES: [&str; 2] = ["/proc/self/net/route", "/proc/self/net/ipv6_route"];
/// 1 in one of these files: the machine forwards packets.
const FORWARDS: [&str; 2] = [
    "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/net/ipv6/conf/all/forwarding",
];
/// `RTF_GATEWAY` and `RTF_REJECT` of `linux/route.h`.
const GATEWAY: u32 = 0x2;
const REJECT: u32 = 0x200;

/// True if this machine is a router, and routes lead beyond the networks of its links, but none of
/// them over this interface.
pub(crate) fn is_behind(interface: &str) -> bool {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let forwards = FORWARDS.map(read).iter().any(|told| told.trim() == "1");
    let [v4, v6] = ROUTES.map(read);
    forwards && is_behind_routes(interface, &v4, &v6)
}

fn is_behind_routes(interface: &str, v4: &str, v6: &str) -> bool {
    let ways = v4.lines().filter_map(way_v4);
    let ways: Vec<_> = ways.chain(v6.lines().filter_map(way_v6)).collect();
    !ways.is_empty() && !ways.contains(&interface)
}

/// The interface of a route of IPv4 to a gateway, or to everywhere.
fn way_v4(line: &str) -> Option<&str> {
    let words: Vec<_> = line.split_whitespace().collect();
    let [interface, to, _, flags, _, _, _, mask, ..] = words[..] else {
        return None;
    };
    let flags = u32::from_str_radix(flags, 16).ok()?;
    let is_everywhere = to == "00000000" && mask == "00000000";
    (flags & REJECT == 0 && (is_everywhere || flags & GATEWAY != 0)).then_some(interface)
}

/// The same of IPv6.
fn way_v6(line: &str) -> Option<&str> {
    let words: Vec<_> = line.split_whitespace().collect();
    let [_, length, _, _, _, _, _, _, flags, interface] = words[..] else {
        return None;
    };
    let flags = u32::from_str_radix(flags, 16).ok()?;
    (flags & REJECT == 0 && (length == "00" || flags & GATEWAY != 0)).then_some(interface)
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
wan\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0
br-lan\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
br-far\t0002A8C0\t0201A8C0\t0003\t0\t0\t0\t00FFFFFF\t0\t0\t0
wan\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
";
    const V6: &str = "\
20010db8000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001   br-lan
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 00000400 00000001 00000000 00000001    wwan0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo
";

    #[test]
    fn bridges_without_a_way_beyond_them_are_of_the_own_network() {
        for (interface, expected) in [
            ("br-lan", true),
            ("br-far", false),
            ("wan", false),
            ("wwan0", false),
        ] {
            assert_eq!(is_behind_routes(interface, V4, V6), expected, "{interface}");
        }
        assert!(is_behind_routes("wwan0", V4, ""));
        // Where nothing leads beyond a link, a server is on one.
        let local = V4.lines().filter(|line| line.starts_with("br-lan"));
        let local: Vec<_> = local.collect();
        assert!(!is_behind_routes("br-lan", &local.join("\n"), ""));
        assert!(!is_behind_routes("br-lan", "", ""));
    }
}
