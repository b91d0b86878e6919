//! The page with the list of a directory.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::files::attributes::{Attributes, digits_of, mode_of};
use crate::files::list_query::query_after;
use crate::files::{Entry, Listing, path_of};
use crate::text::json;
use crate::text::percent::{encode_name, file_name, percent_decode};
use crate::text::times;

/// The style sheet: one column that fits a phone, in light or dark colours as the reader prefers.
const STYLE: &str = "\
:root{color-scheme:light dark;--text:#1d2433;--weak:#667085;--line:#e4e7ec;--link:#1d4ed8;\
--page:#fff;--over:#f5f7fa}\
@media(prefers-color-scheme:dark){:root{--text:#e6e9ef;--weak:#98a2b3;--line:#2c3342;\
--link:#8ab4ff;--page:#12161f;--over:#1b2130}}\
*{box-sizing:border-box}\
body{margin:0 auto;max-width:52rem;padding:1.5rem 1rem 3rem;background:var(--page);\
color:var(--text);font:16px/1.5 system-ui,sans-serif}\
h1{font-size:1.15rem;font-weight:600;margin:0 .5rem 1rem;overflow-wrap:anywhere}\
h1 a{color:inherit}\
ul{list-style:none;margin:0;padding:0;border-top:1px solid var(--line)}\
li{border-bottom:1px solid var(--line)}\
li a{display:flex;flex-wrap:wrap;gap:0 1rem;align-items:baseline;padding:.7rem .5rem;\
text-decoration:none;color:var(--link)}\
li a:hover,li a:focus-visible{background:var(--over)}\
.name{flex:1 1 12rem;min-width:0;overflow-wrap:anywhere}\
.dir{font-weight:600}\
.size,.date{color:var(--weak);font-size:.85rem;font-variant-numeric:tabular-nums}\
.size{min-width:5rem;text-align:right}\
.none{color:var(--weak);padding:.7rem .5rem}\
@media(max-width:32rem){.date{display:none}}";

/// Bytes of memory for an entry of a list, without its name.
const ENTRY: usize = size_of::<Entry>();

/// The reader of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// HTML for people.
    Html,
    /// A list for programs: JSON objects as on other servers. If entries follow, the last object
    /// has the name after which the next page begins.
    Json,
}

/// The page of a directory, made piece by piece. Between two pieces, the page keeps only the
/// entries in memory.
#[derive(Debug)]
pub(crate) struct Page {
    form: Form,
    /// The names in the path of the directory.
    segments: Vec<String>,
    listing: Listing,
    /// The next part: part 0 is the head, each entry is a part, and the last part is the foot.
    next: usize,
    /// Bytes of all parts.
    length: u64,
}

impl Page {
    /// The page of the directory in a request's target. The count of its length may take a while.
    pub(crate) fn new(form: Form, target: &str, listing: Listing) -> Self {
        let segments = path_of(target)
            .split('/')
            .filter(|segment| !segment.is_empty())
            .filter_map(percent_decode)
            .map(|name| String::from_utf8_lossy(&name).into_owned())
            .collect();
        let mut page = Self {
            form,
            segments,
            listing,
            next: 0,
            length: 0,
        };
        let parts = (0..).map_while(|number| page.part(number));
        page.length = parts.map(|part| part.len() as u64).sum();
        page
    }

    /// Bytes of the whole page.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Bytes of memory that the page keeps.
    pub(crate) fn memory(&self) -> u64 {
        let entries = self.listing.entries.iter();
        let entries = entries.map(|entry| entry.name.len() + ENTRY);
        let others = self.listing.others.iter();
        let others = others.map(|name| name.len() + size_of::<OsString>());
        entries.chain(others).map(|bytes| bytes as u64).sum()
    }

    /// The next `size` bytes or a little more; fewer at the end, none after the end.
    pub(crate) fn piece(&mut self, size: usize) -> String {
        let mut piece = String::new();
        while piece.len() < size
            && let Some(part) = self.part(self.next)
        {
            piece.push_str(&part);
            self.next += 1;
        }
        piece
    }

