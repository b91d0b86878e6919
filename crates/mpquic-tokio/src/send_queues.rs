//! [`SendQueues`]: the bytes behind our sockets, in the kernel's queues and the network device.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Shortest time between two requests to the kernel.
const INTERVAL: Duration = Duration::from_millis(10);
/// Requests may take up to 1/`SHARE` of the time. A request is not cheap: each answer lists every
/// UDP socket of the machine.
const SHARE: u32 = 50;
/// The kernel's tables of UDP sockets in this thread's network namespace.
const TABLES: [&str; 2] = ["/proc/thread-self/net/udp", "/proc/thread-self/net/udp6"];

/// The send queues of UDP sockets as Linux lists them: the memory of packets between the call to
/// the kernel and the wire, including the queueing discipline, the driver and the device. The
/// memory exceeds the bytes of the packets, up to twice for small packets.
///
/// The list is read as text because the call for a single socket (`SIOCOUTQ`) needs `unsafe`.
#[derive(Debug, Default)]
pub(crate) struct SendQueues {
    /// Sockets with waiting packets.
    waiting: Vec<(SocketAddr, u64)>,
    asked: Option<Instant>,
    pause: Duration,
    known: bool,
}

impl SendQueues {
    /// Asks the kernel again if the last answer is too old. Returns the time of the last answer;
    /// `None` on systems without such a list.
    pub(crate) fn refresh(&mut self, now: Instant) -> Option<Instant> {
        let due = self
            .asked
            .is_none_or(|asked| now.saturating_duration_since(asked) >= self.pause);
        if due {
            #[expect(
                clippy::disallowed_methods,
                reason = "how long the kernel takes is no matter of the runtime's clock"
            )]
            let begin = Instant::now();
            let tables = TABLES.into_iter();
            self.take(tables.filter_map(|table| std::fs::read_to_string(table).ok()));
            self.asked = Some(now);
            self.pause = if self.known {
                pause_after(begin.elapsed())
            } else {
                Duration::MAX
            };
        }
        self.asked.filter(|_| self.known)
    }

    /// Takes the waiting bytes from tables, in place of the earlier bytes.
    fn take(&mut self, tables: impl Iterator<Item = String>) {
        self.waiting.clear();
        self.known = false;
        for table in tables {
            self.known = true;
            // The first line names the columns.
            self.waiting.extend(table.lines().skip(1).filter_map(row));
        }
    }

    /// Bytes that waited behind the sockets bound to an address.
    pub(crate) fn bytes(&self, local: SocketAddr) -> u64 {
        let key = |address: &SocketAddr| (address.ip(), address.port());
        let of_socket = self.waiting.iter();
        let of_socket = of_socket.filter(|(bound, _)| key(bound) == key(&local));
        of_socket.map(|(_, bytes)| bytes).sum()
    }
}

/// True if the kernel lists a socket without a peer that gets datagrams to `local`.
#[cfg(target_os = "linux")]
pub(crate) fn has_listener(local: SocketAddr) -> bool {
    let tables = TABLES.into_iter();
    let mut tables = tables.filter_map(|table| std::fs::read_to_string(table).ok());
    tables.any(|table| table.lines().any(|line| is_listener(line, local)))
}

#[cfg(any(target_os = "linux", test))]
fn is_listener(line: &str, local: SocketAddr) -> bool {
    let mut fields = line.split_ascii_whitespace();
    let bound = fields.nth(1).and_then(address);
    let peer = fields.next().and_then(address);
    let (Some(bound), Some(peer)) = (bound, peer) else {
        return false;
    };
    let (one, other) = (bound.ip().to_canonical(), local.ip().to_canonical());
    let overlaps = one == other || one.is_unspecified() || other.is_unspecified();
    peer.port() == 0 && bound.port() == local.port() && overlaps
}

/// The pause after a request that took `took`.
fn pause_after(took: Duration) -> Duration {
    INTERVAL.max(took * SHARE)
}

/// Address and send queue of a row, if the queue is not empty.
fn row(line: &str) -> Option<(SocketAddr, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let local = address(fields.nth(1)?)?;
    let (queue, _) = fields.nth(2)?.split_once(':')?;
    let bytes = u64::from_str_radix(queue, 16).ok()?;
    (bytes > 0).then_some((local, bytes))
}

