//! Files that users write, or that earlier runs left: credentials and rights, known servers, notes
//! beside parts of downloads, states of devices, and logs. The tool accepts the files that a naive
//! reading accepts. Files of others stay as they are. Messages are one line, and have no secrets.

#![no_main]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use arbitrary::Arbitrary;
use clap::Parser;
use http::header::{AUTHORIZATION, HeaderMap};
use libfuzzer_sys::fuzz_target;
use mpquic_core::PeerText;
use mpquic_proxy::{Credential, Credentials};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

#[path = "../../crates/mpquic-cli/src/client"]
mod client {
    #[expect(dead_code, reason = "files are read, not written")]
    pub(crate) mod known_hosts;
    pub(crate) mod secrets;
}
#[expect(dead_code, reason = "logs name it")]
#[path = "../../crates/mpquic-cli/src/files/mod.rs"]
mod files;
#[path = "../../crates/mpquic-cli/src/get"]
mod get {
    #[expect(dead_code, reason = "parts are opened, not finished")]
    pub(crate) mod beside;
    #[expect(dead_code, reason = "the user's own key is left alone")]
    pub(crate) mod note_key;
    #[expect(dead_code, reason = "parts are opened, not finished")]
    pub(crate) mod part_file;
    #[expect(dead_code, reason = "names of lists are read elsewhere")]
    pub(crate) mod part_name;
    mod pieces;
}
#[expect(dead_code, reason = "files are read, no option is")]
#[path = "../../crates/mpquic-cli/src/options/mod.rs"]
mod options;
#[expect(dead_code, reason = "logs become elements, not pages")]
#[path = "../../crates/mpquic-cli/src/pages/mod.rs"]
mod pages;
#[expect(dead_code, reason = "files name it")]
#[path = "../../crates/mpquic-cli/src/process/mod.rs"]
mod process;
#[path = "../../crates/mpquic-cli/src"]
mod page {
    #[expect(dead_code, reason = "logs are read, no page is written")]
    pub(crate) mod qlog;
}
#[expect(dead_code, reason = "options name it")]
#[path = "../../crates/mpquic-cli/src/rate/mod.rs"]
mod rate;
#[path = "../../crates/mpquic-cli/src/record"]
mod record {
    pub(crate) mod log;
}
#[path = "../../crates/mpquic-cli/src/serve"]
mod serve {
    #[expect(dead_code, reason = "requests are checked, not served")]
    pub(crate) mod rights;
}
#[expect(dead_code, reason = "files name it")]
#[path = "../../crates/mpquic-cli/src/text/mod.rs"]
mod text;
#[path = "../../crates/mpquic-cli/src/proxy/tun"]
mod tun {
    mod command;
    #[expect(dead_code, reason = "states are read, nothing is changed")]
    pub(crate) mod kill_switch;
    mod name;
    #[expect(dead_code, reason = "states are read, nothing is changed")]
    pub(crate) mod place;
    #[expect(dead_code, reason = "states are read, nothing is changed")]
    pub(crate) mod resolver;
    #[expect(dead_code, reason = "states are read, nothing is changed")]
    pub(crate) mod state;
}

/// The part of the tool's module `report` that logs need.
mod report {
    pub(crate) fn size(bytes: u64) -> String {
        format!("{bytes} B")
    }
}

use client::known_hosts::KnownHosts;
use client::secrets::SecretsArgs;
use get::note_key::NoteKey;
use get::part_file::{Keep, PartFile};
use get::part_name::Note;
use options::trust::{Checked, Fingerprint};
use process::failure::Failure;
use serve::rights::{Caller, Deed, Denied, Rights, RightsArgs, Rule, Table};
use text::hex::hex;
use text::percent::percent_decode;
use tun::state::{State, StateFile};

const URL: &str = "https://host/file";

#[derive(Debug, Arbitrary)]
enum Word {
    Known(u8),
    Any(String),
}

const WORDS: [&str; 32] = [
    "\n",
    " ",
    "\t",
    "#",
    "host",
    "host:4433",
    "HOST",
    "host:65536",
    "host:+443",
    "host:",
    "[::1]:4433",
    "user@host",
    "https://host",
    "basic",
    "Basic",
    "bearer",
    "alice:wonderland",
    "bob:",
    ":",
    "a:b:c",
    "abc",
    "abc=",
    "\u{e4}:\u{e4}",
    "basic alice:wonderland\n",
    "host bearer abc\n",
    "sha256:",
    "[::1]",
    "xn--",
    "\r\n",
    "\u{b}",
    "\u{85}",
    ",",
];

