//! A directory of a server, with all that is in it.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::SystemTime;

use futures_util::stream::{FuturesUnordered, StreamExt};
use http::header::ACCEPT;
use http::{HeaderValue, Uri};
use tokio::time::MissedTickBehavior;

use crate::clock;
use crate::directory_page::{Kind, Listed, percent_encode};
use crate::download::Treatment;
use crate::failure::{Cause, Failure};
use crate::fetch::{Fetch, Plan};
use crate::progress::{Progress, REFRESH};
use crate::report::{Report, of_files};
use crate::screen;
use crate::session::Sessions;
use crate::sink::{Destination, Memory};

/// Longest list of a directory, bytes.
const MAX_LIST: usize = 16 << 20;
/// The most files and directories. A link that leads back may make them without end.
const MAX_ENTRIES: usize = 1_000_000;

/// How directories are fetched.
pub(crate) struct Tree<'a> {
    /// For files.
    pub(crate) plan: &'a Plan,
    pub(crate) sessions: &'a Sessions<'a>,
    /// Requests at a time.
    pub(crate) parallel: usize,
    /// Directories in directories, at most.
    pub(crate) max_depth: usize,
    pub(crate) quiet: bool,
    /// The live view tells how it goes.
    pub(crate) is_live: bool,
}

/// What is to be done.
enum Job {
    List { at: Place, depth: usize },
    Fetch { at: Place, entry: Entry },
}

/// A file or directory, there and here.
#[derive(Debug, Clone)]
struct Place {
    url: Uri,
    path: PathBuf,
}

/// What is known of a file before it is asked for.
#[derive(Debug, Clone, Copy)]
struct Entry {
    size: Option<u64>,
    modified: Option<SystemTime>,
}

/// What came of it.
enum Done {
    Listed(Vec<Job>, Vec<Failure>),
    Fetched(Box<Report>),
    /// It is here from the time before.
    Here,
}