    fn part(&self, number: usize) -> Option<String> {
        let entries = &self.listing.entries;
        let Some(before) = number.checked_sub(1) else {
            return Some(match self.form {
                Form::Html => self.head(),
                Form::Json => "[".to_owned(),
            });
        };
        match (entries.get(before), self.form) {
            (Some(entry), Form::Html) => Some(row(entry)),
            (Some(entry), Form::Json) => {
                let comma = if before == 0 { "" } else { "," };
                Some(format!("{comma}{}", json::line(&Listed::of(entry))))
            }
            (None, _) if before > entries.len() => None,
            (None, Form::Html) => Some(self.foot()),
            (None, Form::Json) => Some(self.end()),
        }
    }

    /// The end of a list for programs: names without a file or directory, and the name for the next
    /// page.
    fn end(&self) -> String {
        let others = self.listing.others.iter();
        let others = others.map(|name| Listed::named(name, Kind::Other));
        let more = self.listing.more_after.as_ref();
        let more = more.map(|after| Listed::named(after, Kind::More));
        let mut end = String::new();
        for listed in others.chain(more) {
            if !end.is_empty() || !self.listing.entries.is_empty() {
                end.push(',');
            }
            end.push_str(&json::line(&listed));
        }
        end.push(']');
        end
    }

    fn head(&self) -> String {
        let title = format!("/{}", self.segments.join("/"));
        let mut head = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <title>{}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{}</h1>\n<ul>\n",
            Escaped(&title),
            trail(&self.segments),
        );
        if !self.segments.is_empty() {
            head.push_str("<li><a href=\"../\"><span class=\"name dir\">..</span></a></li>\n");
        }
        head
    }

    fn foot(&self) -> String {
        let mut foot = String::new();
        if self.listing.entries.is_empty() {
            foot.push_str("<li class=\"none\">Nothing here.</li>\n");
        }
        if let Some(after) = &self.listing.more_after {
            // Writing to a string cannot fail.
            let _ = writeln!(
                foot,
                "<li><a href=\"?{}\"><span class=\"name\">There is more.</span></a></li>",
                query_after(after)
            );
        }
        foot.push_str("</ul>\n</body>\n</html>\n");
        foot
    }
}

/// An entry of a directory, for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listed {
    /// A similar text if the name is not UTF-8.
    pub(crate) name: String,
    /// The name with percent-encoding, for names other than UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) encoded: Option<String>,
    #[serde(rename = "type")]
    pub(crate) kind: Kind,
    /// Time of the last change, in HTTP's format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mtime: Option<String>,
    /// The same in seconds since 1970, with nine digits after the point, negative before 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) modified: Option<String>,
    /// The permissions of Unix, as octal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<String>,
    /// Bytes of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) size: Option<u64>,
}

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    File,
    Directory,
    /// Stands for all entries after this name. Without a name, stands for all entries that the list
    /// leaves out.
    More,
    #[serde(other)]
    Other,
}

/// Links to the directories above, and the name of this directory.
fn trail(segments: &[String]) -> String {
    let mut trail = String::new();
    for (index, segment) in segments.iter().enumerate() {
        let up = "../".repeat(segments.len() - index);
        let name = match index.checked_sub(1).and_then(|above| segments.get(above)) {
            Some(above) => above,
            None => "",
        };
        // Writing to a string cannot fail.
        let _ = write!(trail, "<a href=\"{up}\">{}/</a>", Escaped(name));
        if index + 1 == segments.len() {
            let _ = write!(trail, "{}", Escaped(segment));
        }
    }
    if segments.is_empty() {
        "/".to_owned()
    } else {
        trail
    }
}

fn row(entry: &Entry) -> String {
    let (slash, class, size) = match entry.length {
        Some(length) => ("", "name", size(length)),
        None => ("/", "name dir", String::new()),
    };
    let date = entry.attributes.modified.and_then(times::http_date);
    // "Sun, 06 Nov 1994 08:49:37 GMT" becomes "06 Nov 1994 08:49".
    let date = date.as_deref().and_then(|date| date.get(5..22));
    format!(
        "<li><a href=\"./{}{slash}\"><span class=\"{class}\">{}{slash}</span>\
         <span class=\"date\">{}</span><span class=\"size\">{size}</span></a></li>\n",
        encode_name(&entry.name),
        Escaped(&entry.name.to_string_lossy()),
        date.unwrap_or_default(),
    )
}

