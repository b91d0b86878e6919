//! `mpquic get`.

use std::path::{Path, PathBuf};
use std::pin::pin;

use futures_util::stream::{self, StreamExt};
use http::Uri;

use crate::args::{Get, Reconnect};
use crate::download::Download;
use crate::failure::Failure;
use crate::report::Report;
use crate::session::Sessions;
use crate::sink::Destination;

/// Fetches every URL, --parallel at a time.
pub(crate) async fn run(args: Get) -> Result<(), Failure> {
    let mut destinations = Vec::new();
    for url in &args.urls {
        destinations.push((url, destination(&args, url)?));
    }
    let sessions = Sessions::new(&args)?;
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
        result = fetch_all(&args, &sessions, destinations).await.and(result);
        sessions.close().await;
        destinations = rest;
    }
    result
}

/// Fetches these URLs, those of one server over one connection.
async fn fetch_all(
    args: &Get,
    sessions: &Sessions<'_>,
    destinations: Vec<(&Uri, Destination)>,
) -> Result<(), Failure> {
    let fetches = destinations.into_iter().map(|(url, destination)| {
        let fetch = Fetch {
            args,
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
                failure.about(fetch.url).report();
                result = Err(Failure::Reported);
            }
        }
    }
    result
}

/// The requests for one URL.
struct Fetch<'a> {
    args: &'a Get,
    sessions: &'a Sessions<'a>,
    url: &'a Uri,
    destination: Destination,
}

impl Fetch<'_> {
    async fn run(&self) -> Result<Report, Failure> {
        let mut download = self.start()?;
        let connected = self.sessions.connection(self.url).await?;
        let connection = &connected.connection;
        if connected.is_old {
            download.before = connection.path_stats();
        }
        let clients = &connected.clients;
        let Some(accepted) = connected.zero_rtt else {
            return download.run(connection, clients.established().await?).await;
        };
        let result = match clients.early().await {
            Ok(client) => download.run(connection, client).await,
            Err(failure) => Err(failure),
        };
        if accepted.await {
            let with_zero_rtt = |report| Report {
                early_data: true,
                ..report
            };
            return result.map(with_zero_rtt);
        }
        // The server rejected 0-RTT: send the request again as 1-RTT data.
        let client = clients.established().await?;
        self.start()?.run(connection, client).await
    }

    fn start(&self) -> Result<Download<'_>, Failure> {
        let quiet = self.args.quiet || self.args.parallel > 1;
        Download::start(self.url, &self.destination, quiet)
    }
}

fn tell(args: &Get, report: &Report, destination: &Destination) -> Result<(), Failure> {
    if args.json {
        let json = serde_json::to_string(report).map_err(Failure::other)?;
        if *destination == Destination::Stdout {
            eprintln!("{json}");
        } else {
            println!("{json}");
        }
    } else if !args.quiet {
        let file = report.file.as_deref().unwrap_or("standard output");
        eprintln!("{file}: {}", report.summary());
        eprint!("{}", report.table());
    }
    Ok(())
}

/// Where a URL's file goes.
fn destination(args: &Get, url: &Uri) -> Result<Destination, Failure> {
    if let Some(output) = &args.output {
        if output == Path::new("-") {
            return Ok(Destination::Stdout);
        }
        if args.urls.len() > 1 {
            let message = "-o names one file, but there are several URLs; use --output-dir";
            return Err(Failure::usage(message));
        }
        return Ok(Destination::File(output.clone()));
    }
    let last = url.path().rsplit('/').next().unwrap_or_default();
    if matches!(last, "" | "." | "..") {
        let message = format!("{url} names no file to write to; name one with -o");
        return Err(Failure::usage(message));
    }
    let directory = args.output_dir.clone().unwrap_or_default();
    if args.output_dir.is_some() && !directory.is_dir() {
        let message = format!("--output-dir {}: no such directory", directory.display());
        return Err(Failure::usage(message));
    }
    Ok(Destination::File(directory.join(PathBuf::from(last))))
}
