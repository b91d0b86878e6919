//! The Unix socket of a proxy or client: answers `mpquic proxy status`, and takes the commands of
//! `mpquic proxy ctl`.

use std::ffi::OsString;
use std::fs;
use std::io::{ErrorKind, Read, Write as _};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

use crate::process::failure::{Cause, Failure};
use crate::process::umask::with_private_files;
use crate::proxy::change::Reply;
use crate::proxy::status::{Role, Status, StatusSocket};
use crate::text::json;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The directories of sockets of the units in `packaging/systemd`.
const SERVICES: [&str; 2] = ["/run/mpquic", "/run/mpquic-tun"];
/// A peer that says nothing for this time wants the status.
const SILENCE: Duration = Duration::from_millis(200);
/// The longest wait for the next part of a command.
const SLOW: Duration = Duration::from_secs(1);
/// Most bytes of a command.
const LONGEST: usize = 4096;
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
        status: impl Fn() -> Status + Send + Sync + 'static,
        command: impl Fn(&str) -> Reply + Send + Sync + 'static,
    ) -> Result<Option<Answering>, Failure> {
        let default = || directory().map(|directory| directory.join(name(role)));
        let Some(path) = self.status_socket.clone().or_else(default) else {
            return Ok(None);
        };
        match bind(&path) {
            Ok(listener) => {
                let task = tokio::spawn(serve(listener, status, command));
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
        && net::UnixStream::connect(path).err().is_some_and(refused)
    {
        fs::remove_file(path).map_err(about)?;
    }
    // Not by the path afterwards: another file could be there by then.
    with_private_files(|| UnixListener::bind(path)).map_err(about)
}

async fn serve(
    listener: UnixListener,
    status: impl Fn() -> Status,
    command: impl Fn(&str) -> Reply,
) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        // One client after another: a slow client delays others for a limited time.
        let answer = async {
            let told = match request(&mut stream).await {
                Request::Status => json::line(&status()),
                Request::Command(_) if !may_command(&stream) => json::line(&Reply::Error(
                    "only the user of this process and root may change it".to_owned(),
                )),
                Request::Command(line) => json::line(&command(&line)),
                Request::Wrong(told) => json::line(&Reply::Error(told.to_owned())),
            };
            stream.write_all(told.as_bytes()).await
        };
        let _ = tokio::time::timeout(PATIENCE, answer).await;
    }
}

/// True for a peer that runs as the user of this process, or as root. The mode of the socket says
/// the same, but a process may hand its connection to another one.
fn may_command(stream: &UnixStream) -> bool {
    let ours = rustix::process::geteuid().as_raw();
    let peer = stream.peer_cred().map(|peer| peer.uid());
    peer.is_ok_and(|uid| uid == ours || uid == 0)
}

/// What a peer wants.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    /// It says nothing.
    Status,
    /// A line for `ctl`.
    Command(String),
    /// Not a line, for this reason.
    Wrong(&'static str),
}

/// Reads a line. Many readers of the status only listen, so silence is a request as well.
async fn request(stream: &mut UnixStream) -> Request {
    let mut line = Vec::new();
    let mut buffer = [0; 512];
    loop {
        let patience = if line.is_empty() { SILENCE } else { SLOW };
        match tokio::time::timeout(patience, stream.read(&mut buffer)).await {
            Ok(Ok(0) | Err(_)) => break,
            Ok(Ok(read)) => line.extend_from_slice(&buffer[..read]),
            Err(_) if line.is_empty() => break,
            Err(_) => return Request::Wrong("the line has no end"),
        }
        if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
            line.truncate(end);
            break;
        }
        if line.len() > LONGEST {
            return Request::Wrong("the line is too long");
        }
    }
    match String::from_utf8(line) {
        Ok(line) if line.trim().is_empty() => Request::Status,
        Ok(line) => Request::Command(line),
        Err(_) => Request::Wrong("the line is no text"),
    }
}

/// The sockets to ask if none is named, the first one first.
fn defaults(directory: Option<PathBuf>) -> Vec<PathBuf> {
    let places = directory.into_iter().chain(SERVICES.map(PathBuf::from));
    let of = |place: PathBuf| [Role::Client, Role::Server].map(|role| place.join(name(role)));
    places.flat_map(of).collect()
}

/// Asks the named socket, or the first default socket with an answer.
pub(crate) fn ask(named: Option<&Path>) -> Result<Status, Failure> {
    let candidates = match named {
        Some(path) => vec![path.to_owned()],
        None => defaults(directory()),
    };
    let told = first(&candidates, "", "proxy")?;
    serde_json::from_slice(&told).map_err(Failure::other)
}

/// Sends a line to the client at the named socket, or at the first default socket of a client with
/// an answer.
pub(crate) fn command(named: Option<&Path>, line: &str) -> Result<Reply, Failure> {
    let is_of_client = |path: &PathBuf| path.ends_with(name(Role::Client));
    let candidates = match named {
        Some(path) => vec![path.to_owned()],
        None => defaults(directory())
            .into_iter()
            .filter(is_of_client)
            .collect(),
    };
    let told = first(&candidates, &format!("{line}\n"), "proxy client")?;
    serde_json::from_slice(&told).map_err(|_| {
        Failure::other(
            "the process at this socket takes no commands: it is of an earlier version of mpquic",
        )
    })
}

