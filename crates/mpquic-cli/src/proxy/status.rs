//! `mpquic proxy status`: a running proxy, or a client of a proxy, reports paths and flows over a Unix socket.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use mpquic_proxy::{FlowKind, FlowStats, Target};
use mpquic_tokio::Connection;
use ratatui::crossterm::cursor::MoveTo;
use ratatui::crossterm::queue;
use ratatui::crossterm::terminal::{self, Clear, ClearType};
use serde::{Deserialize, Serialize};

use crate::client::backup;
use crate::process::clock;
use crate::process::failure::{Failure, one_line};
use crate::process::screen;
use crate::report::{self, PathReport};
use crate::text::count::count;
use crate::text::json;

/// Interval of `--live`.
const LOOK: Duration = Duration::from_secs(1);

/// Show the paths and flows of the proxy, or of the proxy client, on this machine
///
/// Asks the Unix socket of the proxy or its client (--status-socket), and prints a row for each
/// path and each flow. With --live, the command repeats this each second until SIGINT or SIGTERM
/// ends it (exit code 0), with the rates of the last second, and with the busiest flows first.
#[derive(Debug, Args)]
pub(crate) struct ProxyStatus {
    /// The socket to ask [default: proxy-client.sock, then proxy-server.sock, in $RUNTIME_DIRECTORY or
    /// $XDG_RUNTIME_DIR, then in /run/mpquic and /run/mpquic-tun, where services have them]
    socket: Option<PathBuf>,
    /// Print a JSON object with `role`, `connections` (with `paths` as in `mpquic get --json`), `flows`
    /// and, of a client with `--tun`, `tunnel`
    #[arg(long)]
    json: bool,
    /// Refresh each second, with the rates of each path and flow in the last second
    #[arg(long, conflicts_with = "json")]
    pub(crate) live: bool,
}

// (A doc comment here would replace the help text of the command.)
#[derive(Debug, Clone, Args)]
pub(crate) struct StatusSocket {
    /// Unix socket that answers `mpquic proxy status`, for this user and root only [default:
    /// proxy-client.sock or proxy-server.sock in $RUNTIME_DIRECTORY, or else in $XDG_RUNTIME_DIR; no
    /// socket if neither is set]
    #[arg(long, value_name = "SOCKET")]
    status_socket: Option<PathBuf>,
}

/// The kind of process that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Role {
    Client,
    Server,
}

/// The content of an answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    role: Role,
    connections: Vec<ConnectionRow>,
    flows: Vec<FlowRow>,
    /// The network device of a client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tunnel: Option<TunnelRow>,
}

/// A network device, and the routes beside it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TunnelRow {
    pub(crate) device: String,
    /// True while the kill switch is closed.
    pub(crate) kill_switch: bool,
    /// Routes past the device to public addresses. The client's rules make these routes useless.
    pub(crate) routes_refused: usize,
    /// Routes past the device, by way of a gateway, to private addresses.
    pub(crate) routes_past: usize,
}

#[derive(Debug, Serialize, Deserialize)]
struct ConnectionRow {
    peer: Option<String>,
    multipath: bool,
    key_exchange: Option<String>,
    paths: Vec<PathReport>,
}

#[derive(Debug, Serialize, Deserialize)]
struct FlowRow {
    /// The number of the flow, counted from the first flow.
    number: u64,
    protocol: String,
    target: String,
    user: Option<String>,
    class: String,
    bytes_sent: u64,
    bytes_received: u64,
    seconds: f64,
}

impl Status {
    pub(crate) fn new(role: Role, connections: &[Connection], flows: &[FlowStats]) -> Self {
        Self {
            role,
            connections: connections.iter().map(connection_row).collect(),
            flows: flows.iter().map(flow_row).collect(),
            tunnel: None,
        }
    }

    /// Adds a network device.
    pub(crate) fn with(self, tunnel: Option<TunnelRow>) -> Self {
        Self { tunnel, ..self }
    }

