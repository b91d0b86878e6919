//! `mpquic put`.

pub(crate) mod input;
mod local;
pub(crate) mod remembered;
pub(crate) mod sending;
pub(crate) mod sources;
mod tries;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use clap::Args;
use futures_util::stream::{self, StreamExt};
use http::Uri;
use tokio::time::MissedTickBehavior;

use crate::client::secrets::{Secrets, SecretsArgs};
use crate::client::session::{Purpose, Sessions};
use crate::client::weight::{Weight, parse_weight};
use crate::files::attributes::Attributes;
use crate::files::directory_page::{Kind, Listed};
use crate::options::examples;
use crate::options::preference::Preference;
use crate::options::reach::{Patience, Reach};
use crate::options::{Alpn, parse_url};
use crate::process::clock;
use crate::process::failure::{Cause, Failure};
use crate::process::screen;
use crate::process::state;
use crate::put::remembered::Unfinished;
use crate::put::sending::{Made, Sending, Total};
use crate::put::sources::{Directory, Item, Items};
use crate::rate::Rate;
use crate::rate::pace::Pace;
use crate::report::live::Direction;
use crate::report::live_terminal::{LiveArgs, beside};
use crate::report::progress::{Progress, REFRESH};
use crate::report::{Report, links, of_files, on_the_wire};
use crate::text::count::count;
use crate::text::json;
use crate::text::percent::percent_encode;
use crate::text::times;

/// Permissions of a directory without which its owner cannot put files into it.
const FOR_FILES: u32 = 0o700;

/// Send files over all paths at once
///
/// Sends HTTP/3 PUT requests. `mpquic serve --allow-put` and other servers with the method PUT
/// accept these requests. `mpquic serve` gives a file its name when it is complete.
#[derive(Debug, Args)]
#[command(after_help = examples::PUT)]
pub(crate) struct Put {
    /// Target, as https://HOST[:PORT]/FILE. If it ends with a slash, each file keeps its own name
    /// below it. In a name, write # as %23 and ? as %3F
    #[arg(value_name = "URL", value_parser = parse_target)]
    url: Uri,
    /// Files to send; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Send directories with everything below them; the server makes them (MKCOL). Files that the
    /// server has with the same size and time are skipped. Symbolic links inside directories, and
    /// pipes, sockets and devices, are left out: the command names them and ends with exit code 9
    #[arg(short, long)]
    recursive: bool,
    /// Send up to N files at a time, over one connection
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    parallel: u16,
    #[command(flatten)]
    secrets: SecretsArgs,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    preference: Preference,
    #[command(flatten)]
    patience: Patience,
    /// Give paths from this local address or interface N parts of the data, others one part; repeat
    /// for several. Data for which a path has no room goes to other paths
    #[arg(long, value_name = "ADDR|IFACE=N", conflicts_with = "scheduler", value_parser = parse_weight)]
    weight: Vec<Weight>,
    /// Send at most at this rate, all files together, in bits per second with a unit, such as 800k,
    /// 20M or 1.5G
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    #[command(flatten)]
    live: LiveArgs,
    /// Print a JSON object for each finished file
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// Sends the files, each again after a lost connection.
pub(crate) async fn run(args: Put, unfinished: &Unfinished) -> Result<(), Failure> {
    let (url, files, recursive) = (args.url.clone(), args.files.clone(), args.recursive);
    let found = tokio::task::spawn_blocking(move || sources::items(&url, &files, recursive));
    let items = found.await.map_err(Failure::other)??;
    let urls = [args.url.clone()];
    let sessions = Sessions::new(
        &args.reach,
        Purpose {
            urls: &urls,
            alpn: &[Alpn::H3],
            early_data: false,
            quiet: args.quiet,
            datagrams: false,
            rate: args.rate,
            backup: &args.preference.backup,
            weights: &args.weight,
            costs: &args.preference.cost,
        },
    )?;
    let sending = Sending {
        unfinished: unfinished.clone(),
        ..sending(&args, &sessions, args.secrets.read()?)
    };
    let title = &args.url;
    let live = args.live.view(title, Direction::Sending);
    let sent = beside(live, || sessions.shown(), send_all(&args, &sending, &items));
    let result = {
        let mut work = pin!(sent);
        let mut view = View::new(&items, args.quiet || args.live.is_shown());
        let mut ticks = tokio::time::interval(REFRESH);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let result = loop {
            tokio::select! {
                result = &mut work => break result,
                _ = ticks.tick() => view.update(&sending),
            }
        };
        view.progress.clear();
        result
    };
    sessions.close().await;
    result
}

/// A URL of the user that files get. A browser cuts a URL at `#`, and `?` begins a query: a file
/// whose name has one of them would replace another file of the server.
fn parse_target(text: &str) -> Result<Uri, String> {
    for (sign, escape, what) in [('#', "%23", "fragment"), ('?', "%3F", "query")] {
        if text.contains(sign) {
            return Err(format!(
                "the URL of an upload has no {what}; if the file's name has `{sign}`, write `{sign}` as {escape}"
            ));
        }
    }
    parse_url(text)
}

/// How files are sent, as the options say.
fn sending<'a>(args: &Put, sessions: &'a Sessions<'a>, secrets: Secrets) -> Sending<'a> {
    Sending {
        sessions,
        secrets,
        retry: Duration::from_secs(args.patience.retry_time),
        stall: args.patience.stall.limit(),
        quiet: args.quiet,
        pace: args.rate.map(Pace::new),
        notes: state::state_directory().map(|directory| directory.join("uploads")),
        unfinished: Unfinished::default(),
        total: Total::default(),
        told: AtomicU64::new(0),
    }
}

/// The state of all files.
struct Course {
    is_quiet: bool,
    result: Result<(), Failure>,
    /// Directories that could not be made.
    missing: Vec<Uri>,
    /// Directories whose time and permissions the server lets the client not change.
    fixed: Vec<Uri>,
    count: usize,
    /// Files that the server already has.
    there: usize,
}

impl Course {
    fn fail(&mut self, failure: &Failure) {
        let cause = failure.cause().unwrap_or(Cause::Other);
        failure.report();
        if self.result.is_ok() {
            self.result = Err(Failure::Reported(cause));
        }
    }

