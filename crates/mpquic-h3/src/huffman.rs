//! Huffman's code of HPACK (RFC 7541 appendix B), which QPACK has too.

/// Bits of the code of each byte. Codes are numbered by length, and then by byte, so the lengths
/// define the code.
const LENGTHS: [u8; 256] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5,
    5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6,
    6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22,
    23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22,
    21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20,
    22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19,
    21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22,
    22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
];
/// Bits of the longest code.
const LONGEST: usize = 30;
/// Bits of codes that are looked up at once.
const SHORT: usize = 8;

/// The code, in the order of lengths.
struct Code {
    bytes: [u8; 256],
    /// For each length: its first code, the number behind its last one, and the place of its first
    /// byte.
    lengths: [(u32, u32, usize); LONGEST + 1],
    /// For each beginning: the byte, and the length of its code; 0 for longer codes.
    short: [(u8, u8); 1 << SHORT],
}

static CODE: Code = code();

const fn code() -> Code {
    let mut code = Code {
        bytes: [0; 256],
        lengths: [(0, 0, 0); LONGEST + 1],
        short: [(0, 0); 1 << SHORT],
    };
    let (mut length, mut next, mut count) = (1, 0, 0);
    while length <= LONGEST {
        next <<= 1;
        code.lengths[length] = (next, next, count);
        let mut byte = 0;
        while byte < 256 {
            if LENGTHS[byte] as usize == length {
                code.bytes[count] = byte as u8;
                count += 1;
                let mut rest = 0;
                while length <= SHORT && rest < 1 << (SHORT - length) {
                    let beginning = (next as usize) << (SHORT - length) | rest;
                    code.short[beginning] = (byte as u8, length as u8);
                    rest += 1;
                }
                next += 1;
            }
            byte += 1;
        }
        code.lengths[length].1 = next;
        length += 1;
    }
    code
}

/// Appends the decoded text; `None` if the code is not valid (RFC 7541 section 5.2).
pub(crate) fn decode(string: &[u8], text: &mut Vec<u8>) -> Option<()> {
    let mut bytes = string.iter();
    // The next bits from the top, followed by ones, which also pad a string.
    let (mut window, mut bits) = (u64::MAX, 0);
    loop {
        while bits <= 56 {
            let Some(byte) = bytes.next() else { break };
            window ^= u64::from(!byte) << (56 - bits);
            bits += 8;
        }
        match first(window) {
            Some((byte, length)) if length <= bits => {
                text.push(byte);
                window = !(!window << length);
                bits -= length;
            }
            _ => return (bits < 8 && window == u64::MAX).then_some(()),
        }
    }
}

/// The byte whose code is at the top, and the length of the code.
fn first(window: u64) -> Option<(u8, u32)> {
    let (byte, length) = *CODE.short.get((window >> (64 - SHORT)) as usize)?;
    if length > 0 {
        return Some((byte, length.into()));
    }
    (SHORT + 1..=LONGEST).find_map(|length| {
        let code = (window >> (64 - length)) as u32;
        let &(first, behind, place) = CODE.lengths.get(length)?;
        let index = code.checked_sub(first).filter(|_| code < behind)?;
        let byte = *CODE.bytes.get(place + index as usize)?;
        Some((byte, length as u32))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(string: &[u8]) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        decode(string, &mut text).map(|()| text)
    }

    /// The examples of RFC 7541 sections C.4 and C.6.
    #[test]
    fn examples_are_read() {
        for (string, text) in [
            (
                &b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..],
                "www.example.com",
            ),
            (b"\xa8\xeb\x10\x64\x9c\xbf", "no-cache"),
            (b"\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f", "custom-key"),
            (
                b"\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff",
                "Mon, 21 Oct 2013 20:13:21 GMT",
            ),
            (b"", ""),
        ] {
            assert_eq!(decoded(string).unwrap(), text.as_bytes());
        }
    }

    /// Codes of RFC 7541 appendix B: the first and last of all lengths.
    #[test]
    fn codes_are_those_of_the_table() {
        for (byte, code, length) in [
            (b'0', 0x0_u64, 5_u32),
            (b't', 0x9, 5),
            (b' ', 0x14, 6),
            (b':', 0x5c, 7),
            (b'&', 0xf8, 8),
            (b'!', 0x3f8, 10),
            (b'|', 0x7fc, 11),
            (0, 0x1ff8, 13),
            (b'<', 0x7ffc, 15),
            (b'\\', 0x7fff0, 19),
            (1, 0x7f_ffd8, 23),
            (255, 0x3ff_ffee, 26),
            (249, 0xfff_fffe, 28),
            (22, 0x3fff_fffe, 30),
        ] {
            let window = ((code + 1) << (64 - length)).wrapping_sub(1);
            assert_eq!(first(window), Some((byte, length)), "{byte}");
        }
    }

    #[test]
    fn padding_other_than_ones_is_refused() {
        // '0' is five zeros.
        assert_eq!(decoded(&[0b0000_0111]).unwrap(), b"0");
        assert_eq!(decoded(&[0b0000_0110]), None);
        // Padding of eight ones is too long. Thirty ones are the code for the end of the string,
        // which must not be sent.
        assert_eq!(decoded(&[0b0000_0111, 0xff]), None);
        assert_eq!(decoded(&[0xff; 4]), None);
        // A cut code.
        assert_eq!(decoded(&[0b1111_1110]), None);
    }
}
