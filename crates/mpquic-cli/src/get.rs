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
use crate::pace::Pace;
use crate::report::Report;
use crate::session::{Purpose, Sessions};
use crate::sink::Destination;

/// Fetches every URL, --parallel at a time.
pub(crate) async fn run(args: Get) -> Result<(), Failure> {
    let mut destinations = Vec::new();
    for url in &args.urls {
        destinations.push((url, destination(&args, url)?));
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
        let fetched = fetch_all(&args, &plan, &sessions, destinations).await;
        result = result.and(fetched);
        sessions.close().await;
        destinations = rest;
    }
    result
}

fn plan(args: &Get) -> Result<Plan, Failure> {
    let several = args.urls.len() > 1;
    if several && args.sha256.is_some() {
        return Err(Failure::usage(
            "--sha256 is of one file, but there are several URLs",
        ));
    }
    if several && args.parallel > 1 && to_stdout(args) {
        let message =
            "several files at once would be mixed on standard output; leave --parallel out";
        return Err(Failure::usage(message));
    }
    Ok(Plan {
        method: args.method.clone(),
        fields: args.header.iter().cloned().collect(),
        treatment: Treatment {
            quiet: args.quiet || args.parallel > 1,
            resume: args.r#continue,
            pace: args.rate.map(|rate| Arc::new(Pace::new(rate))),
            stall: args.patience.stall.limit(),
        },
        retry: Duration::from_secs(args.patience.retry_time),
        max_redirects: args.max_redirects,
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
    let mut fetches = pin!(stream::iter(fetches).buffer_unordered(args.parallel.into()));
    let mut result = Ok(());
    while let Some((fetch, fetched)) = fetches.next().await {
        match fetched {
            Ok(report) => tell(args, &report, &fetch.destination)?,
            Err(failure) => {
                let cause = failure.cause().unwrap_or(Cause::Other);
                failure.about(fetch.url).report();
                result = result.and(Err(Failure::Reported(cause)));
            }
        }
    }
    result
}

fn tell(args: &Get, report: &Report, destination: &Destination) -> Result<(), Failure> {
    if args.json {
        let json = serde_json::to_string(report).map_err(Failure::other)?;
        if *destination == Destination::Stdout {
            eprintln!("{json}");
        } else {
            println!("{json}");
        }
    } else if !args.quiet && args.method != Method::HEAD {
        let file = report.file.as_deref().unwrap_or("standard output");
        eprintln!("{file}: {}", report.summary());
        eprint!("{}", report.table());
    }
    Ok(())
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

/// The last part of a URL, decoded unless it would no longer be one plain name.
fn name(url: &Uri) -> Option<String> {
    let last = url.path().rsplit('/').next().unwrap_or_default();
    let is_plain = |name: &String| {
        let is_special = matches!(name.as_str(), "" | "." | "..");
        !is_special && !name.contains(|c: char| std::path::is_separator(c) || c.is_control())
    };
    let decoded = percent_decode(last).filter(is_plain);
    decoded.or_else(|| Some(last.to_owned()).filter(is_plain))
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
