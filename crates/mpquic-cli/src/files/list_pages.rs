//! The list of a long directory comes in pages, in the byte order of the names. Each page names its
//! last entry, and the next page begins after this name.

use std::ffi::{OsStr, OsString};

use http::Uri;

use crate::files::directory_page::{Kind, Listed};
use crate::files::list_query::query_after;

/// Most pages of one directory. A server lists a million entries in far fewer pages.
const MAX_PAGES: usize = 1000;
/// Most pages without an entry, one after the other. A server leaves files out of a page that
/// vanish meanwhile, but a page has thousands of names.
const MAX_EMPTY: usize = 16;

/// The pages of one directory, for a client.
#[derive(Debug)]
pub(crate) struct Pages {
    first: Uri,
    /// The last name of the page before.
    after: Option<OsString>,
    count: usize,
    /// Pages without an entry since the last page with one.
    empty: usize,
}

impl Pages {
    pub(crate) fn new(first: Uri) -> Self {
        Self {
            first,
            after: None,
            count: 0,
            empty: 0,
        }
    }

    /// The URL of the page to request.
    pub(crate) fn url(&self) -> Uri {
        let Some(after) = &self.after else {
            return self.first.clone();
        };
        let mut parts = self.first.clone().into_parts();
        let target = self
            .first
            .path_and_query()
            .map_or("/", |target| target.as_str());
        let separator = if target.contains('?') { '&' } else { '?' };
        let target = format!("{target}{separator}{}", query_after(after));
        // A longer query keeps the URL valid.
        parts.path_and_query = target.try_into().ok();
        Uri::from_parts(parts).unwrap_or_else(|_| self.first.clone())
    }

    /// Removes the reference to the next page from a page; true if a next page follows. Names that
    /// do not come after the page before are an error. So are too many pages, and too many empty
    /// pages in a row.
    pub(crate) fn turn(&mut self, listed: &mut Vec<Listed>) -> Result<bool, &'static str> {
        let ends = |entry: &Listed| entry.kind == Kind::More && !entry.name.is_empty();
        let next = if listed.last().is_some_and(ends) {
            listed.pop().and_then(|entry| entry.file_name())
        } else {
            None
        };
        self.count += 1;
        let is_behind = |name: &OsStr| {
            let after = self.after.as_deref();
            after.is_none_or(|after| after.as_encoded_bytes() < name.as_encoded_bytes())
        };
        let entries = listed.iter().filter(|entry| entry.kind != Kind::More);
        self.empty = match entries.clone().next() {
            Some(_) => 0,
            None => self.empty + 1,
        };
        let names = entries.filter_map(Listed::file_name);
        if !names.chain(next.clone()).all(|name| is_behind(&name)) {
            return Err("the server lists the directory in pages that are not in order");
        }
        if next.is_some() && self.count == MAX_PAGES {
            return Err("the server lists the directory in more than 1000 pages");
        }
        if next.is_some() && self.empty == MAX_EMPTY {
            return Err("16 pages in a row of the server's list of the directory have no entry");
        }
        self.after = next;
        Ok(self.after.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(name: &str, kind: Kind) -> Listed {
        Listed::named(name.as_ref(), kind)
    }

    #[test]
    fn the_next_page_begins_where_the_one_before_ends() {
        for (first, next) in [
            ("https://host/d/", "https://host/d/?after=a%26%20%C3%A4"),
            ("https://host/d/?q", "https://host/d/?q&after=a%26%20%C3%A4"),
        ] {
            let mut pages = Pages::new(first.parse().unwrap());
            assert_eq!(pages.url(), first);
            let mut list = vec![listed("a", Kind::File), listed("a& ä", Kind::More)];
            assert_eq!(pages.turn(&mut list), Ok(true));
            assert_eq!(list, [listed("a", Kind::File)]);
            assert_eq!(pages.url(), next);
            assert_eq!(pages.turn(&mut vec![listed("b", Kind::File)]), Ok(false));
        }
    }

    /// An entry of type `more` without a name stays in the page: the next page has no address.
    #[test]
    fn pages_that_lead_nowhere_are_refused() {
        let begun = || {
            let mut pages = Pages::new("https://host/".parse().unwrap());
            assert_eq!(pages.turn(&mut vec![listed("m", Kind::More)]), Ok(true));
            pages
        };
        let mut list = vec![listed("n", Kind::File), listed("", Kind::More)];
        assert_eq!(begun().turn(&mut list), Ok(false));
        assert_eq!(list.len(), 2);
        for again in [
            listed("m", Kind::More),
            listed("a", Kind::More),
            listed("m", Kind::File),
        ] {
            assert!(begun().turn(&mut vec![again]).is_err());
        }
    }

    /// A server may send pages in the right order without end.
    #[test]
    fn pages_have_an_end() {
        let page = |number: usize, is_empty: bool| {
            let file = listed(&format!("n{number:09}"), Kind::File);
            let more = listed(&format!("n{number:09}+"), Kind::More);
            [file, more].into_iter().skip(is_empty.into()).collect()
        };
        let end = |is_empty: fn(usize) -> bool| {
            let mut pages = Pages::new("https://host/".parse().unwrap());
            let mut turned = (1..).map(|number| pages.turn(&mut page(number, is_empty(number))));
            let (turned, failed) = (turned.by_ref())
                .enumerate()
                .find_map(|(turned, page)| Some((turned, page.err()?)))
                .unwrap();
            (turned + 1, failed)
        };
        let long = "the server lists the directory in more than 1000 pages";
        let empty = "16 pages in a row of the server's list of the directory have no entry";
        assert_eq!(end(|_| false), (MAX_PAGES, long));
        assert_eq!(end(|_| true), (MAX_EMPTY, empty));
        assert_eq!(end(|number| number > 5), (5 + MAX_EMPTY, empty));
        // One entry begins the count anew.
        assert_eq!(end(|number| number % MAX_EMPTY > 0), (MAX_PAGES, long));
        let mut pages = Pages::new("https://host/".parse().unwrap());
        for number in 1..MAX_EMPTY {
            assert_eq!(pages.turn(&mut page(number, true)), Ok(true));
        }
        assert_eq!(pages.turn(&mut Vec::new()), Ok(false), "this is the end");
    }
}
