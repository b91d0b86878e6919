//! A directory of a server, with everything below it.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex as StdMutex, OnceLock, PoisonError};

use cap_std::fs::{DirBuilder, Metadata};
use futures_util::stream::{FuturesUnordered, StreamExt};
use http::header::ACCEPT;
use http::{HeaderValue, Uri};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tokio::time::MissedTickBehavior;

use crate::client::session::Sessions;
use crate::files::attributes::Attributes;
use crate::files::beneath::{Top, options};
use crate::files::directory_page::Listed;
use crate::files::list_pages::Pages;
use crate::get::beside::Beside;
use crate::get::download::Treatment;
use crate::get::fetch::{Fetch, Plan};
use crate::get::listed_name::{is_part, taken};
use crate::get::part_name::has_part;
#[cfg(unix)]
use crate::get::part_name::is_locked;

use crate::get::sink::{Destination, Memory};
use crate::get::unfinished_directories::UnfinishedDirectories;
use crate::process::clock;
use crate::process::failure::{Cause, Failure, one_line};
use crate::process::screen;
use crate::report::progress::{Progress, REFRESH};
use crate::report::{Report, links, of_files, on_the_wire};
use crate::text::count::count;
use crate::text::percent::encode_name;
use crate::text::times;

/// Longest list of a directory, bytes.
const MAX_LIST: usize = 16 << 20;
/// Lists fetched at a time: each is in memory until it is complete.
const LISTS: usize = 16;
/// Files and directories, at most. A link that leads back could make endless ones.
const MAX_ENTRIES: usize = 1_000_000;
/// Most pages of lists, without the first page of each directory. `mpquic serve` lists 4000 names
/// or more on a page.
const MAX_PAGES: usize = 2000;
/// Memory for waiting entries in bytes, at most.
const MAX_WAITING: usize = 64 << 20;
/// Permissions of a directory without which its owner cannot put files into it.
const FOR_FILES: u32 = 0o700;
/// This number of nested directories with equal lists shows a link that leads back.
const REPEATED: usize = 3;

/// This number of directories with equal lists of directories shows links that lead to one
/// directory: twenty such directories with two links each would be a million.
const EQUAL: usize = 256;

/// How directories are fetched.
pub(crate) struct Tree<'a> {
    /// For files.
    pub(crate) plan: &'a Plan,
    pub(crate) sessions: &'a Sessions<'a>,
    /// The directory on the server, and here.
    pub(crate) root: Place,
    /// Requests at a time.
    pub(crate) parallel: usize,
    /// Directories in directories, at most.
    pub(crate) max_depth: usize,
    /// Fetch also what has a name that begins with a dot.
    pub(crate) dot_files: bool,
    /// Permissions that nothing here gets.
    pub(crate) umask: u32,
    pub(crate) quiet: bool,
    /// The live view tells how it goes.
    pub(crate) is_live: bool,
    /// Where unfinished directories are noted for the next run.
    pub(crate) state: Option<PathBuf>,
    pub(crate) common: Common,
}

/// What the tasks of a tree share.
#[derive(Default)]
pub(crate) struct Common {
    /// Held by who reads a list of several pages: one such list at a time is in memory.
    long_lists: Mutex<()>,
    /// How often each list with directories was read, by its SHA-256.
    equal_lists: StdMutex<HashMap<[u8; 32], usize>>,
    /// Pages behind the first page of each directory.
    pages: AtomicUsize,
    /// The open output directory, the beginning of each path below.
    top: OnceLock<Top>,
    /// The directory here, locked.
    #[cfg(unix)]
    held: OnceLock<File>,
    /// The unfinished directories of this run and of interrupted runs.
    unfinished: OnceLock<UnfinishedDirectories>,
}

/// A listed directory below the requested one. The directory's waiting entries share this value, so
/// each entry takes little memory.
struct Dir {
    /// The parent directory and the name in it; `None` for the requested directory.
    within: Option<(Arc<Dir>, Box<OsStr>)>,
    /// The SHA-256 of its list, or of the first page of it.
    list: [u8; 32],
}

impl Dir {
    /// This directory and its parents, upwards.
    fn upwards(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        std::iter::successors(Some(self), |dir| {
            dir.within.as_ref().map(|(above, _)| above)
        })
    }

