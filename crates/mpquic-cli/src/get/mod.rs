//! `mpquic get`.

pub(crate) mod args;
pub(crate) mod beside;
pub(crate) mod count;
pub(crate) mod download;
pub(crate) mod fetch;
pub(crate) mod json;
pub(crate) mod left;
pub(crate) mod listed_name;
pub(crate) mod note_key;
pub(crate) mod part_file;
pub(crate) mod part_name;
mod pieces;
pub(crate) mod sink;
pub(crate) mod tree;
pub(crate) mod unfinished_directories;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use http::{Method, Uri};

use crate::client::session::{Purpose, Sessions};
use crate::get::args::{Get, Reconnect};
use crate::get::download::Treatment;
use crate::get::fetch::{Fetch, Plan};
use crate::get::json::{Json, JsonOutput};
use crate::get::left::Left;
use crate::get::listed_name::{is_plain, of_bytes};
use crate::get::note_key::NoteKey;
use crate::get::part_name::wholes;
use crate::get::sink::Destination;
use crate::get::tree::{Common, Place, Tree};
use crate::process::failure::{Cause, Failure};
use crate::process::screen;
use crate::process::state;
use crate::process::umask::umask;
use crate::rate::pace::Pace;
use crate::report::Report;
use crate::report::live::Direction;
use crate::report::live_terminal::beside;
use crate::text::count::count;
use crate::text::percent::percent_decode;

/// Requests for directories and what is in them, at a time.
const PARALLEL: u16 = 64;

/// Fetches every URL, --parallel at a time.
pub(crate) async fn run(args: Get, left: &Left) -> Result<(), Failure> {
    let mut destinations = Vec::new();
    for url in &args.urls {
        let destination = if args.recursive {
            directory(&args, url)?
        } else {
            destination(&args, url)?
        };
        destinations.push((url, destination));
    }
    all_differ(&destinations)?;
    let mut plan = plan(&args)?;
    plan.treatment.left = left.clone();
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
        urls => count(urls.len(), "file"),
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

/// Fetches all URLs, over one connection after the other if requested.
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
    let mut result = Ok(());
    for size in shares(args.reconnect, destinations.len()) {
        let rest = destinations.split_off(size);
        let fetched = fetch_all(args, plan, sessions, destinations).await;
        result = result.and(fetched);
        sessions.close().await;
        destinations = rest;
    }
    result
}

/// Number of files for each connection.
fn shares(reconnect: Option<Reconnect>, files: usize) -> Vec<usize> {
    match reconnect {
        Some(Reconnect::Each) => vec![1; files],
        Some(Reconnect::Once) if files > 1 => vec![1, files - 1],
        _ => vec![files],
    }
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
            root: Place {
                url: url.clone(),
                path,
            },
            parallel: args.parallel.unwrap_or(PARALLEL).into(),
            max_depth: args.max_depth.into(),
            dot_files: args.dot_files,
            umask: if args.preserve_permissions {
                0
            } else {
                umask()
            },
            quiet: args.quiet,
            is_live: args.live.is_shown(),
            state: state::state_directory(),
            common: Common::default(),
        };
        result = result.and(tree.fetch().await);
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
        let message = "--live and --json=events both write to the terminal; leave one out";
        return Err(Failure::usage(message));
    }
    Ok(Plan {
        method: args.method.clone(),
        fields: args.header.iter().cloned().collect(),
        secrets: args.secrets.read()?,
        treatment: Treatment {
            left: Left::default(),
            key: Arc::new(NoteKey::of_user()),
            checked: args.reach.trust.trust().checked(),
            quiet: args.quiet || parallel > 1 || args.recursive || args.live.is_shown(),
            resume: args.r#continue,
            // A server chooses the names.
            replace: !args.recursive || args.overwrite || args.r#continue,
            private: false,
            pace: args.rate.map(|rate| Arc::new(Pace::new(rate))),
            stall: args.patience.stall.limit(),
            total: Arc::default(),
            json: args
                .json
                .map(|what| Arc::new(JsonOutput::new(what, args.interval, to_stdout(args)))),
        },
        retry: Duration::from_secs(args.patience.retry_time),
        outage: {
            let is_told = (parallel > 1 || args.recursive) && !args.quiet && !args.live.is_shown();
            is_told.then(Arc::default)
        },
        // The content of a directory is on its own server.
        max_redirects: if args.recursive {
            0
        } else {
            args.max_redirects
        },
        expected: args.sha256.map(|sum| sum.0),
    })
}