/// A length in the largest fitting unit.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = "bytes";
    for larger in UNITS {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    match (unit, bytes) {
        (_, 1) => "1 byte".to_owned(),
        ("bytes", _) => format!("{bytes} bytes"),
        _ if value < 10.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// Text without special characters of HTML.
struct Escaped<'a>(&'a str);

impl Listed {
    fn of(entry: &Entry) -> Self {
        let kind = match entry.length {
            Some(_) => Kind::File,
            None => Kind::Directory,
        };
        Self {
            mtime: entry.attributes.modified.and_then(times::http_date),
            modified: entry.attributes.modified.map(times::seconds),
            mode: entry.attributes.mode.map(digits_of),
            size: entry.length,
            ..Self::named(&entry.name, kind)
        }
    }

    /// An entry with a name and a kind only.
    pub(crate) fn named(name: &OsStr, kind: Kind) -> Self {
        Self {
            name: name.to_string_lossy().into_owned(),
            encoded: name.to_str().is_none().then(|| encode_name(name)),
            kind,
            mtime: None,
            modified: None,
            mode: None,
            size: None,
        }
    }

    /// Time of the last change and permissions, as far as the server names them.
    pub(crate) fn attributes(&self) -> Attributes {
        let exact = self.modified.as_deref().and_then(times::of_seconds);
        let date = || httpdate::parse_http_date(self.mtime.as_deref()?).ok();
        Attributes {
            modified: exact.or_else(date),
            mode: self.mode.as_deref().and_then(mode_of),
        }
    }

    /// The name of the file, if this system can represent it.
    pub(crate) fn file_name(&self) -> Option<std::ffi::OsString> {
        match &self.encoded {
            Some(encoded) => percent_decode(encoded).and_then(file_name),
            None => Some(self.name.clone().into()),
        }
    }
}

impl std::fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::text::percent::percent_encode;

    /// All pieces of a page. The test compares their length with the announced length.
    fn whole(form: Form, target: &str, listing: &Listing) -> String {
        let mut page = Page::new(form, target, listing.clone());
        let length = page.length();
        let pieces = std::iter::repeat_with(|| page.piece(1));
        let whole: String = pieces.take_while(|piece| !piece.is_empty()).collect();
        assert_eq!(whole.len() as u64, length);
        whole
    }

    pub(crate) fn page(target: &str, listing: &Listing) -> String {
        whole(Form::Html, target, listing)
    }

    pub(crate) fn json(listing: &Listing) -> String {
        whole(Form::Json, "/", listing)
    }

    #[test]
    fn a_page_is_made_a_piece_at_a_time() {
        let entries = (0..1000)
            .map(|number| file(&number.to_string(), 1))
            .collect();
        let mut page = Page::new(Form::Json, "/", listing(entries));
        assert!(page.memory() < 100_000, "{}", page.memory());
        let piece = page.piece(1000);
        assert!((1000..1200).contains(&piece.len()), "{}", piece.len());
        assert!(page.piece(1000).starts_with(",{"));
    }

    fn file(name: &str, length: u64) -> Entry {
        Entry {
            name: name.into(),
            length: Some(length),
            attributes: Attributes {
                modified: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777)),
                mode: Some(0o640),
            },
        }
    }

    fn listing(entries: Vec<Entry>) -> Listing {
        Listing {
            entries,
            others: Vec::new(),
            more_after: None,
        }
    }

    #[test]
    fn programs_are_told_of_what_is_neither_file_nor_directory() {
        let mut listing = listing(vec![]);
        listing.others = vec!["pipe".into(), "out".into()];
        let others = "{\"name\":\"pipe\",\"type\":\"other\"},{\"name\":\"out\",\"type\":\"other\"}";
        assert_eq!(json(&listing), format!("[{others}]"));
        assert!(!page("/", &listing).contains("pipe"));
        listing.more_after = Some("x".into());
        listing.entries = vec![file("a", 1)];
        let list = json(&listing);
        let end = format!(",{others},{{\"name\":\"x\",\"type\":\"more\"}}]");
        assert!(list.ends_with(&end), "{list}");
    }

    #[test]
    fn names_are_text_and_links_lead_where_they_say() {
        let nasty = "<img src=x onerror='a()'> & \"b\"?#%.txt";
        let directory = Entry {
            length: None,
            ..file("javascript:x", 0)
        };
        let page = page("/", &listing(vec![directory, file(nasty, 5000)]));
        assert!(!page.contains("<img") && !page.contains("'a()'"), "{page}");
        let name = "&lt;img src=x onerror=&#39;a()&#39;&gt; &amp; &quot;b&quot;?#%.txt</span>";
        assert!(page.contains(name), "{page}");
        // Relative paths, which no name can turn into another scheme or host.
        assert!(page.contains("href=\"./javascript%3Ax/\""), "{page}");
        let link =
            "href=\"./%3Cimg%20src%3Dx%20onerror%3D%27a%28%29%27%3E%20%26%20%22b%22%3F%23%25.txt\"";
        assert!(page.contains(link), "{page}");
        assert!(
            page.contains("06 Nov 1994 08:49<") && page.contains("4.9 KiB"),
            "{page}"
        );
    }

    #[test]
    fn the_way_up_is_linked() {
        let page = page("/a%20b/<c>/d/?query", &listing(Vec::new()));
        let trail = "<h1><a href=\"../../../\">/</a><a href=\"../../\">a b/</a>\
                     <a href=\"../\">&lt;c&gt;/</a>d</h1>";
        assert!(page.contains(trail), "{page}");
        assert!(page.contains("<title>/a b/&lt;c&gt;/d</title>"), "{page}");
        assert!(page.contains("href=\"../\"") && page.contains("Nothing here."));
    }

    #[test]
    fn the_root_has_no_way_up_and_a_part_is_called_one() {
        let cut = Listing {
            entries: vec![file("a", 1)],
            others: Vec::new(),
            more_after: Some("a&\"b".into()),
        };
        let page = page("/", &cut);
        assert!(
            page.contains("<h1>/</h1>") && !page.contains("../"),
            "{page}"
        );
        let more = "<a href=\"?after=a%26%22b\"><span class=\"name\">There is more.";
        assert!(page.contains(more), "{page}");
    }

    #[test]
    fn programs_get_a_list() {
        let directory = Entry {
            length: None,
            ..file("a \"b\"", 0)
        };
        let mut listing = listing(vec![directory, file("c", 5)]);
        let times = "\"mtime\":\"Sun, 06 Nov 1994 08:49:37 GMT\",\
                     \"modified\":\"784111777.000000000\",\"mode\":\"0640\"";
        assert_eq!(
            json(&listing),
            format!(
                "[{{\"name\":\"a \\\"b\\\"\",\"type\":\"directory\",{times}}},\
                 {{\"name\":\"c\",\"type\":\"file\",{times},\"size\":5}}]"
            )
        );
        listing.more_after = Some("c".into());
        let listed: Vec<Listed> = serde_json::from_str(&json(&listing)).unwrap();
        assert_eq!(listed.len(), 3);
        assert_eq!((listed[2].kind, &*listed[2].name), (Kind::More, "c"));
    }

    #[test]
    fn sizes() {
        for (bytes, expected) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (10 << 10, "10 KiB"),
            (3 << 29, "1.5 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(size(bytes), expected);
        }
    }

    #[test]
    fn encoded_names_are_decoded_to_themselves() {
        for name in ["plain.txt", "with space", "ä/ö%20", "?#&=+;:@"] {
            let encoded = percent_encode(name);
            assert_eq!(percent_decode(&encoded), Some(name.into()), "{encoded}");
        }
    }

    /// The page without its style sheet.
    #[test]
    fn a_page_has_a_row_for_each_entry() {
        let directory = Entry {
            length: None,
            attributes: Attributes::default(),
            ..file("sub", 0)
        };
        let page = page("/a/b", &listing(vec![directory, file("x", 1)]));
        let (before, rest) = page.split_once("<style>").unwrap();
        let (_, after) = rest.split_once("</style>").unwrap();
        assert_eq!(
            format!("{before}{after}"),
            "<!DOCTYPE html>
<html lang=\"en\">
<head>
<meta charset=\"utf-8\">
<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">
<title>/a/b</title>

</head>
<body>
<h1><a href=\"../../\">/</a><a href=\"../\">a/</a>b</h1>
<ul>
<li><a href=\"../\"><span class=\"name dir\">..</span></a></li>
<li><a href=\"./sub/\"><span class=\"name dir\">sub/</span><span class=\"date\"></span><span class=\"size\"></span></a></li>
<li><a href=\"./x\"><span class=\"name\">x</span><span class=\"date\">06 Nov 1994 08:49</span><span class=\"size\">1 byte</span></a></li>
</ul>
</body>
</html>
"
        );
    }
}