#[derive(Debug, Arbitrary)]
enum Part {
    /// A correct note, except for one member.
    Noted {
        bytes: u8,
        member: u8,
        value: u8,
    },
    Text(String),
}

#[derive(Debug, Arbitrary)]
enum Edit {
    Member(u8, u8),
    Text(String),
    Cut(u8),
}

#[derive(Debug, Arbitrary)]
struct Record {
    name: u8,
    time: i32,
    path: u8,
    number: u8,
    length: u32,
    more: u8,
    text: String,
}

#[derive(Debug, Arbitrary)]
enum Line {
    Record(Record),
    Any(String),
    Cut(Record, u8),
}

#[derive(Debug, Arbitrary)]
enum Input {
    Secrets(Vec<Word>),
    Rights {
        users: Vec<Word>,
        rules: Vec<(u8, u8, String)>,
        paths: Vec<String>,
        shown: Vec<u8>,
    },
    KnownHosts(Vec<Word>),
    Part(Vec<u8>, Part, bool),
    State(Edit),
    Logs {
        is_sequence: bool,
        lines: Vec<Line>,
        room: u16,
    },
}

fuzz_target!(|input: Input| {
    // In memory, if there is such a directory.
    let memory = Some(PathBuf::from("/dev/shm")).filter(|memory| memory.is_dir());
    let directory = memory.unwrap_or_else(std::env::temp_dir);
    let directory = directory.join(format!("mpquic-fuzz-{}", std::process::id()));
    // An earlier finding may have left files.
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    let file = directory.join("file");
    match &input {
        Input::Secrets(words) => check_secrets(&file, &text_of(words)),
        Input::Rights {
            users,
            rules,
            paths,
            shown,
        } => check_rights(&file, &text_of(users), rules, paths, shown),
        Input::KnownHosts(words) => check_known_hosts(&file, &text_of(words)),
        Input::Part(content, part, resume) => check_part(&file, content, part, *resume),
        Input::State(edit) => check_state(&directory, edit),
        Input::Logs {
            is_sequence,
            lines,
            room,
        } => check_logs(&file, *is_sequence, lines, (*room).into()),
    }
    fs::remove_dir_all(&directory).unwrap();
});

fn text_of(words: &[Word]) -> String {
    let words = words.iter().take(40).map(|word| match word {
        Word::Known(index) => WORDS[usize::from(*index) % WORDS.len()],
        Word::Any(text) => text,
    });
    words.collect()
}