/// Fetches these URLs; URLs of one server share a connection.
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
        let message = format!(
            "{url} names no file to write to; name one with -o, or fetch the directory with --recursive"
        );
        return Err(Failure::usage(message));
    };
    let directory = args.output_dir.clone().unwrap_or_default();
    if args.output_dir.is_some() && !directory.is_dir() {
        let message = format!("--output-dir {}: no such directory", directory.display());
        return Err(Failure::usage(message));
    }
    Ok(Destination::File(directory.join(PathBuf::from(name))))
}

/// Makes sure that no file or directory would replace the one of another URL.
fn all_differ(destinations: &[(&Uri, Destination)]) -> Result<(), Failure> {
    let mut seen = BTreeMap::new();
    for (url, destination) in destinations {
        if let Destination::File(path) = destination
            && let Some(other) = seen.insert(path, url)
            && other != url
        {
            return Err(Failure::usage(format_args!(
                "{other} and {url} would both be written to {}; fetch one of them alone, with -o FILE",
                path.display()
            )));
        }
    }
    // Not one is written where another has its part.
    let bytes = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
    let names: BTreeMap<_, _> = seen.iter().map(|(path, url)| (bytes(path), url)).collect();
    for (path, url) in &seen {
        let name = bytes(path);
        if let Some(other) = wholes(&name).find_map(|whole| names.get(whole)) {
            return Err(Failure::usage(format_args!(
                "{url} would be written to {}, where the part of {other} is kept meanwhile; fetch one of \
                 them alone",
                path.display()
            )));
        }
    }
    Ok(())
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
    let is_named = args.output_dir.is_some();
    let parent = args.output_dir.clone().unwrap_or_else(|| ".".into());
    if !parent.is_dir() {
        let message = format!("--output-dir {}: no such directory", parent.display());
        return Err(Failure::usage(message));
    }
    // The root of a server has no name of its own.
    let host = url.host().map(|host| host.trim_matches(['[', ']']));
    let host = host.filter(|host| !is_named && is_plain(host));
    Ok(Destination::File(match (name_of(path), host) {
        (Some(name), _) => parent.join(name),
        (None, Some(host)) => parent.join(host),
        (None, None) => parent,
    }))
}

/// The last part of a URL.
fn name(url: &Uri) -> Option<OsString> {
    name_of(url.path())
}

