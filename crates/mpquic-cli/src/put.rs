//! `mpquic put`.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::Args;
use futures_util::stream::{self, StreamExt};
use http::Uri;
use tokio::time::MissedTickBehavior;

use crate::clock;
use crate::examples;
use crate::failure::{Cause, Failure};
use crate::live::Direction;
use crate::live_terminal::{LiveArgs, beside};
use crate::options::{Alpn, parse_url};
use crate::outgoing::{self, Items};
use crate::pace::Pace;
use crate::preference::Preference;
use crate::progress::{Progress, REFRESH};
use crate::rate::Rate;
use crate::reach::{Patience, Reach};
use crate::report::of_files;
use crate::screen;
use crate::sending::{Sending, Total};
use crate::session::{Purpose, Sessions};
use crate::weight::{Weight, parse_weight};

/// Send files over all paths at once
///
/// By PUT of HTTP/3: `mpquic serve --allow-put` takes them, and other servers that know the method. A
/// file has its name there once it is whole.
#[derive(Debug, Args)]
#[command(after_help = examples::PUT)]
pub(crate) struct Put {
    /// Where to, as https://HOST[:PORT]/FILE; after a slash at its end follow the names of the files
    #[arg(value_name = "URL", value_parser = parse_url)]
    url: Uri,
    /// What to send; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Send directories, with all that is in them: the server makes them (MKCOL). Links in them are
    /// left out
    #[arg(short, long)]
    recursive: bool,
    /// Send up to this many files at a time, over one connection
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    parallel: u16,
    #[command(flatten)]
    reach: Reach,
    #[command(flatten)]
    preference: Preference,
    #[command(flatten)]
    patience: Patience,
    /// Give paths from this local address or interface so many parts of what is sent; others get one;
    /// repeat for several. What a path has no room for goes elsewhere
    #[arg(long, value_name = "ADDR|IFACE=N", conflicts_with = "scheduler", value_parser = parse_weight)]
    weight: Vec<Weight>,
    /// Send at this rate at most, all files together, in bits per second with a unit, such as 800k,
    /// 20M or 1.5G
    #[arg(long, value_name = "RATE")]
    rate: Option<Rate>,
    #[command(flatten)]
    live: LiveArgs,
    /// Print a JSON object for each file when it is done
    #[arg(long)]
    json: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

/// Sends the files, each again if the connection is lost.
pub(crate) async fn run(args: Put) -> Result<(), Failure> {
    let items = outgoing::items(&args.url, &args.files, args.recursive)?;
    if items.links > 0 && !args.quiet {
        let count = items.links;
        eprintln!("mpquic: {count} links in directories are left out");
    }
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
    let sending = sending(&args, &sessions);
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

/// How files are sent, as the options say.
fn sending<'a>(args: &Put, sessions: &'a Sessions<'a>) -> Sending<'a> {
    Sending {
        sessions,
        retry: Duration::from_secs(args.patience.retry_time),
        stall: args.patience.stall.limit(),
        quiet: args.quiet,
        pace: args.rate.map(Pace::new),
        total: Total::default(),
    }
}

/// Makes the directories, then sends the files, some at a time.
async fn send_all(args: &Put, sending: &Sending<'_>, items: &Items) -> Result<(), Failure> {
    let began = clock::now();
    let parallel = usize::from(args.parallel);
    // Those that are in others come after them.
    for directories in items.directories.chunk_by(|a, b| a.depth == b.depth) {
        let made = directories.iter().map(|directory| async {
            let made = sending.make_directory(&directory.url).await;
            made.map_err(|failure| failure.about(&directory.url))
        });
        let mut made = pin!(stream::iter(made).buffer_unordered(parallel));
        while let Some(made) = made.next().await {
            // Without it, what is in it has no place.
            made?;
        }
    }
    let sent = items.files.iter().map(|item| async move {
        let sent = sending.send_file(item).await;
        (item, sent)
    });
    let mut sent = pin!(stream::iter(sent).buffer_unordered(parallel));
    let mut result = Ok(());
    let mut count = 0;
    while let Some((item, sent)) = sent.next().await {
        match sent {
            Ok(report) => {
                count += 1;
                if args.json {
                    let json = serde_json::to_string(&report);
                    screen::print(json.map_err(Failure::other)?);
                } else if !args.quiet && items.files.len() == 1 {
                    let (summary, table) = (report.summary(), report.table());
                    let url = &item.url;
                    screen::say(format_args!("{url}: {summary}\n{}", table.trim_end()));
                }
            }
            Err(failure) => {
                let cause = failure.cause().unwrap_or(Cause::Other);
                failure.about(&item.url).report();
                result = result.and(Err(Failure::Reported(cause)));
            }
        }
    }
    if items.files.len() != 1 && !args.quiet && !args.json {
        let seconds = (clock::now() - began).as_secs_f64();
        let told = of_files(count, sending.total.bytes.load(Relaxed), seconds);
        screen::say(format_args!("{}: {told}", args.url));
    }
    result
}

/// How far all files are.
struct View {
    progress: Progress,
}

impl View {
    fn new(items: &Items, quiet: bool) -> Self {
        let title = match &items.files[..] {
            [item] => item.name().to_owned(),
            files => format!("{} files", files.len()),
        };
        let progress = Progress::new(title, items.length, clock::now(), quiet, &[]);
        Self {
            progress: progress.of_sending(),
        }
    }

    fn update(&mut self, sending: &Sending<'_>) {
        if let Some(connection) = sending.sessions.open() {
            let now = clock::now();
            let bytes = sending.total.bytes.load(Relaxed);
            self.progress.update(now, bytes, &connection.path_stats());
        }
    }
}

#[cfg(test)]
mod tests;