    /// Its name and those of its parents, downwards from the requested directory.
    fn names(self: &Arc<Self>) -> Vec<&OsStr> {
        let within = self.upwards().filter_map(|dir| dir.within.as_ref());
        let mut names: Vec<&OsStr> = within.map(|(_, name)| &**name).collect();
        names.reverse();
        names
    }
}

/// A task: an entry of a directory, or the requested directory.
struct Job {
    entry: Option<(Arc<Dir>, Box<OsStr>)>,
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum What {
    /// A directory, with its attributes.
    List(Attributes),
    Fetch(Entry),
}

impl Job {
    /// Memory in bytes: its own, and the same for its directory.
    fn size(&self) -> usize {
        let name = self.entry.as_ref().map_or(0, |(_, name)| name.len());
        let within = self.entry.as_ref().and_then(|(dir, _)| dir.within.as_ref());
        let above = within.map_or(0, |(_, name)| name.len());
        size_of::<Self>() + size_of::<Dir>() + name + above
    }
}

/// Waiting tasks.
struct Waiting {
    files: Vec<Job>,
    directories: Vec<Job>,
    bytes: usize,
    /// Files and directories listed so far.
    seen: usize,
}

impl Waiting {
    fn new() -> Self {
        let root = Job {
            entry: None,
            what: What::List(Attributes::default()),
        };
        Self {
            files: Vec::new(),
            bytes: root.size(),
            directories: vec![root],
            seen: 0,
        }
    }

    /// The next one. Files come first, so that fewer wait.
    fn pop(&mut self, lists: usize) -> Option<Job> {
        let job = match self.files.pop() {
            None if lists < LISTS => self.directories.pop(),
            file => file,
        }?;
        self.bytes -= job.size();
        Some(job)
    }

    /// Adds the entries of a list; too many entries in all are an error. `left_out` counts entries
    /// without a job.
    fn extend(&mut self, jobs: Vec<Job>, left_out: usize) -> Result<(), Failure> {
        self.seen += jobs.len() + left_out;
        self.bytes += jobs.iter().map(Job::size).sum::<usize>();
        bounded(self.seen, self.bytes)?;
        for job in jobs {
            match job.what {
                What::List(_) => self.directories.push(job),
                What::Fetch(_) => self.files.push(job),
            }
        }
        Ok(())
    }
}

/// Refuses too many files and directories, and too many bytes of jobs for them.
fn bounded(seen: usize, bytes: usize) -> Result<(), Failure> {
    if seen > MAX_ENTRIES {
        let many = format!("more than {MAX_ENTRIES} files and directories");
        return Err(Cause::Refused.failed(many));
    }
    if bytes > MAX_WAITING {
        let many = format!("more than {} MiB of names to fetch", MAX_WAITING >> 20);
        return Err(Cause::Refused.failed(many));
    }
    Ok(())
}

/// One page of the list of a directory.
struct Page {
    listed: Vec<Listed>,
    /// The SHA-256 of its text.
    digest: [u8; 32],
}

/// A file or directory, there and here.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) url: Uri,
    pub(crate) path: PathBuf,
}

/// A file's properties before it is requested.
#[derive(Debug, Clone, Copy)]
struct Entry {
    size: Option<u64>,
    attributes: Attributes,
}

/// A directory here, which gets its attributes once everything is in it.
struct Made {
    dir: Arc<Dir>,
    attributes: Attributes,
}

/// What came of it.
enum Done {
    Listed(Vec<Job>, Vec<Failure>, Option<Made>),
    Fetched(Box<Report>),
    /// It is here from the time before.
    Here,
}