    /// The server already has a file.
    fn on_there(&mut self, item: &Item, sending: &Sending<'_>) {
        self.there += 1;
        let length = item.found.map_or(0, |found| found.length);
        sending.total.before.fetch_add(length, Relaxed);
    }

    /// True for the content of a directory that could not be made.
    fn is_lost(&self, url: &Uri) -> bool {
        let mut missing = self.missing.iter();
        missing.any(|directory| url.path().starts_with(directory.path()))
    }
}

/// Makes the directories, then sends the files, some at a time.
async fn send_all(args: &Put, sending: &Sending<'_>, items: &Items) -> Result<(), Failure> {
    let began = clock::now();
    let mut course = Course {
        is_quiet: args.quiet,
        result: Ok(()),
        missing: Vec::new(),
        fixed: Vec::new(),
        count: 0,
        there: 0,
    };
    for failure in &items.failures {
        course.fail(failure);
    }
    let parallel = usize::from(args.parallel);
    let there = make_directories(sending, items, parallel, &mut course).await?;
    let mut wanted = Vec::new();
    for item in &items.files {
        if course.is_lost(&item.url) {
            continue;
        }
        match compared(item, &there) {
            Compared::Equal => course.on_there(item, sending),
            Compared::Differs(how) => wanted.push((item, how)),
        }
    }
    let sent = wanted.into_iter().map(|(item, how)| async move {
        let sent = send(sending, item, how).await;
        (item, sent)
    });
    let mut sent = pin!(stream::iter(sent).buffer_unordered(parallel));
    while let Some((item, sent)) = sent.next().await {
        match sent {
            Ok(None) => course.on_there(item, sending),
            Ok(Some(report)) => {
                course.count += 1;
                if args.json {
                    json::print(&report);
                } else if !args.quiet && items.files.len() == 1 {
                    let (summary, table) = (report.summary(), report.table());
                    let url = &item.url;
                    screen::say(format_args!("{url}: {summary}\n{}", table.trim_end()));
                }
            }
            Err(failure) => course.fail(&failure.about(&item.url)),
        }
    }
    if let Err(failure) = finish_directories(sending, items, parallel, &mut course).await {
        course.fail(&failure);
    }
    for path in &items.left_out {
        let told = "is left out: it is a link, a pipe, a socket or a device";
        course.fail(&Cause::Content.failed(format_args!("{} {told}", path.display())));
    }
    let is_told = match items.files.len() {
        0 => items.failures.is_empty() || !items.directories.is_empty(),
        1 => course.there > 0,
        _ => true,
    };
    if is_told && !args.quiet && !args.json {
        let seconds = (clock::now() - began).as_secs_f64();
        let told = of_files(course.count, sending.total.bytes.load(Relaxed), seconds);
        let before = match course.there {
            0 => String::new(),
            1 => ", 1 was already there".to_owned(),
            there => format!(", {there} were already there"),
        };
        screen::say(format_args!("{}: {told}{before}", args.url));
        if items.files.len() > 1
            && let Some(links) = on_the_wire(&links::between(&[], &sending.sessions.traffic()))
        {
            screen::say(links);
        }
    }
    course.result
}

/// Makes the directories, and lists those that already exist.
async fn make_directories(
    sending: &Sending<'_>,
    items: &Items,
    parallel: usize,
    course: &mut Course,
) -> Result<HashMap<String, Listed>, Failure> {
    let mut old = Vec::new();
    // Parent directories first.
    for directories in items.directories.chunk_by(|a, b| a.depth == b.depth) {
        let wanted: Vec<_> = directories
            .iter()
            .filter(|it| !course.is_lost(&it.url))
            .collect();
        let made = wanted
            .into_iter()
            .map(|directory| async move { (directory, make_directory(sending, directory).await) });
        let mut made = pin!(stream::iter(made).buffer_unordered(parallel));
        while let Some((directory, made)) = made.next().await {
            match made {
                Ok(Made::New) => {}
                Ok(made) => {
                    old.push(&directory.url);
                    if made == Made::Fixed {
                        course.fixed.push(directory.url.clone());
                    }
                }
                Err(failure) if failure.cause() == Some(Cause::Refused) => {
                    course.fail(&failure.about(&directory.url));
                    course.missing.push(directory.url.clone());
                }
                Err(failure) => return Err(failure.about(&directory.url)),
            }
        }
    }
    // Of the server's lists, only entries are kept that a local file may be equal to.
    let sent: HashSet<&str> = items.files.iter().map(|item| item.url.path()).collect();
    let is_sent = |url: &Uri, entry: &Listed| sent.contains(&*path_in(url, entry));
    let listed = old.into_iter().map(|url| {
        let is_sent = &is_sent;
        async move {
            let listed = sending.list(url, |entry| is_sent(url, entry)).await;
            let listed = listed.map_err(|failure| failure.about(url));
            listed.map(|listed| (url, listed))
        }
    });
    let mut listed = pin!(stream::iter(listed).buffer_unordered(parallel));
    let mut there = HashMap::new();
    while let Some(listed) = listed.next().await {
        let (url, listed) = match listed {
            Ok(listed) => listed,
            // Without a list of the server's files, all files are sent.
            Err(failure) if failure.cause() == Some(Cause::Refused) => continue,
            Err(failure) => return Err(failure),
        };
        there.extend(
            listed
                .into_iter()
                .map(|entry| (path_in(url, &entry), entry)),
        );
    }
    Ok(there)
}

/// Makes a directory, unless it exists. Files can be put into it.
async fn make_directory(sending: &Sending<'_>, directory: &Directory) -> Result<Made, Failure> {
    let Some(here) = &directory.here else {
        return Ok(Made::Old);
    };
    let made = sending.make_directory(directory).await?;
    let attributes = here.attributes();
    if made == Made::Old && !attributes.has_mode_of(&attributes.and_mode(FOR_FILES)) {
        let attributes = Attributes {
            modified: None,
            ..attributes.and_mode(FOR_FILES)
        };
        // If the server refuses, it says so of the files.
        refused_or(sending.set_attributes(&directory.url, attributes).await)?;
    }
    Ok(made)
}

/// Gives directories their time and permissions, once everything is in them: those in others first.
async fn finish_directories(
    sending: &Sending<'_>,
    items: &Items,
    parallel: usize,
    course: &mut Course,
) -> Result<(), Failure> {
    let fixed = "the server lets this client change neither".to_owned();
    let mut refused: Vec<_> = course
        .fixed
        .iter()
        .map(|url| (url, fixed.clone()))
        .collect();
    for directories in items.directories.chunk_by(|a, b| a.depth == b.depth).rev() {
        let made: Vec<_> = directories
            .iter()
            .filter(|directory| !course.is_lost(&directory.url))
            .filter(|directory| !course.fixed.contains(&directory.url))
            .filter_map(|directory| Some((&directory.url, directory.here.as_ref()?)))
            .collect();
        let set = made.into_iter().map(|(url, here)| async move {
            let set = sending.set_attributes(url, here.attributes()).await;
            let refused = refused_or(set).map_err(|failure| failure.about(url));
            refused.map(|refused| refused.map(|failure| (url, failure.message().to_owned())))
        });
        let mut set = pin!(stream::iter(set).buffer_unordered(parallel));
        while let Some(set) = set.next().await {
            refused.extend(set?);
        }
    }
    if let Some((url, why)) = refused.first()
        && !course.is_quiet
    {
        let others = match refused.len() - 1 {
            0 => String::new(),
            1 => " and of another directory".to_owned(),
            others => format!(" and of {others} other directories"),
        };
        screen::say(format_args!(
            "mpquic: time and permissions of {url}{others} stay as the server set them: {why}"
        ));
    }
    Ok(())
}

/// The refusal of a request that only some servers know; `None` if the request was accepted.
fn refused_or(result: Result<(), Failure>) -> Result<Option<Failure>, Failure> {
    match result {
        Ok(()) => Ok(None),
        Err(failure) if failure.cause() == Some(Cause::Refused) => Ok(Some(failure)),
        Err(failure) => Err(failure),
    }
}

/// Sends a file, or only its permissions; `None` if that was enough.
async fn send(
    sending: &Sending<'_>,
    item: &Item,
    how: Differing,
) -> Result<Option<Report>, Failure> {
    if let Differing::Permissions(attributes) = how {
        let set = sending.set_attributes(&item.url, attributes).await;
        if refused_or(set)?.is_none() {
            return Ok(None);
        }
    }
    sending.send_file(item).await.map(Some)
}

/// The path of what a directory has in it.
fn path_in(directory: &Uri, entry: &Listed) -> String {
    let name = match &entry.encoded {
        Some(encoded) => encoded.clone(),
        None => percent_encode(&entry.name),
    };
    format!("{}{name}", directory.path())
}

/// What the server has of a file.
#[derive(Debug, PartialEq, Eq)]
enum Compared {
    /// A file of the same size, time and permissions, as far as the server names them.
    Equal,
    Differs(Differing),
}

/// What is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Differing {
    Content,
    /// The rest seems to be equal.
    Permissions(Attributes),
}

