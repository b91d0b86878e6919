//! What `mpquic get --json` prints: an object on a line for each result, and with `--json=events`
//! for what happens until then.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use http::Uri;
use serde::Serialize;
use tokio::time::MissedTickBehavior;

use crate::client::backup;
use crate::client::session::Sessions;
use crate::get::count::Count;
use crate::process::clock;
use crate::process::failure::Failure;
use crate::process::screen;
use crate::report::Amount;
use crate::report::progress::REFRESH;
use crate::report::{self, PathReport, Report};
use crate::text::json;

/// What is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Json {
    /// An object for each file when it is done
    Result,
    /// Also objects for what happens until then
    Events,
}

/// A line, with the time since the command began.
#[derive(Debug, Serialize)]
struct Line<'a> {
    /// Seconds.
    at: f64,
    #[serde(flatten)]
    event: Event<'a>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    Path(Change),
    Progress {
        files: Vec<FileNow>,
        paths: Vec<PathNow>,
    },
    /// A request failed, and is sent again.
    Retry {
        url: String,
        error: &'a str,
        /// Bytes of the file on disk.
        bytes: u64,
    },
    /// The received bytes of a file are useless.
    Restart {
        url: String,
        why: &'a str,
    },
    Result(&'a Report),
    Failed {
        url: String,
        error: &'a str,
        code: u8,
    },
}

/// A path that is new, or has a new state or new addresses.
#[derive(Debug, PartialEq, Serialize)]
struct Change {
    /// Counts the connections.
    connection: u64,
    id: u32,
    local: String,
    remote: String,
    state: String,
}

/// A file that is being fetched.
#[derive(Debug, PartialEq, Serialize)]
struct FileNow {
    url: String,
    /// Those that are there.
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    length: Option<u64>,
    bits_per_second: f64,
}

#[derive(Debug, PartialEq, Serialize)]
struct PathNow {
    connection: u64,
    id: u32,
    local: String,
    remote: String,
    state: String,
    /// Bytes of datagrams, since the connection began.
    bytes_received: u64,
    bits_per_second: f64,
    rtt_ms: f64,
}

/// Prints all of it.
#[derive(Debug)]
pub(crate) struct JsonOutput {
    what: Json,
    to_stderr: bool,
    /// How often is told how it goes; zero for never.
    interval: Duration,
    began: Instant,
    seen: Mutex<Seen>,
}

/// What was told last.
#[derive(Debug)]
struct Seen {
    connection: u64,
    paths: BTreeMap<u32, Path>,
    files: Vec<File>,
    /// When progress was told.
    told: Instant,
}

#[derive(Debug)]
struct Path {
    now: PathReport,
    /// Bytes received when progress was told.
    told: u64,
}

#[derive(Debug)]
struct File {
    url: String,
    count: Weak<Count>,
    /// Bytes at the last progress line.
    told: u64,
}

impl JsonOutput {
    pub(crate) fn new(what: Json, interval: Duration, to_stderr: bool) -> Self {
        let began = clock::now();
        Self {
            what,
            to_stderr,
            interval,
            began,
            seen: Mutex::new(Seen::new(began)),
        }
    }

    /// Tells how it goes from now on. Does not end.
    pub(crate) async fn watch(&self, sessions: &Sessions<'_>) -> Infallible {
        let mut ticks = tokio::time::interval(REFRESH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            if self.what == Json::Result {
                std::future::pending::<()>().await;
            }
            ticks.tick().await;
            self.look(sessions);
            let now = clock::now();
            if self.seen().is_due(now, self.interval) {
                let (files, paths) = self.seen().progress(now);
                // Between files, and after the last one, nothing progresses.
                if !files.is_empty() {
                    self.tell(Event::Progress { files, paths });
                }
            }
        }
    }

    /// Tells what has become of the paths.
    fn look(&self, sessions: &Sessions<'_>) {
        let Ok(current) = sessions.current() else {
            return;
        };
        let open = current.filter(|(_, connection)| connection.close_reason().is_none());
        let changes = match open {
            Some((number, connection)) => {
                let mut paths = report::paths(&[], &connection.path_stats());
                backup::mark(&mut paths, &connection);
                self.seen().update(number, paths)
            }
            None => self.seen().lose_paths(),
        };
        for change in changes {
            self.tell(Event::Path(change));
        }
    }

    /// Adds a file that is being fetched, of which `have` bytes exist.
    pub(crate) fn add(&self, url: &Uri, count: &Arc<Count>, have: u64) {
        if self.what == Json::Events {
            self.seen().files.push(File {
                url: url.to_string(),
                count: Arc::downgrade(count),
                told: have,
            });
        }
    }