    /// A row for each path and flow, with rates since an earlier status.
    fn table(&self, before: Option<&Before>) -> String {
        let role = match self.role {
            Role::Client => "client",
            Role::Server => "server",
        };
        let connections = count(self.connections.len(), "connection");
        let flows = count(self.flows.len(), "flow");
        let mut text = format!("{role}: {connections}, {flows}\n");
        if let Some(tunnel) = &self.tunnel {
            let _ = writeln!(
                text,
                "{}: kill switch {}; routes past the tunnel: {} refused, {} used",
                one_line(&tunnel.device),
                if tunnel.kill_switch { "closed" } else { "off" },
                tunnel.routes_refused,
                tunnel.routes_past,
            );
        }
        let headings = [
            "connection",
            "path",
            "local",
            "remote",
            "state",
            "rtt ms",
            "sent",
            "received",
            "lost",
        ];
        let mut rows = vec![headings.map(str::to_owned).to_vec()];
        rows[0].extend(rate_headings(before));
        for (number, connection) in self.connections.iter().enumerate() {
            rows.extend(connection.paths.iter().map(|path| {
                let mut row = vec![
                    match connection.multipath {
                        true => number.to_string(),
                        false => format!("{number} (no multipath)"),
                    },
                    path.id.to_string(),
                    path.local.clone(),
                    path.remote.clone(),
                    path.state.to_string(),
                    format!("{:.1}", path.rtt_ms),
                    path.bytes_sent.to_string(),
                    path.bytes_received.to_string(),
                    path.lost.to_string(),
                ];
                row.extend(before.into_iter().flat_map(|before| {
                    let bytes = [path.bytes_sent, path.bytes_received];
                    before.rates(before.of_path(connection, path), bytes)
                }));
                row
            }));
        }
        align(&mut text, &rows);
        let headings = [
            "flow", "target", "user", "class", "sent", "received", "seconds",
        ];
        let mut rows = vec![headings.map(str::to_owned).to_vec()];
        rows[0].extend(rate_headings(before));
        rows.extend(self.flows.iter().map(|flow| {
            let mut row = vec![
                flow.protocol.clone(),
                flow.target.clone(),
                flow.user.clone().unwrap_or_default(),
                flow.class.clone(),
                flow.bytes_sent.to_string(),
                flow.bytes_received.to_string(),
                format!("{:.0}", flow.seconds),
            ];
            row.extend(before.into_iter().flat_map(|before| {
                let bytes = [flow.bytes_sent, flow.bytes_received];
                before.rates(before.of_flow(flow), bytes)
            }));
            row
        }));
        align(&mut text, &rows);
        text
    }
}

fn rate_headings(before: Option<&Before>) -> impl Iterator<Item = String> {
    let headings = ["sends", "receives"].map(str::to_owned);
    before.into_iter().flat_map(move |_| headings.clone())
}

/// An earlier status.
struct Before {
    status: Status,
    seconds: f64,
}

impl Before {
    /// Bytes that a path had sent and received in the earlier status; zero for a new path.
    fn of_path(&self, connection: &ConnectionRow, path: &PathReport) -> [u64; 2] {
        let same = |row: &&ConnectionRow| row.peer == connection.peer;
        let mut paths = (self.status.connections.iter().filter(same)).flat_map(|row| &row.paths);
        let known = paths.find(|row| row.id == path.id);
        known.map_or([0; 2], |row| [row.bytes_sent, row.bytes_received])
    }

    /// Bytes that a flow had sent and received in the earlier status; zero for a new flow.
    fn of_flow(&self, flow: &FlowRow) -> [u64; 2] {
        let place = (self.status.flows).binary_search_by_key(&flow.number, |row| row.number);
        place.map_or([0; 2], |place| {
            let row = &self.status.flows[place];
            [row.bytes_sent, row.bytes_received]
        })
    }

    /// Sorts flows by their bytes since the earlier status.
    fn put_busiest_first(&self, flows: &mut [FlowRow]) {
        flows.sort_by_cached_key(|flow| {
            let then: u64 = self.of_flow(flow).iter().sum();
            Reverse((flow.bytes_sent + flow.bytes_received).saturating_sub(then))
        });
    }

    /// Bytes per second since the earlier status.
    fn rates(&self, then: [u64; 2], now: [u64; 2]) -> [String; 2] {
        let rate = |which: usize| now[which].saturating_sub(then[which]) as f64 / self.seconds;
        [0, 1].map(|which| report::rate(rate(which)))
    }
}

fn connection_row(connection: &Connection) -> ConnectionRow {
    let mut paths = report::paths(&[], &connection.path_stats());
    backup::mark(&mut paths, connection);
    ConnectionRow {
        peer: connection.remote_address().map(|peer| peer.to_string()),
        multipath: connection.is_multipath(),
        key_exchange: report::key_exchange(connection),
        paths,
    }
}