fn compared(item: &Item, there: &HashMap<String, Listed>) -> Compared {
    let (Some(found), Some(entry)) = (&item.found, there.get(item.url.path())) else {
        return Compared::Differs(Differing::Content);
    };
    let (here, listed) = (found.attributes, entry.attributes());
    let times = here.modified.zip(listed.modified);
    let same_time = times.is_some_and(|(here, listed)| times::are_equal(here, listed));
    if entry.kind != Kind::File || entry.size != Some(found.length) || !same_time {
        return Compared::Differs(Differing::Content);
    }
    if here.has_mode_of(&listed) {
        Compared::Equal
    } else {
        Compared::Differs(Differing::Permissions(here))
    }
}

/// Progress of all files.
struct View {
    progress: Progress,
}

impl View {
    fn new(items: &Items, quiet: bool) -> Self {
        let title = match &items.files[..] {
            [item] => item.name().to_owned(),
            files => count(files.len(), "file"),
        };
        let progress = Progress::new(title, items.length, clock::now(), quiet, &[]);
        Self {
            progress: progress.of_sending(),
        }
    }

    fn update(&mut self, sending: &Sending<'_>) {
        if let Some(connection) = sending.sessions.open() {
            let now = clock::now();
            let total = &sending.total;
            let bytes = total.bytes.load(Relaxed) + total.before.load(Relaxed);
            self.progress.update(now, bytes, &connection.path_stats());
        }
    }
}

#[cfg(test)]
mod tests;
