//! The query for one page of the list of a directory.

use std::ffi::{OsStr, OsString};

use crate::text::percent::{encode_name, file_name, percent_decode};

/// The query field with the name after which a page begins.
const AFTER: &str = "after=";

/// The query of the page that begins after a name.
pub(crate) fn query_after(name: &OsStr) -> String {
    format!("{AFTER}{}", encode_name(name))
}

/// The name after which the requested page begins; `None` for the first page.
pub(crate) fn after_of(target: &str) -> Option<OsString> {
    let (_, query) = target.split_once('?')?;
    let after = query.split('&').find_map(|field| field.strip_prefix(AFTER));
    after.and_then(percent_decode).and_then(file_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_says_behind_which_name_a_page_begins() {
        let query = query_after(OsStr::new("a& \u{e4}"));
        assert_eq!(query, "after=a%26%20%C3%A4");
        for target in [format!("/d/?{query}"), format!("/?q&{query}&x")] {
            assert_eq!(after_of(&target), Some("a& \u{e4}".into()), "{target}");
        }
        for target in ["/d/", "/d/?q", "/d/?after=%4", "/after=x"] {
            assert_eq!(after_of(target), None, "{target}");
        }
    }
}