/// Parses addresses such as `0100007F:1F90`: the words of the IP address in this machine's byte
/// order, and the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |index: usize| {
        let digits = ip.get(8 * index..8 * index + 8)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let ip: IpAddr = match ip.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (index, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(index)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::{Runtime, TokioRuntime};

    #[test]
    #[cfg(target_endian = "little")]
    fn rows_tell_address_and_queue() {
        let v4 = " 8634: 0100007F:CDA3 00000000:0000 07 00000A00:00000000 00:00000000 00000000 \
                  0 0 594865 2 00000000486dc47f 0";
        let local: SocketAddr = "127.0.0.1:52643".parse().unwrap();
        assert_eq!(row(v4), Some((local, 2560)));
        let v6 = "  7: B80D0120000000000000000001000000:01BB 00:0 07 00000001:00000000 00:0 0";
        let local: SocketAddr = "[2001:db8::1]:443".parse().unwrap();
        assert_eq!(row(v6), Some((local, 1)));
        assert_eq!(row(&v4.replace("00000A00", "00000000")), None);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn listeners_have_no_peer() {
        let is = |line: &str, local: &str| is_listener(line, local.parse().unwrap());
        let bound = " 8634: 0100007F:01BB 00000000:0000 07 00000A00:00000000 00:00000000";
        assert!(is(bound, "127.0.0.1:443") && is(bound, "[::]:443"));
        assert!(!is(bound, "127.0.0.2:443") && !is(bound, "127.0.0.1:444"));
        let any = bound.replace("0100007F", "00000000");
        assert!(is(&any, "127.0.0.2:443"));
        let connected = any.replace("00000000:0000", "0200007F:1F90");
        assert!(!is(&connected, "127.0.0.2:443"));
        assert!(!is("sl local_address rem_address", "127.0.0.1:443"));
    }

    #[test]
    fn rows_of_another_form_are_passed_over() {
        for line in [
            "",
            "1:",
            "1: 0100007F 0 07 1:1",
            "1: 0100007F:FFFFF 0 07 1:1",
            "1: 01007F:1 0 07 1:1",
            "1: ü100007F:1 0 07 1:1",
            "1: 0100007F:1 0 07 x:1",
            "1: 0100007F:1 0 07 1",
        ] {
            assert_eq!(row(line), None, "{line}");
        }
    }

    #[test]
    fn requests_take_a_fiftieth_of_the_time_and_come_every_ten_milliseconds() {
        for (micros, pause) in [(0, 10_000), (200, 10_000), (201, 10_050), (1000, 50_000)] {
            let after = pause_after(Duration::from_micros(micros));
            assert_eq!(after, Duration::from_micros(pause));
        }
    }

    #[test]
    fn queue_of_an_address_is_the_sum_of_its_sockets() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let queues = SendQueues {
            waiting: vec![
                (address("127.0.0.1:1"), 5),
                (address("127.0.0.1:2"), 7),
                (address("127.0.0.2:1"), 11),
                (address("127.0.0.1:1"), 13),
            ],
            ..SendQueues::default()
        };
        let all = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.2:1", "127.0.0.2:2"];
        assert_eq!(
            all.map(|local| queues.bytes(address(local))),
            [18, 7, 11, 0]
        );
    }

    #[test]
    fn the_kernel_is_not_asked_all_the_time() {
        let mut queues = SendQueues::default();
        let now = TokioRuntime.now();
        let first = queues.refresh(now);
        assert_eq!(first.is_some(), cfg!(target_os = "linux"));
        assert_eq!(queues.refresh(now + INTERVAL / 2), first);
        let later = now + Duration::from_secs(60);
        assert_eq!(queues.refresh(later), first.map(|_| later));
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn each_answer_replaces_the_one_before() {
        let row = |port, queue| format!("1: 0100007F:{port} 00000000:0000 07 {queue}:00000000 0");
        let table = |rows: &[String]| format!("sl local_address ...\n{}\n", rows.join("\n"));
        let v4 = table(&[row("0001", "00000005"), row("0002", "00000007")]);
        let v6 = table(&[row("0001", "00000001")]);
        let mut queues = SendQueues::default();
        let bytes = |queues: &SendQueues| {
            [1, 2].map(|port| queues.bytes(SocketAddr::from(([127, 0, 0, 1], port))))
        };
        queues.take([v4, v6].into_iter());
        assert!(queues.known);
        assert_eq!(bytes(&queues), [6, 7]);
        queues.take([table(&[row("0002", "00000009")])].into_iter());
        assert_eq!(bytes(&queues), [0, 9]);
        queues.take(std::iter::empty());
        assert!(!queues.known);
        assert_eq!(bytes(&queues), [0, 0]);
    }
}