fn write(file: &Path, text: impl AsRef<[u8]>) {
    fs::write(file, text).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Checks that the message is one line, of limited length.
fn check_message(failure: &Failure) {
    let message = failure.message();
    assert!(message.chars().all(PeerText::is_plain), "{message}");
    assert!(!message.is_empty() && message.len() < 2000, "{message}");
}

/// The lines with content, and their numbers.
fn lines_of(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(text.lines().map(str::trim));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// A credential of a line, by RFC 7617 section 2 and RFC 6750 section 2.1.
fn naive_credential(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once(' ')?;
    let rest = rest.trim();
    match &*scheme.to_ascii_lowercase() {
        "basic" => {
            let (name, _) = rest.split_once(':')?;
            let is_name = !name.is_empty() && name.len() <= 64;
            let is_fine = is_name && name.bytes().all(|byte| (0x21..0x7f).contains(&byte));
            (is_fine && !rest.contains(char::is_control)).then(|| name.to_owned())
        }
        "bearer" => {
            let is_of_token = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
            let is_fine = !rest.is_empty() && rest.chars().all(is_of_token);
            is_fine.then(|| format!("token-{}", &hex(&Sha256::digest(rest))[..8]))
        }
        _ => None,
    }
}

fn check_credential(text: &str) {
    let credential = text.parse::<Credential>().ok();
    assert_eq!(
        credential
            .as_ref()
            .map(|credential| credential.name().to_owned()),
        naive_credential(text),
        "{text:?}"
    );
    if let Some(credential) = credential {
        let field = credential.to_field();
        assert!(field.is_sensitive());
        let shown = format!("{credential:?}");
        assert_eq!(shown, format!("Credential({})", credential.name()));
        let name = credential.name().to_owned();
        let users = Credentials::new([credential]);
        assert_eq!(users.user(&field), Some(&*name));
    }
}

#[derive(Debug, Parser)]
struct Client {
    #[command(flatten)]
    secrets: SecretsArgs,
}

fn check_secrets(file: &Path, text: &str) {
    write(file, text);
    let words = [
        "client".as_ref(),
        "--credentials".as_ref(),
        file.as_os_str(),
    ];
    let read = Client::try_parse_from(words).unwrap().secrets.read();
    let lines = lines_of(text).map(|(number, line)| {
        let (host, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        check_credential(rest.trim());
        (
            number,
            naive_server(host).zip(naive_credential(rest.trim())),
        )
    });
    let lines: Vec<_> = lines.collect();
    let secrets = match (read, lines.iter().find(|(_, line)| line.is_none())) {
        (Ok(secrets), None) => secrets,
        (Err(failure), Some((number, _))) => {
            check_message(&failure);
            let expected = format!(", line {number}: ");
            assert!(
                failure.message().contains(&expected),
                "{}",
                failure.message()
            );
            return;
        }
        (read, wrong) => panic!("{wrong:?} of {text:?}: {}", read.is_ok()),
    };
    for url in [
        "https://host/",
        "https://HOST:443/",
        "https://host:4433/",
        "https://[::1]:4433/",
    ] {
        let url: http::Uri = url.parse().unwrap();
        let server = naive_server(url.authority().unwrap().as_str());
        let mut fields = HeaderMap::new();
        secrets.add_to(&url, &mut fields);
        let expected = lines.iter().filter_map(|(_, line)| line.as_ref());
        let is_known = expected
            .map(|(of, _)| of)
            .any(|of| Some(of) == server.as_ref());
        assert_eq!(fields.contains_key(AUTHORIZATION), is_known, "{url}");
        assert_eq!(fields.len(), usize::from(is_known));
    }
}

/// A host in small letters, and its port.
fn naive_server(authority: &str) -> Option<(String, u16)> {
    authority.parse::<http::uri::Authority>().ok()?;
    let is_bracketed = authority.starts_with('[') && authority.ends_with(']');
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !is_bracketed => (host, port),
        _ => (authority, "443"),
    };
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
    // RFC 3986 section 3.2.3: no port means the default one.
    let port = if port.is_empty() { "443" } else { port };
    let port = port.parse().ok().filter(|_| is_port)?;
    // RFC 3986 section 3.2.2: brackets are around the whole host.
    let inside = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let has_brackets = inside.unwrap_or(host).contains(['[', ']']);
    let is_host = !host.is_empty() && !host.contains('@') && !has_brackets;
    is_host.then(|| (host.to_ascii_lowercase(), port))
}

/// A rule: the user, the rights, and the names of the prefix.
type Naive = (&'static str, &'static str, Vec<Vec<u8>>);

fn check_rights(
    file: &Path,
    text: &str,
    rules: &[(u8, u8, String)],
    paths: &[String],
    shown: &[u8],
) {
    write(file, text);
    let (mut allow, mut naive): (Vec<Rule>, Vec<Naive>) = Default::default();
    for (who, rights, prefix) in rules.iter().take(6) {
        let who = ["anybody", "users", "alice", "bob", ""][usize::from(*who % 5)];
        let rights = ["r", "w", "rw", "x"][usize::from(*rights % 4)];
        let any = prefix.strip_prefix('|');
        let prefix = any.map_or_else(|| format!("/{prefix}/"), str::to_owned);
        if let Ok(rule) = format!("{who}:{rights}:{prefix}").parse::<Rule>() {
            assert_eq!(rule.to_string().parse(), Ok(rule.clone()));
            allow.push(rule);
            naive.push((who, rights, naive_names(&prefix).expect("names")));
        }
    }
    let args = RightsArgs {
        credentials: Some(file.to_owned()),
        allow,
        has_certificates: false,
    };
    let users = lines_of(text).map(|(_, line)| naive_credential(line));
    let users: Option<Vec<_>> = users.collect();
    let users = users.filter(|users| !users.is_empty());
    let is_there = |who: &str| users.iter().flatten().any(|user| user == who);
    let are_there = |(who, ..): &Naive| ["anybody", "users"].contains(who) || is_there(who);
    let is_right = users.is_some() && naive.iter().all(are_there);
    let table = match Table::read(&args, true) {
        Ok(table) => {
            assert!(is_right, "{text:?}");
            table
        }
        Err(failure) => {
            check_message(&failure);
            assert!(!is_right, "{text:?}");
            return;
        }
    };
    if naive.is_empty() {
        naive.push(("users", "rw", Vec::new()));
    }
    let rights = Rights::new(table);
    let lines: Vec<&str> = lines_of(text).map(|(_, line)| line).collect();
    let shown = shown.iter().chain(std::iter::repeat(&0));
    for (path, shown) in paths.iter().zip(shown).take(6) {
        let deed = if shown % 2 == 0 {
            Deed::Read
        } else {
            Deed::Write
        };
        let line = lines.get(usize::from(*shown / 2)).copied();
        check_look(&rights, &naive, line, (deed, &format!("/{path}")));
    }
}

/// A request of the user with this line, or of a stranger.
fn check_look(rights: &Rights, naive: &[Naive], line: Option<&str>, (deed, path): (Deed, &str)) {
    let mut fields = HeaderMap::new();
    let user = line.map(|line| {
        let credential: Credential = line.parse().unwrap();
        fields.insert(AUTHORIZATION, credential.to_field());
        credential.name().to_owned()
    });
    let client = std::net::Ipv4Addr::LOCALHOST.into();
    let found = rights.look(&Caller::default(), client, &fields, (deed, path));
    let letter = if deed == Deed::Read { 'r' } else { 'w' };
    let names = naive_names(path);
    let may = naive.iter().any(|(who, rights, prefix)| {
        let is_user = user.as_deref() == Some(who);
        let is_meant = *who == "anybody" || is_user || *who == "users" && user.is_some();
        let is_below = match &names {
            // The directory of a rule is not below itself.
            Some(names) if deed == Deed::Write && !prefix.is_empty() => {
                names.len() > prefix.len() && names.starts_with(prefix)
            }
            Some(names) => names.starts_with(prefix),
            None => prefix.is_empty(),
        };
        is_meant && rights.contains(letter) && is_below
    });
    let expected = match (may, user) {
        (true, user) => Ok(user),
        (false, None) => Err(Denied::Unknown),
        (false, user) => Err(Denied::Forbidden(user)),
    };
    assert_eq!(found, expected, "{path}");
}

/// The names in a path; `None` if one of them leads elsewhere.
fn naive_names(path: &str) -> Option<Vec<Vec<u8>>> {
    let end = path.find(['?', '#']).unwrap_or(path.len());
    let names = path[..end].split('/').filter(|name| !name.is_empty());
    let names: Option<Vec<_>> = names.map(percent_decode).collect();
    let is_odd = |name: &Vec<u8>| name == b"." || name == b".." || name.contains(&b'/');
    names.filter(|names| !names.iter().any(is_odd))
}

fn check_known_hosts(file: &Path, text: &str) {
    write(file, text);
    let hosts = KnownHosts::new(Some(file)).unwrap();
    for server in ["host", "host:4433", "[::1]:4433"] {
        let named = text.lines().map(|line| {
            let mut words = line.split_whitespace();
            (
                words.next().unwrap_or_default(),
                words.next().unwrap_or_default(),
            )
        });
        let mut named = named.filter(|(name, _)| name.eq_ignore_ascii_case(server));
        let expected = named.next().map(|(_, word)| word.parse::<Fingerprint>());
        match (hosts.find(server), expected) {
            (Ok(None), None) => {}
            (Ok(Some(found)), Some(Ok(expected))) => assert_eq!(found, expected),
            (Err(failure), Some(Err(_))) => check_message(&failure),
            (found, _) => panic!("{server} in {text:?}: {:?}", found.is_ok()),
        }
    }
}

/// The note of this part, with one changed member.
fn noted(content: &[u8], bytes: u8, member: u8, value: u8) -> Value {
    let bytes = usize::from(bytes).min(content.len());
    let mut note = json!({
        "url": URL,
        "stamp": { "etag": "\"1\"" },
        "length": content.len(),
        "bytes": bytes,
        "sha256": hex(&Sha256::digest(&content[..bytes])),
        "checked": "first-use",
    });
    let values = [
        Value::Null,
        json!("https://host/other"),
        json!(bytes + 1),
        json!(u64::MAX),
        json!(-1),
        json!({ "last_modified": "yesterday" }),
        json!(1.5),
        json!(["\u{1b}"]),
        json!("certificate"),
    ];
    let members = [
        "url", "stamp", "length", "bytes", "sha256", "checked", "other",
    ];
    if let Some(name) = members.get(usize::from(member)) {
        note[*name] = values[usize::from(value) % values.len()].clone();
    }
    note
}

fn check_part(file: &Path, content: &[u8], part: &Part, resume: bool) {
    let beside = |suffix: &str| PathBuf::from(format!("{}{suffix}", file.display()));
    let (at, note_at) = (beside(".part"), beside(".part.json"));
    let key = NoteKey::at(Some(file.with_file_name("parts.key")));
    let (note, text) = match part {
        Part::Noted {
            bytes,
            member,
            value,
        } => {
            let note = noted(content, *bytes, *member, *value);
            match serde_json::from_value::<Note>(note.clone()) {
                Ok(note) => {
                    let text = note.text(&key).unwrap().unwrap();
                    (Some(note), String::from_utf8(text).unwrap())
                }
                Err(_) => (None, note.to_string()),
            }
        }
        // A note that was written without the key does not count.
        Part::Text(text) => (None, text.clone()),
    };
    write(&at, content);
    write(&note_at, &text);
    let checks = [Checked::Nothing, Checked::FirstUse, Checked::Certificate];
    let checked = checks[content.len() % checks.len()];
    let is_whole = |note: &Note| {
        let bytes = usize::try_from(note.bytes).ok()?;
        let begun = content.get(..bytes)?;
        Some(
            note.url == URL
                && bytes > 0
                && note.stamp.is_some()
                && note.checked >= checked
                && hex(&Sha256::digest(begun)) == note.sha256,
        )
    };
    let is_continued = resume && note.as_ref().and_then(is_whole) == Some(true);
    let keep = Keep {
        url: URL,
        resume,
        replace: true,
        private: false,
        key: &key,
        checked,
    };
    let (opened, begun) = PartFile::open(file, &keep).unwrap();
    match note {
        // The file belongs to somebody else.
        None => {
            assert_eq!(opened.part(), beside(".2.part"));
            assert_eq!(fs::read(&at).unwrap(), content);
            assert_eq!(fs::read(&note_at).unwrap(), text.as_bytes());
            assert_eq!(begun.have, 0);
        }
        Some(note) => {
            assert_eq!(opened.part(), at);
            assert_eq!(begun.have, if is_continued { note.bytes } else { 0 });
            let there = fs::read(&at).unwrap();
            assert_eq!(there, content[..begun.have as usize]);
            if is_continued {
                assert_eq!(
                    (begun.version.stamp, begun.version.length),
                    (note.stamp, note.length)
                );
                assert_eq!(begun.useless, None);
            }
        }
    }
    drop(opened);
    // A part that can be continued stays.
    assert_eq!(beside(".2.part").exists(), false);
    if is_continued {
        assert_eq!(fs::read(&at).unwrap(), content[..begun.have as usize]);
        let again: Value = serde_json::from_slice(&fs::read(&note_at).unwrap()).unwrap();
        assert_eq!(again["bytes"], begun.have);
    }
}

fn check_state(directory: &Path, edit: &Edit) {
    let state = json!({
        "name": "tun0",
        "process": 7,
        "table": 443_001,
        "sources": ["198.18.0.1/30"],
        "networks": ["0.0.0.0/0"],
        "kept": ["10.0.0.0/8"],
        "resolver": { "path": "/etc/resolv.conf", "before": null, "after": "nameserver ::1\n" },
        "kill_switch": {
            "proxy": "host:443",
            "addresses": ["192.0.2.1:443"],
            "user": 1000,
            "kept": [],
            "lan": [{ "interface": "eth0", "network": "10.0.0.0/8" }],
        },
    });
    let right: State = serde_json::from_value(state.clone()).unwrap();
    let directories = [directory.to_owned()];
    // No state is kept in a directory that others may write to.
    let Ok(file) = StateFile::create(&directories, &right) else {
        return;
    };
    assert_eq!(file.read().unwrap(), right);
    let text = match edit {
        Edit::Member(member, value) => {
            let mut state = state;
            let values = [
                Value::Null,
                json!("tun1"),
                json!("../tun0"),
                json!("tun0\n"),
                json!([]),
                json!(u64::MAX),
                json!(["10.0.0.0/33"]),
                json!(["::/0", "::1/128"]),
                json!({ "path": "/etc/shadow", "after": "" }),
            ];
            let names: Vec<String> = state.as_object().unwrap().keys().cloned().collect();
            let name = &names[usize::from(*member) % names.len()];
            state[name] = values[usize::from(*value) % values.len()].clone();
            state.to_string()
        }
        Edit::Text(text) => text.clone(),
        Edit::Cut(at) => state.to_string().chars().take(usize::from(*at)).collect(),
    };
    fs::write(file.path(), &text).unwrap();
    let Ok(read) = file.read() else {
        return;
    };
    // The name of the device is the name of the file.
    assert_eq!(read.name, "tun0");
    let value: Value = serde_json::from_str(&text).unwrap();
    assert!(value.is_array() || value["name"] == "tun0");
    file.write(&read).unwrap();
    assert_eq!(file.read().unwrap(), read);
    let left = StateFile::all(&directories).unwrap();
    assert!(left.len() == 1 && left[0].is_of("tun0"));
}

const EVENTS: [&str; 8] = [
    "quic:packet_received",
    "quic:packet_sent",
    "quic:recovery_metrics_updated",
    "quic:tuple_assigned",
    "quic:packet_lost",
    "quic:connection_closed",
    "security:key_updated",
    "loglevel:warning",
];
/// A secret that no page may contain.
const SECRET: &str = "5ec2e7";

fn record(record: &Record) -> Value {
    let kind = if record.more % 4 == 0 {
        "initial"
    } else {
        "1RTT"
    };
    // Mostly within seconds: each hour of a recording takes memory.
    let time = match record.time % 64 {
        0 => record.time,
        _ => record.time % 80_000,
    };
    json!({
        "time": f64::from(time) / 8.0,
        "name": EVENTS[usize::from(record.name) % EVENTS.len()],
        "secret": SECRET,
        "data": {
            "header": { "packet_type": kind, "packet_number": record.number, "path_id": record.path, "dcid": SECRET },
            "raw": { "length": record.length, "data": SECRET },
            "path_id": record.path,
            "latest_rtt": f64::from(record.length) / 16.0,
            "tuple_local": { "ip_v4": "192.0.2.1" },
            "token": { "data": SECRET },
            "reason": record.text,
        },
    })
}

fn check_logs(file: &Path, is_sequence: bool, lines: &[Line], room: usize) {
    let head = json!({ "trace": { "vantage_point": { "type": "client" }, "odcid": SECRET } });
    let text = if is_sequence {
        let lines = lines.iter().take(24).map(|line| match line {
            Line::Record(one) => record(one).to_string(),
            Line::Any(text) => text.clone(),
            Line::Cut(one, at) => record(one).to_string().chars().take((*at).into()).collect(),
        });
        let lines = std::iter::once(head.to_string()).chain(lines);
        lines.map(|line| format!("\u{1e}{line}\n")).collect()
    } else {
        let events = lines.iter().take(24).map(|line| match line {
            Line::Record(one) | Line::Cut(one, _) => record(one),
            Line::Any(text) => text.as_str().into(),
        });
        let events: Vec<Value> = events.collect();
        let more = lines.iter().find_map(|line| match line {
            Line::Any(text) => Some(text.as_str()),
            _ => None,
        });
        let trace = json!({ "events": events, "vantage_point": {}, "odcid": SECRET });
        format!(
            "{{\"title\":\"x\",\"traces\":[{trace}{}]}}",
            more.unwrap_or_default()
        )
    };
    write(file, &text);
    check_page(file, &text, room);
    check_recording(file);
}

fn check_page(file: &Path, text: &str, room: usize) {
    let mut left = room;
    let logs = match page::qlog::read(file, &mut left) {
        Ok(logs) => logs,
        Err(what) => {
            check_message(&process::failure::Cause::File.failed(what));
            return;
        }
    };
    assert!(!logs.is_empty() && left <= room);
    let mut used = 0;
    for log in &logs {
        for line in log.lines() {
            let record: Value = serde_json::from_str(line).expect("a record");
            check_members(&record);
        }
        let element = pages::data("x", log);
        used += log.len();
        assert_eq!(element.matches('<').count(), 2, "its own tags");
    }
    // A notice of the end of each log does not count.
    assert!(used <= room - left + 400 * logs.len());
    assert!(logs.iter().map(|log| log.lines().count()).sum::<usize>() <= 2 * text.len() + 2);
}

/// Checks that a page has no member that contains secrets.
fn check_members(value: &Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let is_secret = ["secret", "dcid", "odcid", "token"].contains(&name.as_str());
                assert!(
                    !is_secret && !(name == "data" && !value.is_object()),
                    "{name}"
                );
                check_members(value);
            }
        }
        Value::Array(values) => values.iter().for_each(check_members),
        _ => {}
    }
}

fn check_recording(file: &Path) {
    match record::log::read(file) {
        Ok(paths) => {
            assert!((1..=64).contains(&paths.len()));
            if let Ok(text) = mpquic_lab::recorded(&paths, 20) {
                assert!(text.contains("title = ") && !text.contains("NaN"));
            }
        }
        Err(failure) => check_message(&failure),
    }
}
