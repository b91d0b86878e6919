//! JSON on one line, safe for terminals.

use mpquic_core::PeerText;
use serde::Serialize;

/// The value, with escapes for characters of names and the like that would move, hide or reorder other
/// text: programs read the same value.
pub(crate) fn line(value: &impl Serialize) -> String {
    // The tool's types contain only values of JSON.
    let json = serde_json::to_string(value).unwrap_or_default();
    if json.chars().all(PeerText::is_plain) {
        return json;
    }
    // Outside of texts JSON is ASCII, and in texts it has escapes for those of ASCII.
    let escaped = |character: char| match PeerText::is_plain(character) {
        true => character.to_string(),
        false => format!("\\u{:04x}", u32::from(character)),
    };
    json.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_read_what_terminals_do_not() {
        let text = "a\n\u{1b}\u{7f}\u{9b}b \u{e4}\u{202e}\u{2028}\u{1f600}";
        let line = line(&[text]);
        assert!(line.chars().all(PeerText::is_plain), "{line:?}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&line).unwrap(), [text]);
        assert_eq!(super::line(&["\u{e4}"]), "[\"\u{e4}\"]");
    }
}