fn flow_row(flow: &FlowStats) -> FlowRow {
    FlowRow {
        number: flow.number,
        protocol: match flow.kind {
            FlowKind::Tcp => "tcp",
            FlowKind::Udp => "udp",
            FlowKind::Ip => "ip",
            _ => "other",
        }
        .to_owned(),
        target: flow
            .target
            .as_ref()
            .map_or("*".to_owned(), Target::to_string),
        user: flow.user.clone(),
        class: flow.class.to_string(),
        bytes_sent: flow.sent,
        bytes_received: flow.received,
        seconds: flow.age.as_secs_f64(),
    }
}

/// Writes rows with aligned columns, each on one line. Users of the proxy choose the names in them.
fn align(text: &mut String, rows: &[Vec<String>]) {
    let clean = |row: &Vec<String>| row.iter().map(|cell| one_line(cell)).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(clean).collect();
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    for row in &rows {
        let cells = row.iter().zip(&widths);
        let cells: Vec<_> = cells
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        let _ = writeln!(text, "{}", cells.join("  ").trim_end());
    }
}

/// Asks, and prints the answer. With `--live`, repeats until dropped, or until the socket gives no answer.
pub(crate) async fn run(args: &ProxyStatus) -> Result<(), Failure> {
    let socket = args.socket.as_deref();
    let status = socket::ask(socket)?;
    if args.json {
        json::print(&status);
        return Ok(());
    }
    if !args.live {
        screen::write(status.table(None));
        return Ok(());
    }
    let mut before = Before {
        status,
        seconds: 0.0,
    };
    let mut asked = clock::now();
    loop {
        tokio::time::sleep(LOOK).await;
        let mut status = socket::ask(socket)?;
        let now = clock::now();
        before.seconds = now.duration_since(asked).as_secs_f64();
        asked = now;
        before.put_busiest_first(&mut status.flows);
        show(&status.table(Some(&before))).map_err(Failure::other)?;
        status.flows.sort_by_key(|flow| flow.number);
        before.status = status;
    }
}

/// Replaces the content of the terminal; without a terminal, prints lines.
fn show(table: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let Some((columns, rows)) = terminal::size().ok().filter(|_| out.is_terminal()) else {
        return writeln!(out, "{table}");
    };
    queue!(out, MoveTo(0, 0), Clear(ClearType::All))?;
    write!(out, "{}", cut(table, columns, rows))?;
    out.flush()
}

/// The part of a table that fits into the window. The last row keeps the cursor.
fn cut(table: &str, columns: u16, rows: u16) -> String {
    let lines = table.lines().take(usize::from(rows).saturating_sub(1));
    lines
        .flat_map(|line| line.chars().take(columns.into()).chain(['\n']))
        .collect()
}

#[cfg(unix)]
mod socket {
    use std::ffi::OsString;
    use std::fs;
    use std::io::{ErrorKind, Read};
    use std::os::unix::fs::FileTypeExt;
    use std::os::unix::net::UnixStream;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixListener;

    use super::{Role, Status, StatusSocket};
    use crate::process::failure::{Cause, Failure};
    use crate::process::umask::with_private_files;
    use crate::text::json;

    /// Longest wait for an answer.
    const PATIENCE: Duration = Duration::from_secs(5);
    /// The directories of sockets of the units in `packaging/systemd`.
    const SERVICES: [&str; 2] = ["/run/mpquic", "/run/mpquic-tun"];
    /// Most bytes to read of an answer.
    const MOST: u64 = 256 << 20;