impl Tree<'_> {
    /// Fetches a directory and everything below it. A failed entry is reported, and the other
    /// entries are fetched.
    pub(crate) async fn fetch(&self) -> Result<(), Failure> {
        let began = clock::now();
        let lists = self.lists();
        let mut waiting = Waiting::new();
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
        let (mut listing, mut count, mut here) = (0_usize, 0_usize, 0_usize);
        let mut result = Ok(());
        let mut made = Vec::new();
        loop {
            while running.len() < self.parallel
                && let Some(job) = waiting.pop(listing)
            {
                listing += usize::from(matches!(job.what, What::List(_)));
                running.push(self.run(job, &lists));
            }
            let (about, was_list, done) = tokio::select! {
                done = running.next() => match done {
                    Some(done) => done,
                    None => break,
                },
                _ = ticks.tick() => {
                    self.show(&mut view);
                    continue;
                }
            };
            listing -= usize::from(was_list);
            let failures = match done {
                Ok(Done::Listed(jobs, failures, directory)) => {
                    made.extend(directory);
                    if let Err(failure) = waiting.extend(jobs, failures.len()) {
                        view.clear();
                        result = Err(failure.about(&self.root.url));
                        break;
                    }
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
        self.finish_directories(made, result.is_ok());
        if !self.quiet && self.plan.treatment.json.is_none() {
            let seconds = (clock::now() - began).as_secs_f64();
            self.tell(count, here, seconds);
        }
        result
    }

    /// Gives directories their times and permissions: those in others first.
    fn finish_directories(&self, mut made: Vec<Made>, is_all: bool) {
        made.sort_by_key(|made| std::cmp::Reverse(made.dir.upwards().count()));
        let mut finished = Vec::new();
        for Made { dir, attributes } in made {
            let path = self.path_of(&dir);
            let opened = self.beside(&path).and_then(|beside| {
                let file = beside.open_directory(&path)?;
                Ok((file, beside.metadata(&path)?))
            });
            match opened {
                Ok((file, there)) => {
                    attributes.give_to(&file);
                    finished.push((path, there));
                }
                Err(error) => {
                    let shown = one_line(&path.to_string_lossy());
                    tracing::warn!(%error, "the time of {shown}");
                }
            }
        }
        if let Some(unfinished) = self.common.unfinished.get() {
            let finished = finished.iter().map(|(path, there)| (&**path, there));
            unfinished.finish(finished, is_all);
        }
    }

    /// Where a listed directory is here.
    fn path_of(&self, dir: &Arc<Dir>) -> PathBuf {
        let mut path = self.root.path.clone();
        path.extend(dir.names());
        path
    }

    /// The directory of a path below the directory here.
    fn beside(&self, path: &Path) -> io::Result<Beside> {
        let top = self.common.top.get().ok_or(io::ErrorKind::NotFound)?;
        Beside::below(top, path)
    }

    /// Prints the result on one line.
    fn tell(&self, count: usize, here: usize, seconds: f64) {
        let told = of_files(count, self.plan.treatment.total.load(Relaxed), seconds);
        let before = match here {
            0 => String::new(),
            here => format!(", {here} were already here"),
        };
        screen::say(format_args!("{}: {told}{before}", self.root.url));
        if let Some(links) = on_the_wire(&links::between(&[], &self.sessions.traffic())) {
            screen::say(links);
        }
    }

    /// How lists are asked for.
    fn lists(&self) -> Plan {
        let mut lists = self.plan.clone();
        let json = HeaderValue::from_static("application/json");
        lists.fields.insert(ACCEPT, json);
        lists.treatment = Treatment {
            quiet: true,
            resume: false,
            // Lists do not count as fetched files.
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

    async fn run(&self, job: Job, lists: &Plan) -> (Uri, bool, Result<Done, Failure>) {
        let is_list = matches!(job.what, What::List(_));
        let at = match self.place(&job) {
            Ok(at) => at,
            Err(failure) => return (self.root.url.clone(), is_list, Err(failure)),
        };
        let done = match job.what {
            What::List(attributes) => self.list(&at, attributes, job.entry, lists).await,
            What::Fetch(entry) => self.file(&at, entry).await,
        };
        (at.url, is_list, done)
    }

    /// Where the file or directory is.
    fn place(&self, job: &Job) -> Result<Place, Failure> {
        let Some((dir, name)) = &job.entry else {
            return Ok(self.root.clone());
        };
        let names = dir.names();
        let mut path = self.path_of(dir);
        let mut target = self.root.url.path().to_owned();
        for directory in names {
            target += &encode_name(directory);
            target.push('/');
        }
        path.push(&**name);
        target += &encode_name(name);
        if let What::List(_) = job.what {
            target.push('/');
        }
        let mut parts = self.root.url.clone().into_parts();
        parts.path_and_query = Some(target.try_into().map_err(Failure::other)?);
        let url = Uri::from_parts(parts).map_err(Failure::other)?;
        Ok(Place { url, path })
    }

    async fn list(
        &self,
        at: &Place,
        attributes: Attributes,
        within: Option<(Arc<Dir>, Box<OsStr>)>,
        lists: &Plan,
    ) -> Result<Done, Failure> {
        let mut pages = Pages::new(at.url.clone());
        let mut page = self.page(&pages, lists).await?;
        let is_chosen = within.is_none();
        let is_private = attributes.mode.is_some();
        let is_ours = if is_chosen {
            self.begin(&at.path)?;
            false
        } else {
            self.make_directory(&at.path, is_private)?
        };
        let dir = Arc::new(Dir {
            within,
            list: page.digest,
        });
        let made = is_ours.then(|| Made {
            dir: dir.clone(),
            attributes,
        });
        let mut names: HashSet<Vec<u8>> = HashSet::new();
        let (mut jobs, mut failures, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut one_long_list = None;
        loop {
            let turned = pages.turn(&mut page.listed);
            for entry in &page.listed {
                match self.job(&dir, entry, &mut names) {
                    Ok(job) => {
                        bytes += job.size();
                        jobs.push(job);
                    }
                    Err(failure) => failures.push(failure),
                }
            }
            let is_more = turned.map_err(|told| Cause::Content.failed(told))?;
            if !is_more {
                break;
            }
            bounded(jobs.len() + failures.len(), bytes)?;
            self.count_page()?;
            if one_long_list.is_none() {
                one_long_list = Some(self.common.long_lists.lock().await);
            }
            page = self.page(&pages, lists).await?;
        }
        if jobs.iter().any(|job| matches!(job.what, What::List(_))) {
            self.count_list(dir.list)?;
        }
        // No file is another one's part, whichever comes first.
        let fetched = self.fetched(&at.path, &jobs);
        jobs.retain(|job| {
            let Some(name) = job.entry.as_ref().map(|(_, name)| name) else {
                return true;
            };
            let is_part = is_part(name, &fetched);
            if is_part {
                let shown = name.to_string_lossy();
                let told = format!(
                    "`{}` is left out: a part of another file has that name here",
                    shown.escape_debug()
                );
                failures.push(Cause::File.failed(told));
            }
            !is_part
        });
        Ok(Done::Listed(jobs, failures, made))
    }

    /// Makes and opens the directory here. Only the user may choose a link.
    fn begin(&self, path: &Path) -> Result<(), Failure> {
        let cannot_make = |error| cannot_make(path, &error);
        fs::create_dir_all(path).map_err(cannot_make)?;
        let _ = self.common.top.set(Top::open(path).map_err(cannot_make)?);
        #[cfg(unix)]
        self.hold(path)?;
        let unfinished = UnfinishedDirectories::read(self.state.as_deref(), path);
        let _ = self.common.unfinished.set(unfinished);
        Ok(())
    }

    /// Makes a directory below the directory here, unless it exists. True if the complete directory
    /// gets the attributes of the list.
    fn make_directory(&self, path: &Path, is_private: bool) -> Result<bool, Failure> {
        let cannot_make = |error| cannot_make(path, &error);
        let beside = self.beside(path).map_err(cannot_make)?;
        let is_new = make_directory(&beside, path, is_private)?;
        let there = beside.metadata(path).map_err(cannot_make)?;
        let unfinished = self.common.unfinished.get();
        if is_new && let Some(unfinished) = unfinished {
            unfinished.add(path, &there);
        }
        let is_unfinished = || unfinished.is_some_and(|it| it.contains(path, &there));
        let is_ours = is_new || self.plan.treatment.replace || is_unfinished();
        if is_ours && !is_new {
            let with_files = |there: Attributes| there.and_mode(FOR_FILES);
            change_mode(beside.open_directory(path), with_files);
        }
        Ok(is_ours)
    }

    /// The names of the files of a directory that this run fetches, or that another command fetches
    /// now.
    fn fetched(&self, directory: &Path, jobs: &[Job]) -> HashSet<Vec<u8>> {
        let files = jobs.iter().filter_map(|job| match job {
            Job {
                entry: Some((_, name)),
                what: What::Fetch(entry),
            } => Some((name, *entry)),
            _ => None,
        });
        let top = self.common.top.get();
        let beside = top.and_then(|top| Beside::within(top, directory).ok());
        let fetched = files.filter(|(name, entry)| {
            let path = directory.join(&***name);
            let is_fetched =
                |beside| self.is_fetched(beside, &path, *entry) || has_part(beside, &path);
            beside.as_ref().is_none_or(is_fetched)
        });
        fetched
            .map(|(name, _)| name.as_encoded_bytes().to_vec())
            .collect()
    }

    /// True unless the file stays as it is here: because it is equal, or in the way.
    fn is_fetched(&self, beside: &Beside, path: &Path, entry: Entry) -> bool {
        let treatment = &self.plan.treatment;
        match beside.metadata(path) {
            Ok(there) => {
                let is_kept = treatment.resume && is_here(&there, entry);
                treatment.replace && there.is_file() && !is_kept
            }
            Err(_) => true,
        }
    }

    /// Locks the directory against another `get -r`, to keep the files of two commands apart.
    #[cfg(unix)]
    fn hold(&self, path: &Path) -> Result<(), Failure> {
        // Where it cannot be opened, at least no two commands write to one part.
        if let Ok(directory) = File::open(path) {
            if !matches!(is_locked(&directory), Ok(true)) {
                return Err(Cause::File.failed(format_args!(
                    "another `mpquic get -r` fetches into {}: try again after its end",
                    path.display()
                )));
            }
            let _ = self.common.held.set(directory);
        }
        Ok(())
    }

    /// Refuses more pages than a million entries have.
    fn count_page(&self) -> Result<(), Failure> {
        let pages = self.common.pages.fetch_add(1, Relaxed);
        if pages >= MAX_PAGES {
            let many = format!("more than {MAX_PAGES} pages of lists");
            return Err(Cause::Refused.failed(many));
        }
        Ok(())
    }

    /// Refuses a list of directories that very many directories have.
    fn count_list(&self, list: [u8; 32]) -> Result<(), Failure> {
        let lists = self.common.equal_lists.lock();
        let mut lists = lists.unwrap_or_else(PoisonError::into_inner);
        let count = lists.entry(list).or_default();
        *count += 1;
        if *count > EQUAL {
            let told = format!(
                "it is left out: {EQUAL} directories have the same list, as where many links lead to one \
                 directory"
            );
            return Err(Cause::Refused.failed(told));
        }
        Ok(())
    }

    /// One page of a list.
    async fn page(&self, pages: &Pages, lists: &Plan) -> Result<Page, Failure> {
        let memory = Memory::new(MAX_LIST);
        let fetch = Fetch {
            plan: lists,
            sessions: self.sessions,
            url: &pages.url(),
            destination: Destination::Memory(memory.clone()),
        };
        fetch.run().await?;
        let text = memory.take();
        let listed = serde_json::from_slice(&text).map_err(|error| {
            Cause::Content.failed(format_args!(
                "the server sends no list of the directory in JSON ({error})"
            ))
        })?;
        Ok(Page {
            listed,
            digest: Sha256::digest(&text).into(),
        })
    }

    /// The task for an entry of a directory, with its path.
    fn job(
        &self,
        dir: &Arc<Dir>,
        entry: &Listed,
        names: &mut HashSet<Vec<u8>>,
    ) -> Result<Job, Failure> {
        let (name, is_directory) = taken(entry, self.dot_files, names)?;
        let shown = entry.name.escape_debug();
        if is_directory {
            let depth = dir.upwards().count() - 1;
            if depth >= self.max_depth {
                let most = count(self.max_depth, "directory");
                let told = format!("`{shown}` is more than {most} deep");
                return Err(Cause::Refused.failed(told));
            }
            let same = dir.upwards().filter(|above| above.list == dir.list);
            if same.count() > REPEATED {
                let told = format!(
                    "`{shown}` is left out: {REPEATED} directories above have the same list, as where a \
                     link leads back"
                );
                return Err(Cause::Refused.failed(told));
            }
        }
        let attributes = entry.attributes().without_mode(self.umask);
        Ok(Job {
            entry: Some((dir.clone(), name.into())),
            what: if is_directory {
                What::List(attributes)
            } else {
                What::Fetch(Entry {
                    size: entry.size,
                    attributes,
                })
            },
        })
    }

    async fn file(&self, at: &Place, entry: Entry) -> Result<Done, Failure> {
        let beside = self.beside(&at.path).map_err(|error| {
            Cause::File.failed(format_args!("cannot write {}: {error}", at.path.display()))
        })?;
        let there = beside.metadata(&at.path);
        let replace = self.plan.treatment.replace;
        let is_here = there.as_ref().is_ok_and(|there| is_here(there, entry));
        if is_here && (self.plan.treatment.resume || !replace) {
            if replace {
                let opened = beside.open(&at.path, options().read(true));
                change_mode(opened, |there| Attributes {
                    mode: entry.attributes.mode.or(there.mode),
                    ..there
                });
            }
            return Ok(Done::Here);
        }
        match there {
            // A link or a pipe would lead the bytes elsewhere.
            Ok(there) if replace && !there.is_file() => {
                let told = format!("{} exists, and is not a file", at.path.display());
                return Err(Cause::File.failed(told));
            }
            Ok(_) if !replace => {
                let told = format!(
                    "{} exists already; --overwrite replaces it, and --continue fetches only files that differ",
                    at.path.display()
                );
                return Err(Cause::File.failed(told));
            }
            _ => {}
        }
        let mut plan = self.plan.clone();
        plan.treatment.private = entry.attributes.mode.is_some();
        entry.attributes.ask(&mut plan.fields);
        let fetch = Fetch {
            plan: &plan,
            sessions: self.sessions,
            url: &at.url,
            destination: Destination::Within(at.path.clone(), beside.clone()),
        };
        let (report, answered) = fetch.run_with_attributes().await?;
        // `--continue` recognises the file by its time. If the time cannot be set, the file is
        // fetched again.
        if let Ok(file) = beside.open(&at.path, options().write(true))
            && beside.is_only_name(&at.path, &file)
        {
            let answered = answered.without_mode(self.umask);
            entry.attributes.corrected(&answered).give_to(&file);
        }
        Ok(Done::Fetched(Box::new(report)))
    }
}

/// True if a local file seems to be the server's file: fetched before, and unchanged.
fn is_here(there: &Metadata, entry: Entry) -> bool {
    let modified = there.modified().ok().map(|time| time.into_std());
    let times = entry.attributes.modified.zip(modified);
    let same_time = times.is_some_and(|(listed, here)| times::are_equal(listed, here));
    there.is_file() && entry.size == Some(there.len()) && same_time
}

/// Corrects the permissions of a local file or directory, if they differ.
fn change_mode(opened: io::Result<File>, wanted: impl FnOnce(Attributes) -> Attributes) {
    let Ok(file) = opened else {
        return;
    };
    if let Ok(there) = file.metadata() {
        let there = Attributes::of_file(&there);
        let wanted = wanted(there);
        if !wanted.has_mode_of(&there) {
            wanted.give_to(&file);
        }
    }
}

fn cannot_make(path: &Path, error: &io::Error) -> Failure {
    Cause::File.failed(format_args!("cannot make {}: {error}", path.display()))
}

/// Makes a directory that is private until its content is complete. False if the directory exists.
#[cfg_attr(
    not(unix),
    expect(unused_mut, unused_variables, reason = "permissions are those of Unix")
)]
fn make_directory(beside: &Beside, path: &Path, is_private: bool) -> Result<bool, Failure> {
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    if is_private {
        cap_std::fs::DirBuilderExt::mode(&mut builder, 0o700);
    }
    match beside.make_directory(path, &builder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match beside.metadata(path) {
            Ok(there) if there.is_dir() => Ok(false),
            _ => Err(cannot_make(path, &error)),
        },
        made => made
            .map_err(|error| cannot_make(path, &error))
            .map(|()| true),
    }
}

#[cfg(test)]
mod tests;
