//! Pages for the browser: each page is a single file without external parts.

use mpquic_lab::PAGE_STYLE;
use sha2::{Digest, Sha256};

use crate::text::hex::hex;

/// Shows qlogs: logs in its data, and logs that the reader opens.
pub(crate) const QLOG: Page = Page {
    title: "mpquic qlog",
    body: include_str!("qlog.html"),
    script: concat!(
        include_str!("words.js"),
        include_str!("qlog_read.js"),
        include_str!("qlog_draw.js"),
        include_str!("qlog_page.js"),
    ),
    connects: false,
};

/// Shows the paths of its own server.
pub(crate) const LIVE: Page = Page {
    title: "mpquic paths",
    body: include_str!("live.html"),
    script: concat!(include_str!("words.js"), include_str!("live.js")),
    connects: true,
};

/// A page without its data.
pub(crate) struct Page {
    title: &'static str,
    body: &'static str,
    script: &'static str,
    /// True if the page sends requests to its server.
    connects: bool,
}

impl Page {
    /// The page with `data`: elements made by [`data`], whose content may come from peers. If
    /// content escapes from its element, the browser neither runs nor loads it: scripts need a
    /// nonce that the peer does not know.
    pub(crate) fn with(&self, data: &str) -> String {
        let hash = Sha256::new().chain_update(self.script).chain_update(data);
        let word = hex(&hash.finalize());
        let connect = if self.connects { "'self'" } else { "'none'" };
        let Self {
            title,
            body,
            script,
            ..
        } = self;
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'nonce-{word}'; \
             style-src 'nonce-{word}'; connect-src {connect}; base-uri 'none'; form-action 'none'\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width\"/>\n<title>{title}</title>\n\
             <style nonce=\"{word}\">\n{PAGE_STYLE}{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}\
             {data}<script nonce=\"{word}\">\n{script}</script>\n</body>\n</html>\n"
        )
    }
}

const STYLE: &str = include_str!("style.css");

/// Records of a log, for the page to read. In JSON, `<` stands within strings only, and the escape
/// means the same character. So no record can end the element.
pub(crate) fn data(name: &str, records: &str) -> String {
    let name = name
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('"', "&quot;");
    let records = records.replace('<', "\\u003c");
    format!(
        "<script type=\"application/qlog+json-seq\" data-name=\"{name}\">\n{records}</script>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_data_stays_inside_its_element() {
        let evil = "</script><img src=x onerror=alert(1)><!--<script>";
        let record = serde_json::json!({ "name": evil }).to_string();
        let element = data(&format!("\"{evil}&"), &record);
        assert_eq!(element.matches('<').count(), 2, "its own tags: {element}");
        let (_, inside) = element.split_once('\n').unwrap();
        let inside = inside.strip_suffix("</script>\n").unwrap();
        let read: serde_json::Value = serde_json::from_str(inside).unwrap();
        assert_eq!(read["name"], evil);
        assert!(
            element.contains("data-name=\"&quot;&lt;/script>"),
            "{element}"
        );
    }

    #[test]
    fn a_page_loads_nothing() {
        for page in [QLOG.with(""), LIVE.with("")] {
            for outside in [
                "http:",
                "https:",
                "src=",
                "href=",
                "url(",
                "@import",
                "innerHTML",
            ] {
                assert!(!page.contains(outside), "{outside}");
            }
            assert_eq!(page.matches("</script>").count(), 1);
        }
        assert!(QLOG.with("").contains("connect-src 'none'"));
    }
}
