//! `mpquic get`.

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use http::{Method, Uri};

use crate::args::{Get, Reconnect};
use crate::download::Treatment;
use crate::failure::{Cause, Failure};
use crate::fetch::{Fetch, Plan};
use crate::files::percent_decode;
use crate::json_output::{Json, JsonOutput};
use crate::live::Direction;
use crate::live_terminal::beside;
use crate::pace::Pace;
use crate::report::Report;
use crate::screen;
use crate::session::{Purpose, Sessions};
use crate::sink::Destination;
use crate::tree::{Tree, is_plain};

/// Requests for directories and what is in them, at a time.
const PARALLEL: u16 = 64;

/// Fetches every URL, --parallel at a time.
pub(crate) async fn run(args: Get) -> Result<(), Failure> {
    let mut destinations = Vec::new();
    for url in &args.urls {
        let destination = match args.recursive {
            true => directory(&args, url)?,
            false => destination(&args, url)?,
        };
        destinations.push((url, destination));
    }
    let plan = plan(&args)?;
    let purpose = Purpose {
        urls: &args.urls,
        alpn: &args.alpn,
        early_data: args.early_data,
        quiet: args.quiet,
        datagrams: false,
        rate: args.rate,
        backup: &args.preference.backup,
        weights: &[],
        costs: &args.preference.cost,
    };
    let sessions = Sessions::new(&args.reach, purpose)?;
    let title = match &args.urls[..] {
        [url] => url.to_string(),
        urls => format!("{} files", urls.len()),
    };
    let view = args.live.view(title, Direction::Receiving);
    let fetched = async {
        let fetched = fetch_in_turn(&args, &plan, &sessions, destinations);
        let Some(json) = &plan.treatment.json else {
            return fetched.await;
        };
        tokio::select! {
            result = fetched => result,
            never = json.watch(&sessions) => match never {},
        }
    };
    beside(view, || sessions.shown(), fetched).await
}

/// Fetches everything, over one connection after the other if that is wanted.
async fn fetch_in_turn(
    args: &Get,
    plan: &Plan,
    sessions: &Sessions<'_>,
    mut destinations: Vec<(&Uri, Destination)>,
) -> Result<(), Failure> {
    if args.recursive {
        let result = fetch_trees(args, plan, sessions, destinations).await;
        sessions.close().await;
        return result;
    }
    let on_one_connection = match args.reconnect {
        None => [destinations.len(); 2],
        Some(Reconnect::Once) => [1, destinations.len()],
        Some(Reconnect::Each) => [1, 1],
    };
    let mut sizes = on_one_connection.into_iter();
    let mut size = 0;
    let mut result = Ok(());
    while !destinations.is_empty() {
        size = sizes.next().unwrap_or(size).min(destinations.len());
        let rest = destinations.split_off(size);
        let fetched = fetch_all(args, plan, sessions, destinations).await;
        result = result.and(fetched);
        sessions.close().await;
        destinations = rest;
    }
    result
}

/// Fetches directories, one after the other.
async fn fetch_trees(
    args: &Get,
    plan: &Plan,
    sessions: &Sessions<'_>,
    destinations: Vec<(&Uri, Destination)>,
) -> Result<(), Failure> {
    let mut result = Ok(());
    for (url, destination) in destinations {
        let Destination::File(path) = destination else {
            continue;
        };
        let mut plan = plan.clone();
        plan.treatment.total = Arc::default();
        let tree = Tree {
            plan: &plan,
            sessions,
            parallel: args.parallel.unwrap_or(PARALLEL).into(),
            max_depth: args.max_depth.into(),
            quiet: args.quiet,
            is_live: args.live.is_shown(),
        };
        result = result.and(tree.fetch(url, path).await);
    }
    result
}

fn plan(args: &Get) -> Result<Plan, Failure> {
    let several = args.urls.len() > 1;
    let parallel = args.parallel.unwrap_or(1);
    if several && args.sha256.is_some() {
        return Err(Failure::usage(
            "--sha256 is of one file, but there are several URLs",
        ));
    }
    if several && parallel > 1 && to_stdout(args) {
        let message =
            "several files at once would be mixed on standard output; leave --parallel out";
        return Err(Failure::usage(message));
    }
    if args.live.is_shown() && args.json == Some(Json::Events) {
        let message = "--live covers the terminal until the end, and --json=events tells at once; leave one out";
        return Err(Failure::usage(message));
    }
    Ok(Plan {
        method: args.method.clone(),
        fields: args.header.iter().cloned().collect(),
        treatment: Treatment {
            quiet: args.quiet || parallel > 1 || args.recursive || args.live.is_shown(),
            resume: args.r#continue,
            pace: args.rate.map(|rate| Arc::new(Pace::new(rate))),
            stall: args.patience.stall.limit(),
            total: Arc::default(),
            json: args
                .json
                .map(|what| Arc::new(JsonOutput::new(what, args.interval, to_stdout(args)))),
        },
        retry: Duration::from_secs(args.patience.retry_time),
        // What is in a directory is on its server.
        max_redirects: if args.recursive {
            0
        } else {
            args.max_redirects
        },
        expected: args.sha256.map(|sum| sum.0),
    })
}