    fn name(role: Role) -> &'static str {
        match role {
            Role::Client => "proxy-client.sock",
            Role::Server => "proxy-server.sock",
        }
    }

    /// The default directory of sockets.
    fn directory() -> Option<PathBuf> {
        directory_of(|name| std::env::var_os(name))
    }

    fn directory_of(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
        let names = ["RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"].into_iter();
        let mut set = names.filter_map(|name| variable(name).filter(|value| !value.is_empty()));
        set.next().map(PathBuf::from)
    }

    impl StatusSocket {
        /// Answers until dropped. A failure to open the default socket is no error.
        pub(crate) fn answer(
            &self,
            role: Role,
            status: impl Fn() -> Status + Send + 'static,
        ) -> Result<Option<Answering>, Failure> {
            let default = || directory().map(|directory| directory.join(name(role)));
            let Some(path) = self.status_socket.clone().or_else(default) else {
                return Ok(None);
            };
            match bind(&path) {
                Ok(listener) => {
                    let task = tokio::spawn(serve(listener, status));
                    Ok(Some(Answering { path, task }))
                }
                Err(failure) if self.status_socket.is_none() => {
                    tracing::warn!("no `mpquic proxy status`: {}", failure.message());
                    Ok(None)
                }
                Err(failure) => Err(failure),
            }
        }
    }

    /// A socket that answers. Dropping this removes the socket.
    pub(crate) struct Answering {
        path: PathBuf,
        task: tokio::task::JoinHandle<()>,
    }

    impl Drop for Answering {
        fn drop(&mut self) {
            self.task.abort();
            let _ = fs::remove_file(&self.path);
        }
    }

    fn bind(path: &Path) -> Result<UnixListener, Failure> {
        let about = |error: std::io::Error| {
            Cause::File.failed(format_args!("--status-socket {}: {error}", path.display()))
        };
        // A killed process leaves its socket. The check of the type is necessary, because other
        // files refuse connections, too.
        let refused = |error: std::io::Error| error.kind() == ErrorKind::ConnectionRefused;
        let is_socket = |there: fs::Metadata| there.file_type().is_socket();
        if fs::symlink_metadata(path).is_ok_and(is_socket)
            && UnixStream::connect(path).err().is_some_and(refused)
        {
            fs::remove_file(path).map_err(about)?;
        }
        // Not by the path afterwards: another file could be there by then.
        with_private_files(|| UnixListener::bind(path)).map_err(about)
    }

    async fn serve(listener: UnixListener, status: impl Fn() -> Status) {
        loop {
            let Ok((mut stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let told = json::line(&status());
            // One client after another: a slow reader delays other clients for a limited time.
            let _ = tokio::time::timeout(PATIENCE, stream.write_all(told.as_bytes())).await;
        }
    }

    /// The sockets to ask if none is named, the first one first.
    fn defaults(directory: Option<PathBuf>) -> Vec<PathBuf> {
        let places = directory.into_iter().chain(SERVICES.map(PathBuf::from));
        let of = |place: PathBuf| [Role::Client, Role::Server].map(|role| place.join(name(role)));
        places.flat_map(of).collect()
    }

    /// Asks the named socket, or the first default socket with an answer.
    pub(super) fn ask(named: Option<&Path>) -> Result<Status, Failure> {
        let candidates = match named {
            Some(path) => vec![path.to_owned()],
            None => defaults(directory()),
        };
        let mut failed = Vec::new();
        for path in &candidates {
            match read(path) {
                Ok(told) => return serde_json::from_slice(&told).map_err(Failure::other),
                Err(error) => failed.push(format!("{}: {error}", path.display())),
            }
        }
        Err(Cause::Connect.failed(format_args!(
            "no proxy answers at {}; name the socket of its --status-socket",
            failed.join(", ")
        )))
    }

    fn read(path: &Path) -> std::io::Result<Vec<u8>> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(2 * PATIENCE))?;
        let mut told = Vec::new();
        stream.take(MOST).read_to_end(&mut told)?;
        Ok(told)
    }

    #[cfg(test)]
    mod tests {
        use std::os::unix::fs::PermissionsExt;

        use super::*;
        use crate::testing::soon;

        fn named(path: &Path) -> StatusSocket {
            StatusSocket {
                status_socket: Some(path.to_owned()),
            }
        }

        fn nothing_open() -> Status {
            Status::new(Role::Server, &[], &[])
        }

        /// The socket's answer.
        async fn asked(path: &Path) -> Result<String, Failure> {
            let path = path.to_owned();
            let asking = tokio::task::spawn_blocking(move || ask(Some(&path)));
            soon(asking).await.unwrap().map(|status| status.table(None))
        }

        #[tokio::test]
        async fn a_socket_answers_its_user_until_it_is_dropped() {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("socket");
            let answering = named(&path).answer(Role::Server, nothing_open).unwrap();
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{mode:o}");
            for _ in 0..2 {
                let told = asked(&path).await.unwrap();
                assert!(
                    told.starts_with("server: 0 connections, 0 flows\n"),
                    "{told}"
                );
            }
            // A second server cannot bind the path, and does not disturb the first server.
            let failure = named(&path)
                .answer(Role::Server, nothing_open)
                .err()
                .unwrap();
            let start = format!("--status-socket {}: ", path.display());
            assert!(failure.message().starts_with(&start), "{failure:?}");
            assert_eq!(failure.cause(), Some(Cause::File));
            assert!(asked(&path).await.is_ok());
            drop(answering);
            assert!(!path.exists());
            let failure = asked(&path).await.unwrap_err();
            assert_eq!(failure.cause(), Some(Cause::Connect));
            let start = format!("no proxy answers at {}: ", path.display());
            let told = failure.message();
            assert!(told.starts_with(&start), "{told}");
            assert!(
                told.ends_with("; name the socket of its --status-socket"),
                "{told}"
            );
        }

        /// Whoever may write to the directory could put a link to another file in the place of the socket, before the
        /// mode of the path changes.
        #[cfg(target_os = "linux")]
        #[tokio::test]
        async fn a_socket_is_private_from_the_start() {
            use rustix::fs::inotify;
            let directory = tempfile::tempdir().unwrap();
            let events = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
            let kinds = inotify::WatchFlags::CREATE | inotify::WatchFlags::ATTRIB;
            inotify::add_watch(&events, directory.path(), kinds).unwrap();
            let path = directory.path().join("socket");
            let _listener = bind(&path).unwrap();
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0);
            let mut buffer = [std::mem::MaybeUninit::uninit(); 1024];
            let mut reader = inotify::Reader::new(&events, &mut buffer);
            let first = reader.next().unwrap().events();
            assert_eq!(first, inotify::ReadFlags::CREATE);
            let second = reader.next().map(|event| event.events());
            assert_eq!(second.err(), Some(rustix::io::Errno::AGAIN), "no change");
        }

        #[tokio::test]
        async fn socket_of_a_killed_process_is_replaced_but_no_file() {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("socket");
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            assert!(path.exists());
            let answering = named(&path).answer(Role::Client, nothing_open).unwrap();
            assert!(asked(&path).await.is_ok());
            drop(answering);
            fs::write(&path, "precious").unwrap();
            assert!(bind(&directory.path().join("missing/socket")).is_err());
            // A file without a listener stays, because it is not a socket.
            let refused = named(&path).answer(Role::Client, nothing_open);
            assert_eq!(refused.err().unwrap().cause(), Some(Cause::File));
            assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        }

        #[test]
        fn sockets_are_where_the_system_wants_them() {
            let of = |runtime: &str, user: &str| {
                let place = directory_of(|name| match name {
                    "RUNTIME_DIRECTORY" => Some(runtime.into()),
                    "XDG_RUNTIME_DIR" => Some(user.into()),
                    _ => None,
                });
                place.map(|path| path.to_str().unwrap().to_owned())
            };
            assert_eq!(of("/run/a", "/run/b").as_deref(), Some("/run/a"));
            assert_eq!(of("", "/run/b").as_deref(), Some("/run/b"));
            assert_eq!(of("", ""), None);
            assert_eq!(directory_of(|_| None), None);
            let asked = defaults(Some("/run/user/1".into()));
            let asked: Vec<_> = asked.iter().map(|path| path.to_str().unwrap()).collect();
            let expected = [
                "/run/user/1/proxy-client.sock",
                "/run/user/1/proxy-server.sock",
                "/run/mpquic/proxy-client.sock",
                "/run/mpquic/proxy-server.sock",
                "/run/mpquic-tun/proxy-client.sock",
                "/run/mpquic-tun/proxy-server.sock",
            ];
            assert_eq!(asked, expected);
            assert_eq!(name(Role::Client), "proxy-client.sock");
            assert_eq!(name(Role::Server), "proxy-server.sock");
        }
    }
}

#[cfg(not(unix))]
mod socket {
    use std::path::Path;

    use super::{Role, Status, StatusSocket};
    use crate::process::failure::Failure;

    impl StatusSocket {
        /// A socket on a system without Unix sockets is an error.
        pub(crate) fn answer(
            &self,
            _: Role,
            _: impl Fn() -> Status + Send + 'static,
        ) -> Result<Option<()>, Failure> {
            match self.status_socket {
                None => Ok(None),
                Some(_) => Err(Failure::usage(
                    "--status-socket needs a system with Unix sockets",
                )),
            }
        }
    }

    pub(super) fn ask(_: Option<&Path>) -> Result<Status, Failure> {
        Err(Failure::usage("this needs a system with Unix sockets"))
    }
}

#[cfg(test)]
mod tests;