impl Tree<'_> {
    /// Fetches what is in a directory, and in those in it. What cannot be had is told, and the rest is
    /// fetched.
    pub(crate) async fn fetch(&self, url: &Uri, path: PathBuf) -> Result<(), Failure> {
        let began = clock::now();
        let lists = self.lists();
        let root = Place {
            url: url.clone(),
            path,
        };
        let mut waiting = vec![Job::List { at: root, depth: 0 }];
        let mut running = FuturesUnordered::new();
        let mut view = Progress::new(
            "files".to_owned(),
            None,
            began,
            self.quiet || self.is_live,
            &[],
        );
        let mut ticks = tokio::time::interval(REFRESH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let (mut seen, mut count, mut here) = (0_usize, 0_usize, 0_usize);
        let mut result = Ok(());
        loop {
            while running.len() < self.parallel
                && let Some(job) = waiting.pop()
            {
                running.push(self.run(job, &lists));
            }
            let (about, done) = tokio::select! {
                done = running.next() => match done {
                    Some(done) => done,
                    None => break,
                },
                _ = ticks.tick() => {
                    self.show(&mut view);
                    continue;
                }
            };
            let failures = match done {
                Ok(Done::Listed(jobs, failures)) => {
                    seen += jobs.len();
                    if seen > MAX_ENTRIES {
                        view.clear();
                        let many = format!("more than {MAX_ENTRIES} files and directories");
                        return Err(Cause::Refused.failed(many).about(url));
                    }
                    waiting.extend(jobs);
                    failures
                }
                Ok(Done::Fetched(report)) => {
                    count += 1;
                    if let Some(json) = &self.plan.treatment.json {
                        json.result(&report, self.sessions);
                    }
                    Vec::new()
                }
                Ok(Done::Here) => {
                    here += 1;
                    Vec::new()
                }
                Err(failure) => vec![failure],
            };
            for failure in failures {
                let cause = failure.cause().unwrap_or(Cause::Other);
                view.clear();
                if let Some(json) = &self.plan.treatment.json {
                    json.failed(&about, &failure, self.sessions);
                }
                failure.about(&about).report();
                result = result.and(Err(Failure::Reported(cause)));
            }
        }
        view.clear();
        if !self.quiet && self.plan.treatment.json.is_none() {
            let seconds = (clock::now() - began).as_secs_f64();
            self.tell(url, count, here, seconds);
        }
        result
    }

    /// What came of all, on one line.
    fn tell(&self, url: &Uri, count: usize, here: usize, seconds: f64) {
        let told = of_files(count, self.plan.treatment.total.load(Relaxed), seconds);
        let before = match here {
            0 => String::new(),
            here => format!(", {here} were here before"),
        };
        screen::say(format_args!("{url}: {told}{before}"));
    }

    /// How lists are asked for.
    fn lists(&self) -> Plan {
        let mut lists = self.plan.clone();
        let json = HeaderValue::from_static("application/json");
        lists.fields.insert(ACCEPT, json);
        lists.treatment = Treatment {
            quiet: true,
            resume: false,
            // Lists are not what was asked for.
            total: Arc::default(),
            json: None,
            ..lists.treatment
        };
        lists
    }

    fn show(&self, view: &mut Progress) {
        if let Some(connection) = self.sessions.open() {
            let bytes = self.plan.treatment.total.load(Relaxed);
            view.update(clock::now(), bytes, &connection.path_stats());
        }
    }

    async fn run(&self, job: Job, lists: &Plan) -> (Uri, Result<Done, Failure>) {
        match job {
            Job::List { at, depth } => {
                let done = self.list(&at, depth, lists).await;
                (at.url, done)
            }
            Job::Fetch { at, entry } => {
                let done = self.file(&at, entry).await;
                (at.url, done)
            }
        }
    }

    async fn list(&self, at: &Place, depth: usize, lists: &Plan) -> Result<Done, Failure> {
        let memory = Memory::new(MAX_LIST);
        let fetch = Fetch {
            plan: lists,
            sessions: self.sessions,
            url: &at.url,
            destination: Destination::Memory(memory.clone()),
        };
        fetch.run().await?;
        let listed: Vec<Listed> = serde_json::from_slice(&memory.take()).map_err(|error| {
            Cause::Content.failed(format_args!(
                "the server sends no list of the directory that programs can read ({error})"
            ))
        })?;
        make_directory(&at.path, depth == 0)?;
        let names: HashSet<&str> = listed.iter().map(|entry| entry.name.as_str()).collect();
        let (mut jobs, mut failures) = (Vec::new(), Vec::new());
        for entry in &listed {
            match self.job(at, depth, entry, &names) {
                Ok(job) => jobs.extend(job),
                Err(failure) => failures.push(failure),
            }
        }
        Ok(Done::Listed(jobs, failures))
    }

    /// What an entry of a directory gives to do.
    fn job(
        &self,
        directory: &Place,
        depth: usize,
        entry: &Listed,
        names: &HashSet<&str>,
    ) -> Result<Option<Job>, Failure> {
        let name = entry.name.as_str();
        let is_directory = match entry.kind {
            Kind::File => false,
            Kind::Directory => true,
            Kind::More => {
                let told = "the server lists only a part of the directory";
                return Err(Cause::Content.failed(told));
            }
            Kind::Other => return Ok(None),
        };
        let shown = name.escape_debug();
        let file_name = entry.file_name();
        let file_name = file_name.filter(|name| is_plain(&name.to_string_lossy()));
        let Some(file_name) = file_name else {
            let told = format!("`{shown}` is no name that a file may have here");
            return Err(Cause::Content.failed(told));
        };
        if is_part(name, names) {
            let told = format!("`{shown}` is left out: a part of another file has that name here");
            return Err(Cause::File.failed(told));
        }
        if is_directory && depth >= self.max_depth {
            let told = format!("`{shown}` is more than {} directories deep", self.max_depth);
            return Err(Cause::Refused.failed(told));
        }
        let at = Place {
            url: below(&directory.url, file_name.as_encoded_bytes(), is_directory)?,
            path: directory.path.join(file_name),
        };
        Ok(Some(match is_directory {
            true => Job::List {
                at,
                depth: depth + 1,
            },
            false => Job::Fetch {
                at,
                entry: Entry {
                    size: entry.size,
                    modified: modified(entry),
                },
            },
        }))
    }

    async fn file(&self, at: &Place, entry: Entry) -> Result<Done, Failure> {
        if self.plan.treatment.resume && is_here(&at.path, entry) {
            return Ok(Done::Here);
        }
        let fetch = Fetch {
            plan: self.plan,
            sessions: self.sessions,
            url: &at.url,
            destination: Destination::File(at.path.clone()),
        };
        let report = fetch.run().await?;
        if let Some(modified) = entry.modified {
            // With `--continue` it is known again. Where that cannot be kept, it is fetched again.
            let file = File::options().write(true).open(&at.path);
            let _ = file.and_then(|file| file.set_modified(modified));
        }
        Ok(Done::Fetched(Box::new(report)))
    }
}