    pub(crate) fn retry(&self, url: &Uri, failure: &Failure, bytes: u64) {
        self.tell(Event::Retry {
            url: url.to_string(),
            error: failure.message(),
            bytes,
        });
    }

    pub(crate) fn restart(&self, url: &Uri, why: &str) {
        let url = url.to_string();
        self.tell(Event::Restart { url, why });
    }

    /// A file is here.
    pub(crate) fn result(&self, report: &Report, sessions: &Sessions<'_>) {
        if self.what == Json::Result {
            return self.print(report);
        }
        self.look(sessions);
        self.tell(Event::Result(report));
    }

    pub(crate) fn failed(&self, url: &Uri, failure: &Failure, sessions: &Sessions<'_>) {
        if self.what == Json::Events {
            self.look(sessions);
        }
        self.tell(Event::Failed {
            url: url.to_string(),
            error: failure.message(),
            code: failure.code(),
        });
    }

    fn tell(&self, event: Event<'_>) {
        if self.what == Json::Events {
            let at = (clock::now() - self.began).as_secs_f64();
            self.print(&Line { at, event });
        }
    }

    fn print(&self, line: &impl Serialize) {
        let json = json::line(line);
        if self.to_stderr {
            screen::say(json)
        } else {
            screen::print(json)
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn new(now: Instant) -> Self {
        Self {
            connection: 0,
            paths: BTreeMap::new(),
            files: Vec::new(),
            told: now,
        }
    }

    /// True if a line is due, or will be before the next check.
    fn is_due(&self, now: Instant, interval: Duration) -> bool {
        !interval.is_zero() && now + REFRESH / 2 >= self.told + interval
    }

    /// The connection is gone. Returns the changes.
    fn lose_paths(&mut self) -> Vec<Change> {
        self.update(self.connection, Vec::new())
    }

    /// Takes in the current paths, and returns the changes.
    fn update(&mut self, connection: u64, now: Vec<PathReport>) -> Vec<Change> {
        let mut changes = Vec::new();
        let is_other = connection != self.connection;
        let before = self.connection;
        self.paths.retain(|id, path| {
            let is_there = !is_other && now.iter().any(|now| now.id == *id);
            if !is_there {
                changes.push(Change::new(before, &path.now, "closed"));
            }
            is_there
        });
        self.connection = connection;
        for now in now {
            let known = self.paths.get_mut(&now.id);
            let key =
                |path: &PathReport| (path.state.clone(), path.local.clone(), path.remote.clone());
            if known
                .as_ref()
                .is_none_or(|path| key(&path.now) != key(&now))
            {
                changes.push(Change::new(connection, &now, &now.state));
            }
            match known {
                Some(known) => known.now = now,
                None => drop(self.paths.insert(now.id, Path { now, told: 0 })),
            }
        }
        changes
    }

    /// How files and paths are, with their rates since the last time.
    fn progress(&mut self, now: Instant) -> (Vec<FileNow>, Vec<PathNow>) {
        let seconds = (now - self.told).as_secs_f64();
        self.told = now;
        let rate = |bytes: u64, told: &mut u64| {
            let new = bytes.saturating_sub(*told);
            *told = bytes;
            Amount::new(new, seconds).bits_per_second
        };
        let mut files = Vec::new();
        self.files.retain_mut(|file| {
            let Some(count) = file.count.upgrade() else {
                return false;
            };
            let bytes = count.received();
            files.push(FileNow {
                url: file.url.clone(),
                bytes,
                length: count.length(),
                bits_per_second: rate(bytes, &mut file.told),
            });
            true
        });
        let paths = self.paths.values_mut().map(|path| PathNow {
            connection: self.connection,
            id: path.now.id,
            local: path.now.local.clone(),
            remote: path.now.remote.clone(),
            state: path.now.state.to_string(),
            bytes_received: path.now.bytes_received,
            bits_per_second: rate(path.now.bytes_received, &mut path.told),
            rtt_ms: path.now.rtt_ms,
        });
        (files, paths.collect())
    }
}

impl Change {
    fn new(connection: u64, path: &PathReport, state: &str) -> Self {
        Self {
            connection,
            id: path.id,
            local: path.local.clone(),
            remote: path.remote.clone(),
            state: state.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::session::Purpose;
    use crate::options::Alpn;
    use crate::process::failure::Cause;
    use crate::process::screen::tests::Heard;
    use crate::serve::limits::Limits;
    use crate::testing::{Anything, Served, reach, soon};

    fn path(id: u32, state: &'static str, bytes_received: u64) -> PathReport {
        PathReport {
            id,
            local: format!("127.0.0.{id}:1"),
            remote: "127.0.0.1:2".into(),
            bytes_received,
            bytes_sent: 0,
            rtt_ms: 1.5,
            lost: 0,
            cwnd: 0,
            state: state.into(),
            resumed: false,
            resume_failed: false,
        }
    }

    #[test]
    fn paths_are_told_when_they_change() {
        let mut seen = Seen::new(clock::now());
        let mut update = |connection, paths: &[(u32, &'static str)]| {
            let paths = paths.iter().map(|(id, state)| path(*id, state, 0));
            let changes = seen.update(connection, paths.collect());
            let told = changes.into_iter();
            told.map(|it| format!("{}.{} {}", it.connection, it.id, it.state))
                .collect::<Vec<_>>()
        };
        assert_eq!(update(1, &[(0, "active")]), ["1.0 active"]);
        assert!(update(1, &[(0, "active")]).is_empty());
        let two = [(0, "suspect"), (1, "validating")];
        assert_eq!(update(1, &two), ["1.0 suspect", "1.1 validating"]);
        assert_eq!(update(1, &[(1, "active")]), ["1.0 closed", "1.1 active"]);
        // A new connection counts its paths anew.
        assert_eq!(update(2, &[(1, "active")]), ["1.1 closed", "2.1 active"]);
        assert_eq!(update(2, &[]), ["2.1 closed"]);
    }

    #[test]
    fn rates_are_of_the_time_since_the_last_ones() {
        let start = clock::now();
        let mut seen = Seen::new(start);
        seen.update(1, vec![path(0, "active", 1000)]);
        let mut rate = |seconds, bytes| {
            seen.update(1, vec![path(0, "active", bytes)]);
            let (_, paths) = seen.progress(start + Duration::from_secs(seconds));
            paths[0].bits_per_second
        };
        assert_eq!(rate(1, 1000), 8000.0);
        assert_eq!(rate(3, 2000), 4000.0);
        assert_eq!(rate(4, 2000), 0.0);
    }

    #[test]
    fn files_are_told_with_their_rates_until_they_are_over() {
        let start = clock::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let output = JsonOutput::new(Json::Events, Duration::from_secs(1), true);
        let counts: [Arc<Count>; 2] = Default::default();
        let url = Uri::from_static("https://host/file");
        output.add(&url, &counts[0], 5000);
        output.add(&url, &counts[1], 0);
        counts[0].set_length(Some(20_000));
        output.seen().told = start;
        let progress = |seconds, bytes: [u64; 2]| {
            for (count, bytes) in counts.iter().zip(bytes) {
                count
                    .received
                    .store(bytes, std::sync::atomic::Ordering::Relaxed);
            }
            output.seen().progress(at(seconds)).0
        };
        let file = |bytes, length, bits_per_second| FileNow {
            url: url.to_string(),
            bytes,
            length,
            bits_per_second,
        };
        let length = Some(20_000);
        let expected = [file(7000, length, 8000.0), file(0, None, 0.0)];
        assert_eq!(progress(2, [7000, 0]), expected);
        let expected = [file(7000, length, 0.0), file(1000, None, 2000.0)];
        assert_eq!(progress(6, [7000, 1000]), expected);
        let [over, left] = counts;
        drop(over);
        assert_eq!(output.seen().progress(at(7)).0.len(), 1, "one is over");
        drop(left);
        assert!(output.seen().progress(at(8)).0.is_empty());
        assert!(output.seen().files.is_empty(), "nobody asks for them again");

        // Without events, only results are printed.
        let output = JsonOutput::new(Json::Result, Duration::from_secs(1), true);
        output.add(&url, &Arc::default(), 0);
        assert!(output.seen().files.is_empty());
    }

    #[test]
    fn progress_is_told_at_the_look_that_is_nearest() {
        let start = clock::now();
        let seen = Seen::new(start);
        let second = Duration::from_secs(1);
        let nanosecond = Duration::from_nanos(1);
        for (after, is_due) in [
            (Duration::ZERO, false),
            (second - REFRESH / 2 - nanosecond, false),
            (second - REFRESH / 2, true),
            (second, true),
            (5 * second, true),
        ] {
            assert_eq!(seen.is_due(start + after, second), is_due, "{after:?}");
            assert!(!seen.is_due(start + after, Duration::ZERO), "never");
        }
    }

    #[test]
    fn events_have_the_agreed_fields() {
        let url = || "https://a/b".to_owned();
        let mut seen = Seen::new(clock::now());
        let mut changes = seen.update(3, vec![path(1, "active", 5000)]);
        let change = changes.remove(0);
        let (_, paths) = seen.progress(seen.told + Duration::from_secs(2));
        let files = vec![FileNow {
            url: url(),
            bytes: 10,
            length: None,
            bits_per_second: 1.5,
        }];
        let address = r#""local":"127.0.0.1:1","remote":"127.0.0.1:2","state":"active""#;
        for (event, expected) in [
            (
                Event::Path(change),
                format!(r#""path","connection":3,"id":1,{address}"#),
            ),
            (
                Event::Progress { files, paths },
                format!(
                    r#""progress","files":[{{"url":"https://a/b","bytes":10,"bits_per_second":1.5}}],"paths":[{{"connection":3,"id":1,{address},"bytes_received":5000,"bits_per_second":20000.0,"rtt_ms":1.5}}]"#
                ),
            ),
            (
                Event::Retry {
                    url: url(),
                    error: "lost",
                    bytes: 7,
                },
                r#""retry","url":"https://a/b","error":"lost","bytes":7"#.to_owned(),
            ),
            (
                Event::Restart {
                    url: url(),
                    why: "changed",
                },
                r#""restart","url":"https://a/b","why":"changed""#.to_owned(),
            ),
            (
                Event::Failed {
                    url: url(),
                    error: "gone",
                    code: 4,
                },
                r#""failed","url":"https://a/b","error":"gone","code":4"#.to_owned(),
            ),
        ] {
            let line = serde_json::to_string(&Line { at: 0.5, event }).unwrap();
            assert_eq!(line, format!(r#"{{"at":0.5,"event":{expected}}}"#));
        }
    }

    #[test]
    fn paths_end_with_their_connection() {
        let mut seen = Seen::new(clock::now());
        seen.update(2, vec![path(0, "active", 0), path(1, "suspect", 0)]);
        let closed = seen.lose_paths().into_iter();
        let closed: Vec<_> = closed.map(|it| (it.connection, it.id, it.state)).collect();
        let state = || "closed".to_owned();
        assert_eq!(closed, [(2, 0, state()), (2, 1, state())]);
        assert!(seen.lose_paths().is_empty());
    }

    /// The state of paths comes before the failure, for events alone.
    #[tokio::test]
    async fn a_failure_comes_after_what_has_become_of_the_paths() {
        let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
        let (url, reach) = (served.url("/"), served.reach(&[]));
        let look = Purpose::look(&url, &[Alpn::H3]);
        let sessions = Sessions::new(&reach, look).unwrap().that_forget();
        let connected = soon(sessions.connection(&url)).await.unwrap();
        let failure = Cause::Broken.failed("lost");
        let heard = Heard::begin();
        let output = |what, to_stderr| JsonOutput::new(what, Duration::ZERO, to_stderr);
        let events = |output: &JsonOutput| {
            output.failed(&url, &failure, &sessions);
            let said = heard.take();
            assert_eq!(said[usize::from(!output.to_stderr)], "");
            let said = said.concat();
            let lines = said.lines().map(|line| {
                let line: serde_json::Value = serde_json::from_str(line).unwrap();
                format!("{} {}", line["event"], line["state"])
            });
            lines.collect::<Vec<_>>()
        };
        assert!(events(&output(Json::Result, false)).is_empty());
        let failed = "\"failed\" null";
        for to_stderr in [false, true] {
            let output = output(Json::Events, to_stderr);
            assert_eq!(events(&output), ["\"path\" \"active\"", failed]);
            assert_eq!(events(&output), [failed], "nothing has changed");
            if to_stderr {
                connected.connection.close(0u32.into(), b"");
                assert_eq!(events(&output), ["\"path\" \"closed\"", failed]);
            }
        }
    }

    /// At the requested interval, if there is progress.
    #[tokio::test(start_paused = true)]
    async fn progress_is_told_at_looks() {
        let url = Uri::from_static("https://host/file");
        let reach = reach(&["--insecure"]);
        let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
        let heard = Heard::begin();
        let nanosecond = Duration::from_nanos(1);
        for (what, interval, has_file, count) in [
            (Json::Events, nanosecond, true, 11),
            (Json::Events, nanosecond, false, 0),
            (Json::Events, Duration::ZERO, true, 0),
            (Json::Events, Duration::from_secs(1000), true, 0),
            (Json::Result, nanosecond, true, 0),
        ] {
            let output = JsonOutput::new(what, interval, false);
            let file = Arc::default();
            if has_file {
                output.add(&url, &file, 0);
            }
            let second = Duration::from_millis(1050);
            let watched = tokio::time::timeout(second, output.watch(&sessions));
            assert!(watched.await.is_err());
            let [told, _] = heard.take();
            let progress = told.matches("\"event\":\"progress\"");
            assert_eq!(progress.count(), count, "{what:?} {interval:?}");
        }
    }
}
