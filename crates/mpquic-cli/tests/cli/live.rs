//! `--live`, on a terminal of the test's own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use nix::pty::{OpenptyResult, Winsize, openpty};

use crate::{Server, data, directories, mpquic, names, wait_until};

const COLUMNS: usize = 100;
const ROWS: usize = 10;

/// What a terminal shows, as far as the view makes use of it.
struct Screen {
    cells: Vec<Vec<char>>,
    row: usize,
    column: usize,
    /// All that was written.
    bytes: Vec<u8>,
    /// What is not whole yet.
    rest: Vec<u8>,
}

impl Screen {
    fn new() -> Self {
        Self {
            cells: vec![vec![' '; COLUMNS]; ROWS],
            row: 0,
            column: 0,
            bytes: Vec::new(),
            rest: Vec::new(),
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.rest.extend_from_slice(bytes);
        let rest = std::mem::take(&mut self.rest);
        let valid = match std::str::from_utf8(&rest) {
            Ok(text) => text.len(),
            Err(error) => error.valid_up_to(),
        };
        let text = std::str::from_utf8(&rest[..valid]).unwrap();
        let mut at = 0;
        while let Some(c) = text[at..].chars().next() {
            if c != '\x1b' {
                self.put(c);
                at += c.len_utf8();
                continue;
            }
            let sequence = &text[at..];
            let end = sequence[1..].find(|c: char| c.is_ascii_alphabetic());
            let Some(end) = end else { break };
            self.control(&sequence[1..end + 2]);
            at += end + 2;
        }
        self.rest = rest[at..].to_vec();
    }

    fn put(&mut self, c: char) {
        match c {
            '\n' => (self.row, self.column) = (self.row + 1, 0),
            '\r' => self.column = 0,
            c => {
                let cell = self.cells.get_mut(self.row);
                if let Some(cell) = cell.and_then(|row| row.get_mut(self.column)) {
                    *cell = c;
                }
                self.column += 1;
            }
        }
    }

    /// Of what moves and clears, the view has these alone.
    fn control(&mut self, sequence: &str) {
        if let Some(place) = sequence
            .strip_prefix('[')
            .and_then(|it| it.strip_suffix('H'))
        {
            let (row, column) = place.split_once(';').unwrap_or(("1", "1"));
            self.row = row.parse::<usize>().unwrap() - 1;
            self.column = column.parse::<usize>().unwrap() - 1;
        } else if ["[2J", "[?1049h"].contains(&sequence) {
            self.cells = vec![vec![' '; COLUMNS]; ROWS];
        }
    }

    fn line(&self, row: usize) -> String {
        self.cells[row].iter().collect::<String>().trim_end().into()
    }
}

/// A command on a terminal.
struct Terminal {
    child: Child,
    keys: File,
    screen: Arc<Mutex<Screen>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _may_be_over = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Terminal {
    fn start(arguments: &[&str]) -> Self {
        let size = Winsize {
            ws_row: ROWS as u16,
            ws_col: COLUMNS as u16,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        let OpenptyResult { master, slave } = openpty(Some(&size), None).unwrap();
        let side = || Stdio::from(slave.try_clone().unwrap());
        let child = mpquic(arguments)
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .spawn()
            .unwrap();
        drop::<OwnedFd>(slave);
        let mut output = File::from(master);
        let keys = output.try_clone().unwrap();
        let screen = Arc::new(Mutex::new(Screen::new()));
        let reader = std::thread::spawn({
            let screen = screen.clone();
            move || {
                let mut bytes = [0; 4096];
                // It is an error where nobody has the other side any more.
                while let Ok(length @ 1..) = output.read(&mut bytes) {
                    screen.lock().unwrap().write(&bytes[..length]);
                }
            }
        });
        Self {
            child,
            keys,
            screen,
            reader: Some(reader),
        }
    }

    fn line(&self, row: usize) -> String {
        self.screen.lock().unwrap().line(row)
    }

    #[track_caller]
    fn wait_for(&self, row: usize, what: impl Fn(&str) -> bool, told: &str) {
        wait_until(told, || what(&self.line(row)));
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Its exit code, and all that it wrote.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        self.reader.take().unwrap().join().unwrap();
        let bytes = std::mem::take(&mut self.screen.lock().unwrap().bytes);
        (code, String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// It covers the terminal until the end, and would hide what is to be told at once.
#[test]
fn the_view_leaves_no_room_for_events() {
    let get = ["get", "https://127.0.0.1:1/x", "-o", "-", "--live"];
    let (code, text) = Terminal::start(&[&get[..], &["--json=events"]].concat()).end();
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("leave one out"), "{text}");
    let more = ["--json", "--connect-timeout", "1"];
    let (code, text) = Terminal::start(&[&get[..], &more].concat()).end();
    assert_eq!(code, Some(5), "{text}");
}

#[test]
fn paths_are_shown_and_keys_act_on_them() {
    let (served, target) = directories(&data(64 << 20));
    let server = Server::start(served.path(), &["--client-rate", "16M"]);
    let (url, file) = (server.url("/file"), target.path().join("copy"));
    let file = file.to_str().unwrap();
    let get = ["get", &url, "--pin", &server.pin, "-o", file, "--live"];
    let two = ["--local", "127.0.0.1", "--local", "127.0.0.2"];
    let mut terminal = Terminal::start(&[&get[..], &two].concat());
    terminal.wait_for(3, |line| line.starts_with("  1 127.0.0.2  active"), "paths");
    let line = terminal.line(2);
    assert!(line.starts_with("> 0 127.0.0.1  active"), "{line}");
    assert!(terminal.line(0).starts_with(&url), "{}", terminal.line(0));
    let keys = |line: &str| line.starts_with("↑↓ select  b backup");
    terminal.wait_for(ROWS - 1, keys, "the keys");
    let is_told = |told: &'static str| move |line: &str| line == told;
    terminal.press("j");
    terminal.wait_for(3, |line| line.starts_with("> 1"), "the selection");
    terminal.press("b");
    let told = is_told("path 1 is a backup from now on");
    terminal.wait_for(ROWS - 1, told, "what was done");
    terminal.wait_for(
        3,
        |line| line.starts_with("> 1 127.0.0.2  backup"),
        "a backup",
    );
    terminal.press("b");
    let told = is_told("path 1 is used again");
    terminal.wait_for(ROWS - 1, told, "what was done");
    terminal.wait_for(
        3,
        |line| line.starts_with("> 1 127.0.0.2  active"),
        "its return",
    );
    // Another selection says nothing of the one before.
    terminal.press("k");
    terminal.wait_for(2, |line| line.starts_with("> 0"), "the selection");
    terminal.wait_for(ROWS - 1, keys, "the keys");
    terminal.press("c");
    let told = is_told("path 0 is closed");
    terminal.wait_for(ROWS - 1, told, "what was done");
    terminal.wait_for(3, str::is_empty, "its end");
    terminal.wait_for(2, |line| line.starts_with("> 1 127.0.0.2"), "the other");
    terminal.press("q");
    let (code, text) = terminal.end();
    assert_eq!(code, Some(1));
    // What there was before is shown again, with the cursor, and then why it ended.
    let (view, after) = text.rsplit_once("\x1b[?1049l").unwrap();
    assert!(view.contains("\x1b[?1049h") && after.contains("\x1b[?25h"));
    assert!(after.contains("mpquic: interrupted; "), "{after}");
    assert!(
        after.contains("copy.part, and --continue fetches the rest"),
        "{after}"
    );
    assert!(view.contains("\x1b[38;5;2"), "green: {view:?}");
    assert_eq!(names(target.path()), ["copy.part", "copy.part.json"]);
}

/// A server tells its clients from each other by their addresses.
#[test]
fn a_server_shows_the_paths_of_its_clients() {
    let (served, target) = directories(&data(64 << 20));
    let directory = served.path().to_str().unwrap();
    let serve = ["serve", directory, "--listen", "127.0.0.1:0", "--live"];
    let slow = ["--client-rate", "16M"];
    let mut terminal = Terminal::start(&[&serve[..], &slow].concat());
    terminal.wait_for(1, |line| line == "no path yet", "the view");
    let said = String::from_utf8_lossy(&terminal.screen.lock().unwrap().bytes).into_owned();
    let (_, said) = said.split_once("listening on ").unwrap();
    let url = format!("https://{}/file", said.lines().next().unwrap());
    let get = |name: &str| {
        let mut get = mpquic(&["get", "--insecure", &url, "--quiet", "-o"]);
        get.arg(target.path().join(name)).spawn().unwrap()
    };
    let mut clients = [get("one"), get("two")];
    let is_shown = |line: &str| line.contains("127.0.0.1:") && line.contains(" 0  active");
    terminal.wait_for(3, is_shown, "clients");
    let (first, second) = (terminal.line(2), terminal.line(3));
    assert!(first.starts_with("> 127.0.0.1:") && second.starts_with("  127.0.0.1:"));
    let heads = terminal.line(1);
    assert!(
        heads.contains("lost") && heads.contains("window"),
        "{heads}"
    );
    let address = |line: &str| line[2..].split(' ').next().unwrap().to_owned();
    assert_ne!(address(&first), address(&second));
    for client in &mut clients {
        client.kill().unwrap();
        client.wait().unwrap();
    }
    terminal.press("q");
    let (_, text) = terminal.end();
    let (_, after) = text.rsplit_once("\x1b[?1049l").unwrap();
    assert!(after.contains("mpquic: interrupted"), "{after}");
}

/// What is said meanwhile is said at its end.
#[test]
fn the_view_ends_with_its_command() {
    let (served, target) = directories(&data(1 << 20));
    let server = Server::start(served.path(), &["--client-rate", "8M", "--allow-put"]);
    let (url, file) = (server.url("/file"), target.path().join("copy"));
    let file = file.to_str().unwrap();
    let get = ["get", &url, "--pin", &server.pin, "-o", file, "--live"];
    let (code, text) = Terminal::start(&get).end();
    assert_eq!(code, Some(0), "{text}");
    let (_, after) = text.rsplit_once("\x1b[?1049l").unwrap();
    assert!(after.contains("copy: 1.0 MiB in "), "{after}");
    assert_eq!(names(target.path()), ["copy"]);
    let put = [
        "put",
        &url,
        file,
        "--pin",
        &server.pin,
        "--live",
        "--rate",
        "8M",
    ];
    let (code, text) = Terminal::start(&put).end();
    assert_eq!(code, Some(0), "{text}");
    // Who sends knows what was lost.
    assert!(text.contains("window"), "{text}");
    let (_, after) = text.rsplit_once("\x1b[?1049l").unwrap();
    assert!(after.contains("/file: 1.0 MiB in "), "{after}");
}

/// Without the view, bars tell how far it is.
#[test]
fn progress_bars_need_a_terminal_and_no_quiet() {
    let (served, target) = directories(&data(500_000));
    let server = Server::start(served.path(), &["--client-rate", "8M", "--allow-put"]);
    let (url, root) = (server.url("/file"), server.url("/"));
    let (file, copies) = (target.path().join("copy"), target.path().join("copies"));
    let (file, copies) = (file.to_str().unwrap(), copies.to_str().unwrap());
    let get = ["get", &url, "-o", file];
    let tree = ["get", "-r", &root, "-o", copies];
    let put = ["put", &url, file, "--rate", "8M"];
    for (command, title) in [(&get[..], "file "), (&tree, "files "), (&put, "file ")] {
        for (quiet, is_shown) in [(&[][..], true), (&["--quiet"], false)] {
            let trust = ["--pin", server.pin.as_str()];
            let (code, text) = Terminal::start(&[command, &trust, quiet].concat()).end();
            assert_eq!(code, Some(0), "{text}");
            assert_eq!(text.contains("path 0 from 127.0.0.1"), is_shown, "{text}");
            assert_eq!(text.contains(title), is_shown, "{text}");
            if let Some((_, after)) = text.rsplit_once("path 0 from") {
                assert!(
                    after.contains("\x1b[2K"),
                    "it is there to the end: {after:?}"
                );
            }
        }
    }
}