/// True if a file seems to be the one that the server has: fetched before, and not changed since.
fn is_here(path: &Path, entry: Entry) -> bool {
    let Ok(there) = fs::symlink_metadata(path) else {
        return false;
    };
    let same_time = entry.modified.is_some() && there.modified().ok() == entry.modified;
    there.is_file() && entry.size == Some(there.len()) && same_time
}

fn modified(entry: &Listed) -> Option<SystemTime> {
    httpdate::parse_http_date(entry.mtime.as_deref()?).ok()
}

/// Makes a directory, unless it is there. A link would lead elsewhere: only the user may choose one.
fn make_directory(path: &Path, is_chosen: bool) -> Result<(), Failure> {
    let cannot_make = |error: io::Error| {
        Cause::File.failed(format_args!("cannot make {}: {error}", path.display()))
    };
    if is_chosen {
        return fs::create_dir_all(path).map_err(cannot_make);
    }
    match fs::create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            match fs::symlink_metadata(path) {
                Ok(there) if there.is_dir() => Ok(()),
                _ => Err(cannot_make(error)),
            }
        }
        made => made.map_err(cannot_make),
    }
}

/// True for names of one file in a directory, on this system.
pub(crate) fn is_plain(name: &str) -> bool {
    let is_special = matches!(name, "" | "." | "..");
    !is_special && !name.contains(|c: char| std::path::is_separator(c) || c.is_control())
}

/// True for the name that a part of another file has while it is fetched.
fn is_part(name: &str, names: &HashSet<&str>) -> bool {
    let of = name
        .strip_suffix(".part")
        .or_else(|| name.strip_suffix(".part.json"));
    of.is_some_and(|of| names.contains(of))
}

