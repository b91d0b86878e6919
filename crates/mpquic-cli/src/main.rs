//! The `mpquic` tool.

// The tool prints through `screen`, because `print!` panics on a closed output.
#![warn(clippy::print_stderr, clippy::print_stdout)]

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::CommandFactory;
use mpquic_lab::Policies;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::cli::{Cli, Command, List};
use crate::get::left::Left;
use crate::process::failure::{Cause, Failure};
use crate::process::signals::Signals;
use crate::proxy::args::{Proxy, ProxyServer};
use crate::put::remembered::Unfinished;

mod cli;
mod client;
mod demo;
mod files;
mod get;
mod options;
mod pages;
mod paths;
mod perf;
mod process;
mod proxy;
mod put;
mod qlog;
mod rate;
mod record;
mod report;
mod serve;
#[cfg(test)]
mod testing;
mod text;

/// Time for an interrupted command to close its connections.
const FAREWELL: Duration = Duration::from_millis(100);

fn main() -> ExitCode {
    process::failure::set_command(cli::command_in(std::env::args()));
    let cli = match cli::config_file::parse() {
        Ok(cli) => cli,
        Err(failure) => return failure.report(),
    };
    let default_log = match &cli.command {
        // Log lines would cover the live view.
        Command::Serve(args) if args.live.is_shown() => Targets::new(),
        Command::Serve(_) | Command::Proxy(_) => Targets::new()
            .with_default(LevelFilter::WARN)
            .with_target("mpquic", LevelFilter::INFO),
        _ => Targets::new().with_default(LevelFilter::ERROR),
    };
    let wanted = std::env::var("RUST_LOG");
    let wanted = wanted.ok().and_then(|text| text.parse().ok());
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        // An error of the log has no place to be reported.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_target(false);
    tracing_subscriber::registry()
        .with(lines)
        .with(wanted.unwrap_or(default_log))
        .init();
    if let Some(told) = process::clock::warning(process::clock::time_of_day()) {
        process::screen::say(told);
    }
    match run(cli.command) {
        Ok(()) if process::screen::has_failed() => ExitCode::from(Cause::File as u8),
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    if matches!(command, Command::Serve(_) | Command::Proxy(_)) {
        process::descriptors::raise();
    }
    let runtime = tokio::runtime::Runtime::new().map_err(Failure::other)?;
    let result = runtime.block_on(async {
        process::signals::survive_large_files();
        match command {
            Command::Serve(args) => serve::run(args).await,
            Command::Get(args) => {
                let left = Left::default();
                match until_interrupted(get::run(args, &left)).await {
                    Err(failure) => Err(left.told_with(failure).await),
                    done => done,
                }
            }
            Command::Put(args) => {
                let unfinished = Unfinished::default();
                let put = until_interrupted(put::run(args, &unfinished)).await;
                put.map_err(|failure| unfinished.told_with(failure))
            }
            Command::Proxy(Proxy::Server(args)) => {
                proxy::server::run(*args, proxy_server_again).await
            }
            Command::Proxy(Proxy::Client(args)) => until_stopped(proxy::client::run(*args)).await,
            Command::Proxy(Proxy::Status(args)) if args.live => {
                until_stopped(proxy::status_command::run(&args)).await
            }
            Command::Proxy(Proxy::Status(args)) => {
                until_interrupted(proxy::status_command::run(&args)).await
            }
            Command::Proxy(Proxy::Ctl(args)) => proxy::ctl::run(&args),
            Command::Proxy(Proxy::User(command)) => proxy::users::run(&command),
            #[cfg(target_os = "linux")]
            Command::Proxy(Proxy::Down(args)) => proxy::tun::down(&args),
            Command::Paths(args) if args.watch.is_some() => until_stopped(paths::run(args)).await,
            Command::Paths(args) => until_interrupted(paths::run(args)).await,
            Command::Perf(args) => until_interrupted(perf::run(args)).await,
            Command::Demo(args) => until_interrupted(demo::run(args)).await,
            Command::Record(args) => until_interrupted(record::run(args)).await,
            Command::Advise(args) => Ok(args.run(&Policies::built_in())?),
            Command::Qlog(args) => qlog::run(&args),
            Command::Lab(args) => Ok(args.run(&Policies::built_in())?),
            Command::Completions(args) => cli::manual::completions(&args, Cli::command()),
            Command::Man(args) => cli::manual::man(&args, Cli::command()),
            Command::Schedulers(how) => {
                list(
                    how,
                    mpquic_sched::list()
                        .iter()
                        .map(|s| (s.name, s.description, s.source)),
                );
                Ok(())
            }
            Command::Controllers(how) => {
                list(
                    how,
                    mpquic_cc::list()
                        .iter()
                        .map(|c| (c.name, c.description, c.source)),
                );
                Ok(())
            }
        }
    });
    // The tool does not wait for a thread that still reads a file.
    runtime.shutdown_background();
    result
}

/// The options of this `mpquic proxy server`, with the current content of its file.
fn proxy_server_again() -> Result<ProxyServer, Failure> {
    match cli::config_file::parse_again()?.command {
        Command::Proxy(Proxy::Server(args)) => Ok(*args),
        _ => Err(Failure::other("another command")),
    }
}

/// Runs a command until it is done or the user interrupts it. Dropping the command cleans up.
async fn until_interrupted(
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let mut signals = Signals::new();
    tokio::select! {
        result = command => return result,
        () = signals.next() => {}
    }
    // The close reaches the servers, so they need not wait for a timeout.
    tokio::time::sleep(FAREWELL).await;
    Err(Failure::interrupted())
}

/// Runs a command that has no end of its own. A signal ends the command as the user wants, so it is
/// no failure.
async fn until_stopped(command: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    match until_interrupted(command).await {
        Err(failure) if failure == Failure::interrupted() => Ok(()),
        result => result,
    }
}

fn list(how: List, rows: impl Iterator<Item = (&'static str, &'static str, &'static str)> + Clone) {
    let width = rows.clone().map(|(name, ..)| name.len()).max();
    let width = width.unwrap_or(0);
    for (name, description, source) in rows {
        if how.json {
            text::json::print(
                &serde_json::json!({ "name": name, "description": description, "source": source }),
            )
        } else {
            process::screen::print(format_args!("{name:width$}  {description} [{source}]"))
        }
    }
}