/// Fetches these URLs, those of one server over one connection.
async fn fetch_all(
    args: &Get,
    plan: &Plan,
    sessions: &Sessions<'_>,
    destinations: Vec<(&Uri, Destination)>,
) -> Result<(), Failure> {
    let fetches = destinations.into_iter().map(|(url, destination)| {
        let fetch = Fetch {
            plan,
            sessions,
            url,
            destination,
        };
        async move {
            let fetched = fetch.run().await;
            (fetch, fetched)
        }
    });
    let mut fetches =
        pin!(stream::iter(fetches).buffer_unordered(args.parallel.unwrap_or(1).into()));
    let mut result = Ok(());
    while let Some((fetch, fetched)) = fetches.next().await {
        match fetched {
            Ok(report) => match &plan.treatment.json {
                Some(json) => json.result(&report, sessions),
                None => tell(args, &report),
            },
            Err(failure) => {
                let cause = failure.cause().unwrap_or(Cause::Other);
                if let Some(json) = &plan.treatment.json {
                    json.failed(fetch.url, &failure, sessions);
                }
                failure.about(fetch.url).report();
                result = result.and(Err(Failure::Reported(cause)));
            }
        }
    }
    result
}

fn tell(args: &Get, report: &Report) {
    if !args.quiet && args.method != Method::HEAD {
        let file = report.file.as_deref().unwrap_or("standard output");
        let (summary, table) = (report.summary(), report.table());
        screen::say(format_args!("{file}: {summary}\n{}", table.trim_end()));
    }
}

fn to_stdout(args: &Get) -> bool {
    let named = args.output.as_deref() == Some(Path::new("-"));
    let is_elsewhere = args.output.is_some() || args.output_dir.is_some() || args.remote_name;
    named || (args.method == Method::HEAD && !is_elsewhere)
}

/// Where a URL's file goes.
fn destination(args: &Get, url: &Uri) -> Result<Destination, Failure> {
    if to_stdout(args) {
        return Ok(Destination::Stdout);
    }
    if let Some(output) = &args.output {
        if args.urls.len() > 1 {
            let message = "-o names one file, but there are several URLs; use --output-dir";
            return Err(Failure::usage(message));
        }
        return Ok(Destination::File(output.clone()));
    }
    let Some(name) = name(url) else {
        let message = format!("{url} names no file to write to; name one with -o");
        return Err(Failure::usage(message));
    };
    let directory = args.output_dir.clone().unwrap_or_default();
    if args.output_dir.is_some() && !directory.is_dir() {
        let message = format!("--output-dir {}: no such directory", directory.display());
        return Err(Failure::usage(message));
    }
    Ok(Destination::File(directory.join(PathBuf::from(name))))
}

/// Where a URL's directory goes.
fn directory(args: &Get, url: &Uri) -> Result<Destination, Failure> {
    let Some(path) = url.path().strip_suffix('/') else {
        let message =
            format!("{url} names a file, but --recursive fetches directories; end it with a slash");
        return Err(Failure::usage(message));
    };
    if let Some(output) = &args.output {
        if args.urls.len() > 1 {
            let message = "-o names one directory, but there are several URLs; use --output-dir";
            return Err(Failure::usage(message));
        }
        if to_stdout(args) {
            let message = "-o -: a directory cannot go to standard output";
            return Err(Failure::usage(message));
        }
        return Ok(Destination::File(output.clone()));
    }
    let parent = args.output_dir.clone().unwrap_or_else(|| ".".into());
    if !parent.is_dir() {
        let message = format!("--output-dir {}: no such directory", parent.display());
        return Err(Failure::usage(message));
    }
    // What the root of a server has in it has no other name.
    Ok(Destination::File(match name_of(path) {
        Some(name) => parent.join(name),
        None => parent,
    }))
}

/// The last part of a URL.
fn name(url: &Uri) -> Option<String> {
    name_of(url.path())
}

/// The last part of a path, decoded unless it would no longer be one plain name.
fn name_of(path: &str) -> Option<String> {
    let last = path.rsplit('/').next().unwrap_or_default();
    let decoded = percent_decode(last).filter(|name| is_plain(name));
    decoded.or_else(|| Some(last.to_owned()).filter(|name| is_plain(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        for (url, expected) in [
            ("https://host/a/with%20space.txt?x", Some("with space.txt")),
            ("https://host/%c3%a4", Some("ä")),
            // Decoded, it would be a path.
            ("https://host/..%2fsecret", Some("..%2fsecret")),
            ("https://host/%2e%2e", Some("%2e%2e")),
            ("https://host/a%0ab", Some("a%0ab")),
            ("https://host/%ff", Some("%ff")),
            ("https://host/a/", None),
            ("https://host", None),
            ("https://host/..", None),
        ] {
            assert_eq!(name(&url.parse().unwrap()).as_deref(), expected, "{url}");
        }
    }
}