/// The URL of something in a directory.
fn below(directory: &Uri, name: impl AsRef<[u8]>, is_directory: bool) -> Result<Uri, Failure> {
    let mut parts = directory.clone().into_parts();
    let slash = if is_directory { "/" } else { "" };
    let path = format!("{}{}{slash}", directory.path(), percent_encode(name));
    parts.path_and_query = Some(path.try_into().map_err(Failure::other)?);
    Uri::from_parts(parts).map_err(Failure::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use crate::options::Alpn;
    use crate::screen::tests::Heard;
    use crate::session::Purpose;
    use crate::testing::{Served, reach, soon};

    #[test]
    fn names_stay_in_their_directory() {
        for name in ["a", "a b", ".hidden", "...", "ä", "-rf", "a\\b"] {
            assert_eq!(is_plain(name), name != "a\\b" || !cfg!(windows), "{name}");
        }
        for name in ["", ".", "..", "a/b", "/etc", "../a", "a\0", "a\n"] {
            assert!(!is_plain(name), "{name:?}");
        }
        let directory = "https://host:1/a%20b/?query".parse().unwrap();
        let url = |name, is_directory| below(&directory, name, is_directory).unwrap();
        assert_eq!(url("c?#%/", false), "https://host:1/a%20b/c%3F%23%25%2F");
        assert_eq!(url("//x", true), "https://host:1/a%20b/%2F%2Fx/");
    }

    #[test]
    fn no_file_is_another_ones_part() {
        let names = ["a", "a.part", "b.part", "c.part.json", "c"];
        let names = HashSet::from(names);
        for (name, expected) in [
            ("a", false),
            ("a.part", true),
            ("b.part", false),
            ("c.part.json", true),
        ] {
            assert_eq!(is_part(name, &names), expected, "{name}");
        }
    }

    #[test]
    fn a_file_is_here_if_its_size_and_time_are_those_of_the_list() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let listed = |size, mtime: &str| Listed {
            name: "file".to_owned(),
            encoded: None,
            kind: Kind::File,
            mtime: Some(mtime.to_owned()),
            size,
        };
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        let modified = modified(&listed(None, date));
        let entry = |size, modified| Entry { size, modified };
        let known = entry(Some(3), modified);
        assert!(!is_here(&path, known), "nothing is");
        fs::write(&path, "123").unwrap();
        assert!(!is_here(&path, known), "it is of another time");
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(modified.unwrap()).unwrap();
        assert!(is_here(&path, known));
        for (size, modified) in [(Some(4), modified), (None, modified), (Some(3), None)] {
            assert!(!is_here(&path, entry(size, modified)));
        }
        let later = modified.unwrap() + std::time::Duration::from_secs(1);
        assert!(!is_here(&path, entry(Some(3), Some(later))));
        // What a link leads to was not fetched.
        #[cfg(unix)]
        {
            let link = directory.path().join("link");
            std::os::unix::fs::symlink(&path, &link).unwrap();
            assert!(!is_here(&link, known));
        }
        assert_eq!(super::modified(&listed(None, "yesterday")), None);
    }

    #[test]
    fn directories_are_made_unless_they_are_there() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        make_directory(&path("a/b"), true).unwrap();
        make_directory(&path("a/b"), true).unwrap();
        make_directory(&path("a/c"), false).unwrap();
        make_directory(&path("a/c"), false).unwrap();
        assert!(path("a/b").is_dir() && path("a/c").is_dir());
        // Only the user may name one that is in others which are not there.
        let refused = |name| {
            let failure = make_directory(&path(name), false).unwrap_err();
            let told = format!("cannot make {}: ", path(name).display());
            assert!(
                failure.message().starts_with(&told),
                "{}",
                failure.message()
            );
        };
        refused("x/y");
        fs::write(path("file"), "").unwrap();
        refused("file");
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(path("a"), path("link")).unwrap();
            refused("link");
            make_directory(&path("link"), true).unwrap();
        }
    }

    fn plan() -> Plan {
        Plan {
            method: http::Method::GET,
            fields: http::HeaderMap::new(),
            treatment: Treatment {
                quiet: false,
                resume: true,
                replace: true,
                pace: None,
                stall: std::time::Duration::from_secs(1),
                total: Arc::default(),
                json: None,
            },
            retry: std::time::Duration::from_secs(1),
            max_redirects: 0,
            expected: None,
        }
    }

    /// What is to be done about an entry of a directory in another one, or why nothing can be.
    #[test]
    fn entries_of_a_list_are_fetched_or_told() {
        let reach = reach(&["--insecure"]);
        let url: Uri = "https://host/a/".parse().unwrap();
        let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
        let plan = plan();
        let tree = Tree {
            plan: &plan,
            sessions: &sessions,
            parallel: 1,
            max_depth: 2,
            quiet: true,
            is_live: false,
        };
        let at = Place {
            url: url.clone(),
            path: "here".into(),
        };
        let names = HashSet::from(["x", "x.part"]);
        let told = |depth, name: &str, kind| {
            let entry = Listed {
                name: name.to_owned(),
                encoded: None,
                kind,
                mtime: None,
                size: Some(7),
            };
            match tree.job(&at, depth, &entry, &names) {
                Ok(None) => "nothing".to_owned(),
                Ok(Some(Job::List { at, depth })) => format!("{} {depth}", at.url),
                Ok(Some(Job::Fetch { at, entry })) => {
                    let path = at.path.display();
                    format!("{} {path} {:?}", at.url, entry.size)
                }
                Err(failure) => format!("{} {}", failure.code(), failure.message()),
            }
        };
        for (depth, name, kind, expected) in [
            (1, "x", Kind::File, "https://host/a/x here/x Some(7)"),
            (2, "x", Kind::File, "https://host/a/x here/x Some(7)"),
            (0, "b c", Kind::Directory, "https://host/a/b%20c/ 1"),
            (1, "b", Kind::Directory, "https://host/a/b/ 2"),
            (
                2,
                "b",
                Kind::Directory,
                "7 `b` is more than 2 directories deep",
            ),
            (1, "x", Kind::Other, "nothing"),
            (
                1,
                "",
                Kind::More,
                "9 the server lists only a part of the directory",
            ),
            (
                1,
                "../x",
                Kind::File,
                "9 `../x` is no name that a file may have here",
            ),
            (
                1,
                "x.part",
                Kind::File,
                "3 `x.part` is left out: a part of another file has that name here",
            ),
        ] {
            assert_eq!(told(depth, name, kind), expected);
        }
        // Lists are asked for as such, and are not what was asked for.
        let lists = tree.lists();
        assert_eq!(lists.fields[ACCEPT], "application/json");
        assert!(lists.treatment.quiet && !lists.treatment.resume);
        assert!(!Arc::ptr_eq(&lists.treatment.total, &plan.treatment.total));
    }

    /// What is fetched is told on one line, and so is what was here; what cannot be had besides.
    #[tokio::test]
    async fn all_that_is_in_a_directory_is_fetched_and_told() {
        let (root, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| root.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        for (name, content) in [("1", "12345"), ("a/2", "123"), ("a/b/3", "1")] {
            fs::write(at(name), content).unwrap();
        }
        let source = crate::files::Directory::new(root.path(), false).unwrap();
        let served = Served::start(source, Limits::default(), Alpn::H3);
        let (url, reach) = (served.url("/"), served.reach(&[]));
        let sessions = Sessions::new(&reach, Purpose::look(&url, &[Alpn::H3])).unwrap();
        let sessions = sessions.that_forget();
        let heard = Heard::begin();
        let here = target.path().join("here");
        let fetch = async |max_depth, quiet| {
            let plan = plan();
            let tree = Tree {
                plan: &plan,
                sessions: &sessions,
                parallel: 2,
                max_depth,
                quiet,
                is_live: false,
            };
            let result = soon(tree.fetch(&url, here.clone())).await;
            let mut view = Progress::new(String::new(), None, clock::now(), true, &[]);
            tree.show(&mut view);
            let [printed, said] = heard.take();
            assert_eq!(printed, "");
            (result, said, view.told().2)
        };
        let (result, said, bytes) = fetch(5, false).await;
        result.unwrap();
        // Each file is told as well.
        let last = said.lines().last().unwrap();
        assert!(
            last.starts_with(&format!("{url}: 3 files, 9 B in ")),
            "{said}"
        );
        assert!(last.ends_with("bit/s") && bytes == 9, "{said}");
        for (name, content) in [("1", "12345"), ("a/2", "123"), ("a/b/3", "1")] {
            assert_eq!(fs::read_to_string(here.join(name)).unwrap(), content);
        }
        let (result, said, _) = fetch(5, false).await;
        result.unwrap();
        assert!(
            said.starts_with(&format!("{url}: 0 files, 0 B in ")),
            "{said}"
        );
        assert!(said.ends_with(", 3 were here before\n"), "{said}");
        let (result, said, _) = fetch(5, true).await;
        result.unwrap();
        assert_eq!(said, "");
        // Too deep, or where a file is: the rest is fetched.
        let (result, said, _) = fetch(1, true).await;
        assert!(matches!(result, Err(Failure::Reported(Cause::Refused))));
        let told = format!("mpquic: {url}a/: `b` is more than 1 directories deep\n");
        assert_eq!(said, told);
        fs::remove_dir_all(here.join("a")).unwrap();
        fs::write(here.join("a"), "").unwrap();
        fs::remove_file(here.join("1")).unwrap();
        let (result, said, bytes) = fetch(5, true).await;
        assert!(matches!(result, Err(Failure::Reported(Cause::File))));
        let told = format!(
            "mpquic: {url}a/: cannot make {}: ",
            here.join("a").display()
        );
        assert!(said.starts_with(&told) && bytes == 5, "{said}");
        assert!(here.join("1").exists());
    }
}
