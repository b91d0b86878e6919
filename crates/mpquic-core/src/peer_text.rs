//! Makes text of a peer safe to print.

use std::fmt::{self, Write as _};

/// Text of a peer for logs and terminals, such as the reason of a close: on one line, and without
/// characters that move, hide or reorder other text there. Such characters are shown as spaces, and
/// invalid UTF-8 as U+FFFD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerText<'a>(pub &'a [u8]);

impl PeerText<'_> {
    /// True for characters that only stand for themselves: no control characters (of C0 and C1, so
    /// no escape sequences either), no ends of lines or paragraphs, and none that change the
    /// direction of what follows.
    pub fn is_plain(character: char) -> bool {
        !character.is_control()
            && !matches!(
                character,
                '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
            )
    }
}

impl fmt::Display for PeerText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in String::from_utf8_lossy(self.0).chars() {
            f.write_char(if Self::is_plain(character) {
                character
            } else {
                ' '
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_peers_stays_on_its_line() {
        for (text, shown) in [
            (
                "plain \u{e4} \u{5d0} \u{1f600}".as_bytes(),
                "plain \u{e4} \u{5d0} \u{1f600}",
            ),
            (b"a\nb\r\tc\0", "a b  c "),
            (b"\x1b]0;owned\x07\x1b[31m\x7f", " ]0;owned  [31m "),
            ("\u{9b}31m\u{85}\u{2028}\u{2029}".as_bytes(), " 31m   "),
            ("\u{202e}gpj\u{2066}\u{200f}\u{61c}".as_bytes(), " gpj   "),
            (b"\x9b31m", "\u{fffd}31m"),
        ] {
            assert_eq!(PeerText(text).to_string(), shown);
        }
    }
}
