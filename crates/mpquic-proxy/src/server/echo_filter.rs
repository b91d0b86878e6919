//! A filter for a raw ICMP socket: only answers to its own requests pass. Without the filter, each
//! such socket would get all ICMP messages to this machine.

use socket2::SockFilter;

use crate::ip::echo::types;

/// Instructions of Linux's socket filters (`linux/bpf_common.h`): load a byte or a 16-bit word at
/// an offset, the same at an offset from the index, set the index to the length of an IPv4 header,
/// compare, return.
const LOAD_BYTE: u16 = 0x30;
const LOAD_WORD: u16 = 0x28;
const LOAD_BYTE_BEHIND: u16 = 0x50;
const LOAD_WORD_BEHIND: u16 = 0x48;
const INDEX_HEADER: u16 = 0xb1;
const IS_EQUAL: u16 = 0x15;
const END: u16 = 0x06;

/// Offset of the identifier in an echo message.
const IDENTIFIER: u32 = 4;

/// An operation, the number of steps to skip if its comparison holds or fails, and its operand.
type Step = (u16, u8, u8, u32);

/// A filter that passes answers with this identifier only.
pub(super) fn answers(is_v4: bool, identifier: u16) -> Vec<SockFilter> {
    let steps = steps(is_v4, identifier);
    let filter = |(code, equal, other, value)| SockFilter::new(code, equal, other, value);
    steps.into_iter().map(filter).collect()
}

fn steps(is_v4: bool, identifier: u16) -> Vec<Step> {
    let [_, reply] = types(is_v4);
    let (load_byte, load_word) = match is_v4 {
        // A raw socket of IPv4 gets the IP header, too.
        true => (LOAD_BYTE_BEHIND, LOAD_WORD_BEHIND),
        false => (LOAD_BYTE, LOAD_WORD),
    };
    let index = is_v4.then_some((INDEX_HEADER, 0, 0, 0));
    let steps = [
        (load_byte, 0, 0, 0),
        (IS_EQUAL, 0, 3, reply.into()),
        (load_word, 0, 0, IDENTIFIER),
        (IS_EQUAL, 0, 1, identifier.into()),
        (END, 0, 0, u32::MAX),
        (END, 0, 0, 0),
    ];
    index.into_iter().chain(steps).collect()
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::ip::echo::{Echo, Kind};
    use crate::ip::header::layout;

    /// Runs the filter like the system: returns the number of passed bytes, `None` for a short
    /// packet.
    fn run(steps: &[Step], packet: &[u8]) -> Option<u32> {
        let (mut loaded, mut index, mut next) = (0, 0, 0);
        loop {
            let (code, equal, other, value) = steps[next];
            let at = value as usize;
            next += 1;
            match code {
                LOAD_BYTE => loaded = u32::from(*packet.get(at)?),
                LOAD_BYTE_BEHIND => loaded = u32::from(*packet.get(index + at)?),
                LOAD_WORD | LOAD_WORD_BEHIND => {
                    let from = at + if code == LOAD_WORD { 0 } else { index };
                    let word = packet.get(from..from + 2)?;
                    loaded = u32::from(word[0]) << 8 | u32::from(word[1]);
                }
                INDEX_HEADER => index = usize::from(packet.get(at)? & 15) * 4,
                IS_EQUAL => next += usize::from(if loaded == value { equal } else { other }),
                END => return Some(value),
                _ => panic!("{code}"),
            }
        }
    }

    #[test]
    fn only_own_answers_pass() {
        for (is_v4, ends) in [(true, "192.0.2.1"), (false, "2001:db8::1")] {
            let end: IpAddr = ends.parse().unwrap();
            let steps = steps(is_v4, 0x1234);
            assert_eq!(steps.len(), answers(is_v4, 0x1234).len());
            let heard = |kind, identifier| {
                let echo = Echo {
                    kind,
                    identifier,
                    sequence: 0x1234,
                    data: b"\x12\x34",
                };
                let mut packet = Vec::new();
                echo.put(&mut packet, (end, end));
                // Only IPv4 sockets get the IP header.
                let start = if is_v4 {
                    0
                } else {
                    layout(&packet).unwrap().start
                };
                packet.split_off(start)
            };
            assert_eq!(run(&steps, &heard(Kind::Reply, 0x1234)), Some(u32::MAX));
            assert_eq!(run(&steps, &heard(Kind::Reply, 0x1235)), Some(0));
            assert_eq!(run(&steps, &heard(Kind::Request, 0x1234)), Some(0));
            assert_eq!(run(&steps, &heard(Kind::Reply, 0x1234)[..4]), None);
        }
    }
}
