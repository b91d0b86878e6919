//! Clients that vanish: nothing tells the server. Answers that vanish: nothing tells the client.

use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{self, sleep};
use std::time::Duration;

use tokio::time::Instant;

use crate::operating::forward;
use crate::{Server, assert_exit, data, directories, mpquic, reports, run, stderr, wait_until};

/// Uploads of a killed client wait at the server behind two others. The user stores newer files
/// with another client. The server must not carry out the older uploads once their turn comes.
#[test]
fn waiting_uploads_of_a_killed_client_replace_nothing() {
    let (served, source) = directories(b"");
    let top = source.path().join("top");
    fs::create_dir(&top).unwrap();
    let drafts: Vec<_> = (0..6).map(|number| format!("draft{number}")).collect();
    for name in ["a", "b"] {
        fs::write(top.join(name), data(400_000)).unwrap();
    }
    let write = |text: &str| {
        for name in &drafts {
            fs::write(top.join(name), text).unwrap();
        }
    };
    write("older");
    let log = source.path().join("log");
    let limits = ["--max-requests", "2", "--stall-timeout", "2"];
    let log_option = ["--access-log", log.to_str().unwrap()];
    let server = Server::start(
        served.path(),
        &[&["--allow-put"], &limits[..], &log_option].concat(),
    );
    let url = server.url("/");
    let put = [
        "put",
        "-r",
        "--insecure",
        "--quiet",
        &url,
        top.to_str().unwrap(),
    ];
    let mut killed = mpquic(&[&put[..], &["--rate", "1M"]].concat())
        .spawn()
        .unwrap();
    let there = served.path().join("top");
    // A draft may overtake one of the long files, and be stored.
    let unfinished = || {
        let files = fs::read_dir(&there).into_iter().flatten().flatten();
        let names = files.map(|file| file.file_name());
        names.filter(|name| name.to_string_lossy().starts_with(".mpquic-put"))
    };
    wait_until("two uploads", || unfinished().count() == 2);
    // The other requests are on their way now.
    sleep(Duration::from_millis(500));
    killed.kill().unwrap();
    killed.wait().unwrap();
    write("newer file");
    let again = run(&put);
    assert_exit(&again, 0);
    // Two uploads of the killed client hold their places until the stall timeout.
    let given_up = || {
        let log = fs::read_to_string(&log).unwrap_or_default();
        let ends = ["PUT /top/a HTTP/3\" - 0", "PUT /top/b HTTP/3\" - 0"];
        ends.into_iter().all(|end| log.contains(end))
    };
    wait_until("the end of the uploads", given_up);
    sleep(Duration::from_secs(1));
    for name in &drafts {
        assert_eq!(fs::read(there.join(name)).unwrap(), b"newer file", "{name}");
    }
}

/// Time that a server's datagrams take through a [`Relay`].
const DELAY: Duration = Duration::from_millis(200);

/// Time without an answer after which the client gives a connection up.
const STALL: Duration = Duration::from_secs(1);

/// Carries the datagrams of one client. The server's datagrams come late, and can be lost.
struct Relay {
    address: SocketAddr,
    loses: Arc<AtomicBool>,
}

impl Relay {
    fn start(server: SocketAddr) -> Self {
        let bind = || Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap());
        let (front, back) = (bind(), bind());
        let (address, loses) = (
            front.local_addr().unwrap(),
            Arc::new(AtomicBool::new(false)),
        );
        let client = Arc::new(Mutex::new(None));
        let (late, due) = mpsc::channel::<(Instant, Vec<u8>)>();
        let (from, to, known) = (front.clone(), back.clone(), client.clone());
        thread::spawn(move || {
            forward(&from, |datagram, source| {
                *known.lock().unwrap() = Some(source);
                to.send_to(datagram, server)
            });
        });
        thread::spawn(move || {
            forward(&back, |datagram, _| {
                let _ended = late.send((Instant::now() + DELAY, datagram.to_vec()));
                Ok(datagram.len())
            });
        });
        let is_lost = loses.clone();
        thread::spawn(move || {
            for (at, datagram) in due {
                sleep(at.saturating_duration_since(Instant::now()));
                if let Some(client) = *client.lock().unwrap()
                    && !is_lost.load(Relaxed)
                {
                    let _may_be_lost = front.send_to(&datagram, client);
                }
            }
        });
        Self { address, loses }
    }
}