/// The last part of a path, decoded unless it would no longer be one plain name.
fn name_of(path: &str) -> Option<OsString> {
    let last = path.rsplit('/').next().unwrap_or_default();
    let decoded = percent_decode(last).and_then(|name| match String::from_utf8(name) {
        Ok(name) => is_plain(&name).then(|| name.into()),
        Err(error) => of_bytes(error.into_bytes()),
    });
    decoded.or_else(|| is_plain(last).then(|| last.into()))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use clap::Parser;

    use super::*;
    use crate::options::Alpn;
    use crate::testing::{Crowd, soon};

    #[test]
    fn names_of_files() {
        for (url, expected) in [
            ("https://host/a/with%20space.txt?x", Some("with space.txt")),
            ("https://host/%c3%a4", Some("ä")),
            // Decoded, the name would be a path.
            ("https://host/..%2fsecret", Some("..%2fsecret")),
            ("https://host/%2e%2e", Some("%2e%2e")),
            ("https://host/a%0ab", Some("a%0ab")),
            ("https://host/a/", None),
            ("https://host", None),
            ("https://host/..", None),
        ] {
            let name = name(&url.parse().unwrap());
            assert_eq!(name.as_deref(), expected.map(OsStr::new), "{url}");
        }
        // As `get -r` names a file that is not UTF-8.
        #[cfg(unix)]
        {
            use std::os::unix::ffi::OsStrExt as _;
            for (url, expected) in [
                ("https://host/a/f%ff", &b"f\xff"[..]),
                ("https://host/%ff%0a", b"%ff%0a"),
                ("https://host/%ff%2f..", b"%ff%2f.."),
            ] {
                let name = name(&url.parse().unwrap()).unwrap();
                assert_eq!(name.as_bytes(), expected, "{url}");
            }
        }
    }

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        get: Get,
    }

    fn get(arguments: &[&str]) -> Get {
        let arguments = ["get"].iter().chain(arguments);
        Line::try_parse_from(arguments).unwrap().get
    }

    const ONE: &str = "https://host/a";
    const TWO: &str = "https://host/b";

    /// Where the first URL's file goes, or why nowhere.
    fn goes(arguments: &[&str], find: fn(&Get, &Uri) -> Result<Destination, Failure>) -> String {
        let get = get(arguments);
        match find(&get, &get.urls[0]) {
            Ok(Destination::File(path)) => path.display().to_string(),
            Ok(other) => format!("{other:?}"),
            Err(failure) => failure.message().to_owned(),
        }
    }

    #[test]
    fn where_files_go() {
        let there = tempfile::tempdir().unwrap();
        let there = there.path().to_str().unwrap();
        let within = format!("{there}/a");
        for (arguments, expected) in [
            (&[ONE][..], "a"),
            (&[ONE, "-O"], "a"),
            (&[ONE, "-o", "x"], "x"),
            (&[ONE, "-o", "-"], "Stdout"),
            (&[ONE, TWO, "-o", "-"], "Stdout"),
            (&[ONE, TWO], "a"),
            (&[ONE, "--output-dir", there], &within),
            // What a HEAD shows is for people, unless they name a file.
            (&[ONE, "-X", "HEAD"], "Stdout"),
            (&[ONE, "-X", "HEAD", "-o", "x"], "x"),
            (&[ONE, "-X", "HEAD", "-O"], "a"),
            (&[ONE, "-X", "HEAD", "--output-dir", there], &within),
        ] {
            assert_eq!(goes(arguments, destination), expected, "{arguments:?}");
        }
        for (arguments, told) in [
            (
                &[ONE, TWO, "-o", "x"][..],
                "-o names one file, but there are several URLs",
            ),
            (&["https://host/"], "names no file to write to"),
            (
                &[ONE, "--output-dir", "/nowhere"],
                "/nowhere: no such directory",
            ),
        ] {
            let goes = goes(arguments, destination);
            assert!(goes.contains(told), "{goes}");
        }
    }

    #[test]
    fn no_file_replaces_the_one_of_another_url() {
        let told = |urls: &[&str]| {
            let get = get(urls);
            let all = get.urls.iter();
            let all: Vec<_> = all
                .map(|url| (url, destination(&get, url).unwrap()))
                .collect();
            all_differ(&all)
                .err()
                .map(|failure| failure.message().to_owned())
        };
        assert_eq!(told(&[ONE, TWO]), None);
        // The same file, once for each connection.
        assert_eq!(told(&[ONE, TWO, ONE]), None);
        assert_eq!(told(&[ONE, "https://host/x/a", "-o", "-"]), None);
        for other in ["https://host/x/a", "https://other/a", "https://host/%61"] {
            let told = told(&[ONE, TWO, other]).unwrap();
            let expected = format!("{ONE} and {other} would both be written to a; ");
            assert!(told.starts_with(&expected), "{told}");
        }
        for part in ["a.part", "a.part.json", "a.3.part"] {
            let other = format!("https://host/{part}");
            let told = told(&[&other, ONE]).unwrap();
            let expected = format!("{other} would be written to {part}, where the part of {ONE} ");
            assert!(told.starts_with(&expected), "{told}");
        }
    }

    #[test]
    fn where_directories_go() {
        let there = tempfile::tempdir().unwrap();
        let there = there.path().to_str().unwrap();
        let within = format!("{there}/d");
        const TREE: &str = "https://host/c/d/";
        for (arguments, expected) in [
            (&["-r", TREE][..], "./d"),
            (&["-r", "https://host:4433/"], "./host"),
            (&["-r", "https://[::1]/"], "./::1"),
            (&["-r", TREE, "-o", "x"], "x"),
            (&["-r", TREE, "--output-dir", there], &within),
            (&["-r", "https://host/", "--output-dir", there], there),
        ] {
            assert_eq!(goes(arguments, directory), expected, "{arguments:?}");
        }
        for (arguments, told) in [
            (&["-r", ONE][..], "end it with a slash"),
            (
                &["-r", TREE, TREE, "-o", "x"],
                "-o names one directory, but there are several",
            ),
            (&["-r", TREE, "-o", "-"], "cannot go to standard output"),
            (
                &["-r", TREE, "--output-dir", "/nowhere"],
                "/nowhere: no such directory",
            ),
        ] {
            let goes = goes(arguments, directory);
            assert!(goes.contains(told), "{goes}");
        }
    }

    #[test]
    fn connections_share_the_files() {
        for (reconnect, shares_of) in [
            (None, [&[1][..], &[2], &[5]]),
            (Some(Reconnect::Once), [&[1], &[1, 1], &[1, 4]]),
            (Some(Reconnect::Each), [&[1], &[1, 1], &[1, 1, 1, 1, 1]]),
        ] {
            for (files, expected) in [1, 2, 5].into_iter().zip(shares_of) {
                assert_eq!(shares(reconnect, files), expected, "{reconnect:?}");
            }
        }
    }

    #[test]
    fn get_plans_downloads() {
        let sum = "ab".repeat(32);
        let plain = plan(&get(&[ONE])).unwrap();
        assert!(!plain.treatment.quiet && !plain.treatment.resume);
        assert!(plain.treatment.json.is_none() && plain.treatment.pace.is_none());
        assert_eq!((plain.max_redirects, plain.expected), (10, None));
        assert_eq!(plain.retry, Duration::from_secs(120));
        assert_eq!(plain.treatment.stall, Duration::from_secs(60));
        // Several at once would overwrite each other's bars.
        for (arguments, is_quiet) in [
            (&[ONE, "-q"][..], true),
            (&[ONE, TWO, "--parallel", "2"], true),
            (&[ONE, TWO, "--parallel", "1"], false),
            (&["-r", "https://host/"], true),
            (&[ONE, TWO], false),
        ] {
            let plan = plan(&get(arguments)).unwrap();
            assert_eq!(plan.treatment.quiet, is_quiet, "{arguments:?}");
        }
        let more = [
            "--sha256",
            &sum,
            "--continue",
            "--rate",
            "8M",
            "--retry-time",
            "3",
        ];
        let more = [&more[..], &["--max-redirects", "5", "--json", ONE]].concat();
        let more = plan(&get(&more)).unwrap();
        assert_eq!((more.expected, more.max_redirects), (Some([0xab; 32]), 5));
        assert_eq!(more.retry, Duration::from_secs(3));
        assert!(more.treatment.resume && more.treatment.json.is_some());
        assert_eq!(more.treatment.pace.unwrap().piece(), 10_000);
        // The content of a directory is on its own server.
        let tree = plan(&get(&["-r", "https://host/"])).unwrap();
        assert_eq!(tree.max_redirects, 0);

        let refused = |arguments: &[&str]| {
            let failure = plan(&get(arguments)).err();
            failure.map(|failure| failure.message().to_owned())
        };
        let several = refused(&[ONE, TWO, "--sha256", &sum]);
        assert!(several.unwrap().starts_with("--sha256 is of one file"));
        let mixed = refused(&[ONE, TWO, "-o", "-", "--parallel", "2"]);
        assert!(mixed.unwrap().contains("would be mixed on standard output"));
        for fine in [
            &[ONE, TWO, "-o", "-"][..],
            &[ONE, TWO, "-o", "-", "--parallel", "1"],
            &[ONE, "-o", "-", "--parallel", "2"],
            &[ONE, TWO, "--parallel", "2"],
            // Without a terminal, the view is not shown.
            &[ONE, "--live", "--json=events"],
        ] {
            assert_eq!(refused(fine), None, "{fine:?}");
        }
    }

    /// The requested number of files: 64 for directories, one for named files.
    #[tokio::test]
    async fn parallel_limits_simultaneous_downloads() {
        let there = tempfile::tempdir().unwrap();
        let into = [
            "--insecure",
            "-q",
            "--output-dir",
            there.path().to_str().unwrap(),
        ];
        for (files, options, most) in [
            (70, &["-r"][..], 64),
            // Files of the run before are in the way.
            (6, &["-r", "--overwrite", "--parallel", "2"], 2),
            (3, &[], 1),
            (6, &["--parallel", "3"], 3),
        ] {
            let crowd = Crowd::new(files, most);
            let served = crowd.serve();
            let urls: Vec<_> = if options.contains(&"-r") {
                vec![served.url("/").to_string()]
            } else {
                (0..files)
                    .map(|name| served.url(&format!("/{name}")).to_string())
                    .collect()
            };
            let urls = urls.iter().map(String::as_str);
            let arguments: Vec<_> = into
                .into_iter()
                .chain(options.iter().copied())
                .chain(urls)
                .collect();
            let args = get(&arguments);
            let purpose = Purpose::look(&args.urls[0], &[Alpn::H3]);
            let sessions = Sessions::new(&args.reach, purpose).unwrap().that_forget();
            let goes = if args.recursive {
                directory
            } else {
                destination
            };
            let all = args.urls.iter().map(|url| (url, goes(&args, url).unwrap()));
            let plan = plan(&args).unwrap();
            let fetched = fetch_in_turn(&args, &plan, &sessions, all.collect());
            soon(fetched).await.unwrap();
            assert_eq!(crowd.most_open(), most, "{options:?}");
        }
    }
}
