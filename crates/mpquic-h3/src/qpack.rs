//! Field sections of QPACK (RFC 9204 section 4.5), line by line. There is no dynamic table.

use crate::huffman;
use crate::static_table::STATIC_TABLE;

/// A string, perhaps in Huffman's code.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Text<'a> {
    Plain(&'a [u8]),
    Huffman(&'a [u8]),
}

impl<'a> Text<'a> {
    /// The bytes of the string; `room` takes the decoded bytes of a Huffman string. `None` for a
    /// wrong code.
    pub(crate) fn read<'b>(self, room: &'b mut Vec<u8>) -> Option<&'b [u8]>
    where
        'a: 'b,
    {
        match self {
            Self::Plain(bytes) => Some(bytes),
            Self::Huffman(string) => {
                room.clear();
                huffman::decode(string, room)?;
                Some(room)
            }
        }
    }

    /// True for this string.
    pub(crate) fn is(self, text: &str) -> bool {
        self.read(&mut Vec::new()) == Some(text.as_bytes())
    }
}

/// The name and the value of a field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line<'a> {
    pub(crate) name: Text<'a>,
    pub(crate) value: Text<'a>,
}

/// The lines of a field section, behind its prefix (RFC 9204 section 4.5.1); `None` if it refers to
/// a dynamic table.
pub(crate) fn lines(section: &[u8]) -> Option<&[u8]> {
    let mut rest = section;
    let required_insert_count = take_number(&mut rest, 8)?;
    let _base = take_number(&mut rest, 7)?;
    (required_insert_count == 0).then_some(rest)
}

/// Takes a line off the front; `None` for one that refers to the dynamic table, is cut or makes no
/// sense.
pub(crate) fn take_line<'a>(rest: &mut &'a [u8]) -> Option<Line<'a>> {
    let first = *rest.first()?;
    match first {
        _ if first & 0b1100_0000 == 0b1100_0000 => {
            let (name, value) = of_static_table(take_number(rest, 6)?)?;
            Some(Line { name, value })
        }
        _ if first & 0b1101_0000 == 0b0101_0000 => {
            let (name, _) = of_static_table(take_number(rest, 4)?)?;
            let value = take_string(rest, 7)?;
            Some(Line { name, value })
        }
        _ if first & 0b1110_0000 == 0b0010_0000 => Some(Line {
            name: take_string(rest, 3)?,
            value: take_string(rest, 7)?,
        }),
        _ => None,
    }
}

/// Appends a line with a name and a value of its own (RFC 9204 section 4.5.6), each shorter than
/// 127 bytes.
pub(crate) fn put_line(lines: &mut Vec<u8>, name: &str, value: &str) {
    match name.len() {
        short @ 0..7 => lines.push(0b0010_0000 | short as u8),
        long => lines.extend([0b0010_0111, (long - 7) as u8]),
    }
    lines.extend_from_slice(name.as_bytes());
    lines.push(value.len() as u8);
    lines.extend_from_slice(value.as_bytes());
}

fn of_static_table(index: u64) -> Option<(Text<'static>, Text<'static>)> {
    let (name, value) = STATIC_TABLE.get(usize::try_from(index).ok()?)?;
    Some((Text::Plain(name.as_bytes()), Text::Plain(value.as_bytes())))
}

/// A string behind a length with a prefix of so many bits, and before them one that tells Huffman's
/// code.
fn take_string<'a>(rest: &mut &'a [u8], bits: u32) -> Option<Text<'a>> {
    let is_huffman = rest.first()? & (1 << bits) != 0;
    let length = usize::try_from(take_number(rest, bits)?).ok()?;
    let (string, left) = rest.split_at_checked(length)?;
    *rest = left;
    Some(if is_huffman {
        Text::Huffman(string)
    } else {
        Text::Plain(string)
    })
}

/// An integer with a prefix of so many bits (RFC 7541 section 5.1).
pub(crate) fn take_number(rest: &mut &[u8], bits: u32) -> Option<u64> {
    let mask = u8::MAX >> (8 - bits);
    let (first, left) = rest.split_first()?;
    *rest = left;
    let mut number = u64::from(first & mask);
    if number < u64::from(mask) {
        return Some(number);
    }
    let mut shift = 0;
    loop {
        let (byte, left) = rest.split_first()?;
        *rest = left;
        number = number.checked_add(u64::from(byte & 0x7f).checked_shl(shift)?)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}
