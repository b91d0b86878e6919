//! JSON on one line, safe for terminals: the only JSON writer of the tool.

use mpquic_core::PeerText;
use serde::Serialize;

use crate::process::screen;

/// Prints the value on one line to standard output.
pub(crate) fn print(value: &impl Serialize) {
    screen::print(line(value));
}

/// The JSON of a value on one line. Characters that would move, hide or reorder text on a terminal
/// become escapes, and programs read the same value.
pub(crate) fn line(value: &impl Serialize) -> String {
    // JSON can represent every type of the tool.
    let json = serde_json::to_string(value).unwrap_or_default();
    if json.chars().all(PeerText::is_plain) {
        return json;
    }
    // Outside of strings, JSON is ASCII. In strings, `serde_json` escapes control characters of
    // ASCII.
    let escaped = |character: char| {
        if PeerText::is_plain(character) {
            character.to_string()
        } else {
            format!("\\u{:04x}", u32::from(character))
        }
    };
    json.chars().map(escaped).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `serde_json` writes the notes of parts and uploads, and the states of devices. All other
    /// JSON goes through [`line`].
    #[test]
    fn nothing_is_said_in_json_by_another_way() {
        let kept = [
            "text/json.rs",
            "get/part_name.rs",
            "put/remembered.rs",
            "proxy/tun/state.rs",
        ];
        let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut left = vec![source.clone()];
        let mut found = Vec::new();
        while let Some(path) = left.pop() {
            if path.is_dir() {
                let entries = std::fs::read_dir(&path).unwrap();
                left.extend(entries.map(|entry| entry.unwrap().path()));
                continue;
            }
            let name = path.strip_prefix(&source).unwrap().to_str().unwrap();
            if !name.ends_with(".rs") || name.ends_with("tests.rs") || kept.contains(&name) {
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            if [
                "serde_json::to_string",
                "serde_json::to_vec",
                "serde_json::to_writer",
            ]
            .iter()
            .any(|writes| code.contains(writes))
            {
                found.push(name.to_owned());
            }
        }
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn programs_read_what_terminals_do_not() {
        let text = "a\n\u{1b}\u{7f}\u{9b}b \u{e4}\u{202e}\u{2028}\u{1f600}";
        let line = line(&[text]);
        assert!(line.chars().all(PeerText::is_plain), "{line:?}");
        assert_eq!(serde_json::from_str::<[String; 1]>(&line).unwrap(), [text]);
        assert_eq!(super::line(&["\u{e4}"]), "[\"\u{e4}\"]");
    }
}