/// The first answer of a socket.
fn first(candidates: &[PathBuf], line: &str, who: &str) -> Result<Vec<u8>, Failure> {
    let mut failed = Vec::new();
    for path in candidates {
        match read(path, line) {
            Ok(told) => return Ok(told),
            Err(error) => failed.push(format!("{}: {error}", path.display())),
        }
    }
    Err(Cause::Connect.failed(format_args!(
        "no {who} answers at {}; name the socket of its --status-socket",
        failed.join(", ")
    )))
}

fn read(path: &Path, line: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = net::UnixStream::connect(path)?;
    stream.set_read_timeout(Some(2 * PATIENCE))?;
    // A process of an earlier version may have answered and closed the connection already.
    match stream.write_all(line.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => return Err(error),
        _ => {}
    }
    // No line follows.
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut told = Vec::new();
    match stream.take(MOST).read_to_end(&mut told) {
        // A process that does not read all of a line resets the connection after its answer.
        Err(error) if told.is_empty() => Err(error),
        _ => Ok(told),
    }
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

    fn refuse(line: &str) -> Reply {
        Reply::Error(format!("no {line}"))
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
        let answering = named(&path)
            .answer(Role::Server, nothing_open, refuse)
            .unwrap();
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
            .answer(Role::Server, nothing_open, refuse)
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

    /// What the socket answers to these bytes.
    async fn answered(path: &Path, bytes: &[u8], ends: bool) -> String {
        let mut stream = UnixStream::connect(path).await.unwrap();
        // The socket need not read all of it.
        let _ = stream.write_all(bytes).await;
        if ends {
            let _ = stream.shutdown().await;
        }
        let mut told = String::new();
        soon(stream.read_to_string(&mut told)).await.unwrap();
        told
    }

    #[tokio::test]
    async fn one_line_is_a_command_and_other_bytes_do_no_harm() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let echo = |line: &str| Reply::Done(line.to_owned());
        let answering = named(&path)
            .answer(Role::Client, nothing_open, echo)
            .unwrap();
        let told = |reply| json::line(&reply);
        let done = |line: &str| told(Reply::Done(line.to_owned()));
        assert_eq!(
            answered(&path, b"pause wwan0\n", false).await,
            done("pause wwan0")
        );
        assert_eq!(
            answered(&path, b"pause wwan0", true).await,
            done("pause wwan0")
        );
        assert_eq!(answered(&path, b"one\ntwo\n", false).await, done("one"));
        assert_eq!(answered(&path, b"\0\x1b\n", false).await, done("\0\x1b"));
        let long = vec![b'x'; 1 << 20];
        for (bytes, wrong) in [
            (&b"\xff\xfe\n"[..], "the line is no text"),
            (b"pause", "the line has no end"),
            (&long, "the line is too long"),
        ] {
            let mut stream = UnixStream::connect(&path).await.unwrap();
            let _ = stream.write_all(bytes).await;
            let mut answer = Vec::new();
            // A socket that closes with unread bytes resets the connection, after the answer.
            let _ = soon(stream.read_to_end(&mut answer)).await;
            let wrong = told(Reply::Error(wrong.to_owned()));
            assert_eq!(String::from_utf8(answer).unwrap(), wrong);
        }
        // Programs that only listen get the status, as before.
        for (bytes, ends) in [
            (&b""[..], false),
            (b"", true),
            (b"\n", false),
            (b" \n", true),
        ] {
            let status = answered(&path, bytes, ends).await;
            assert!(status.starts_with(r#"{"role":"server""#), "{status}");
        }
        let asked = path.clone();
        let asking = tokio::task::spawn_blocking(move || command(Some(&asked), "show"));
        let reply = soon(asking).await.unwrap().unwrap();
        assert_eq!(reply, Reply::Done("show".to_owned()));
        drop(answering);
        let failure = command(Some(&path), "show").unwrap_err();
        assert!(failure.message().starts_with("no proxy client answers at "));
        assert_eq!(failure.cause(), Some(Cause::Connect));
    }

    /// A process of an earlier version answers with its status.
    #[tokio::test]
    async fn an_earlier_version_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let asked = path.clone();
        let asking = tokio::task::spawn_blocking(move || command(Some(&asked), "show"));
        let (mut stream, _) = soon(listener.accept()).await.unwrap();
        let status = json::line(&nothing_open());
        stream.write_all(status.as_bytes()).await.unwrap();
        drop(stream);
        let failure = soon(asking).await.unwrap().unwrap_err();
        assert!(failure.message().contains("earlier version"), "{failure:?}");
    }

    /// Whoever may write to the directory could put a link to another file in the place of the
    /// socket, before the mode of the path changes.
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
        let answering = named(&path)
            .answer(Role::Client, nothing_open, refuse)
            .unwrap();
        assert!(asked(&path).await.is_ok());
        drop(answering);
        fs::write(&path, "precious").unwrap();
        assert!(bind(&directory.path().join("missing/socket")).is_err());
        // A file without a listener stays, because it is not a socket.
        let refused = named(&path).answer(Role::Client, nothing_open, refuse);
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