#[derive(PartialEq, Eq)]
enum At {
    /// The upload is stored, and its answer is lost.
    Lost,
    /// The client has ended.
    End,
}

/// Sends a file whose answer is lost, and lets the upload be repeated. Gives the output of the
/// client and the file at the server. `look` gets the server and its directory.
fn put_without_answer(
    content: &[u8],
    mut look: impl FnMut(At, &mut Server, &Path),
) -> (Output, Vec<u8>) {
    let (served, source) = directories(b"");
    let (file, there) = (source.path().join("older"), served.path().join("there"));
    fs::write(&file, content).unwrap();
    let mut server = Server::start(served.path(), &["--allow-put"]);
    let relay = Relay::start(server.address);
    let url = format!("https://{}/there", relay.address);
    let stall = STALL.as_secs().to_string();
    let put = ["put", "--insecure", "--json", "--stall-timeout", &stall];
    let child = mpquic(&[&put[..], &[&url, file.to_str().unwrap()]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("the file", || there.exists());
    relay.loses.store(true, Relaxed);
    look(At::Lost, &mut server, served.path());
    // The client gives its connection up.
    sleep(STALL + Duration::from_secs(1));
    relay.loses.store(false, Relaxed);
    let output = child.wait_with_output().unwrap();
    look(At::End, &mut server, served.path());
    (output, fs::read(&there).unwrap())
}

/// Stores a newer version of the file over another connection.
fn put_newer(server: &Server) {
    let source = tempfile::tempdir().unwrap();
    let newer = source.path().join("newer");
    fs::write(&newer, "newer").unwrap();
    let url = server.url("/there");
    let put = ["put", "--insecure", "-q", &url, newer.to_str().unwrap()];
    assert_exit(&run(&put), 0);
}

/// The first upload is stored, and its client does not know. A repeated upload must not replace the
/// newer file, also if the server has begun anew.
#[test]
fn an_upload_whose_answer_was_lost_replaces_no_newer_file() {
    for (length, restarts) in [
        (3_000, false),
        (2 << 20, false),
        (3_000, true),
        (2 << 20, true),
    ] {
        let (output, there) = put_without_answer(&data(length), |at, server, served| {
            if at == At::End {
                return;
            }
            put_newer(server);
            if restarts {
                server.child.kill().unwrap();
                server.child.wait().unwrap();
                let address = server.address.to_string();
                *server = Server::start_on(&address, served, &["--allow-put"]);
            }
        });
        assert_eq!(there, b"newer", "{length} {restarts}: {output:?}");
        let told = stderr(&output);
        assert!(told.contains("another version was stored since"), "{told}");
        assert!(
            told.contains("the same command sends the file anew"),
            "{told}"
        );
        assert_exit(&output, 7);
    }
}

/// The server answers a repeated upload of the file that it has, and does not store it once more.
#[test]
fn an_upload_whose_answer_was_lost_is_stored_once() {
    for length in [0, 3_000, 8 << 20] {
        let content = data(length);
        let created = |directory: &Path| fs::metadata(directory.join("there")).unwrap().created();
        let mut first = None;
        let mut last = None;
        let (output, there) = put_without_answer(&content, |state, _, served| {
            let kept = if state == At::Lost {
                &mut first
            } else {
                &mut last
            };
            *kept = Some(created(served).unwrap());
        });
        assert_exit(&output, 0);
        assert!(there == content && first == last, "{length}");
        let report = &reports(&output)[0];
        assert!(report["retries"].as_u64() >= Some(1), "{report}");
        assert_eq!(report["bytes"], length, "{report}");
        assert_eq!(report["sha256"], crate::sha256(&content));
    }
}
