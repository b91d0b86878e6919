//! Downloads a file over a list of paths and prints what each path carried, over time, and how
//! much faster than real time the simulation ran.
//!
//! ```text
//! cargo run --profile bench -p mpquic-sim --example throughput -- [options] [PATH...]
//!     PATH              rate in Mbit/s, one-way delay in ms, loss in per cent: 95,10,0.1
//!                       (default: 95,10,0 95,10,0)
//!     --size MB         bytes to transfer (default 100)
//!     --scheduler NAME  as in mpquic-sched (default lrf)
//!     --cc NAME         as in mpquic-cc
//!     --upload          from the client to the server
//!     --tls             real cryptography
//!     --seed N          (default 1)
//!     --interval MS     also print the Mbit/s of each path per interval, as CSV
//!     --unchecked       do not check invariants on the way
//! ```

use std::process::ExitCode;
use std::time::{Duration, Instant};

use mpquic_sim::{LinkConfig, Pair, Setup, Side, Topology};

struct Options {
    paths: Vec<LinkConfig>,
    size: u64,
    from: Side,
    interval: Option<Duration>,
    setup: Setup,
}

/// Reads `rate,delay,loss`.
fn parse_path(text: &str) -> Result<LinkConfig, String> {
    let numbers: Result<Vec<f64>, _> = text.split(',').map(str::parse).collect();
    match numbers.as_deref() {
        Ok([rate, delay]) => Ok(LinkConfig::new(*rate, Duration::from_secs_f64(delay / 1e3))),
        Ok([rate, delay, loss]) => {
            let link = LinkConfig::new(*rate, Duration::from_secs_f64(delay / 1e3));
            Ok(link.loss(loss / 100.0))
        }
        _ => Err(format!("`{text}` is not RATE,DELAY or RATE,DELAY,LOSS")),
    }
}

fn parse(arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut arguments = arguments;
    let mut options = Options {
        paths: Vec::new(),
        size: 100_000_000,
        from: Side::Server,
        interval: None,
        setup: Setup::new(),
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        let number = |text: String| text.parse::<f64>().map_err(|error| error.to_string());
        match argument.as_str() {
            "--size" => options.size = (number(value()?)? * 1e6) as u64,
            "--seed" => options.setup.seed = number(value()?)? as u64,
            "--interval" => {
                options.interval = Some(Duration::from_secs_f64(number(value()?)? / 1e3));
            }
            "--scheduler" => {
                let scheduler = mpquic_sched::by_name(&value()?).map_err(|e| e.to_string())?;
                let setup = options.setup;
                options.setup = setup.transport(|t| t.scheduler = scheduler.clone());
            }
            "--cc" => {
                let controller = mpquic_cc::by_name(&value()?).map_err(|e| e.to_string())?;
                let setup = options.setup;
                options.setup = setup.transport(|t| t.controller = controller.clone());
            }
            "--upload" => options.from = Side::Client,
            "--tls" => options.setup = options.setup.tls(),
            "--unchecked" => options.setup.checks = false,
            path => options.paths.push(parse_path(path)?),
        }
    }
    if options.paths.is_empty() {
        let link = LinkConfig::new(95.0, Duration::from_millis(10));
        options.paths = vec![link.clone(), link];
    }
    Ok(options)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the speed of the simulation is measured in real time"
)]
fn real_time() -> Instant {
    Instant::now()
}

fn run(options: Options) {
    let mut topology = Topology::new();
    for (index, link) in options.paths.iter().enumerate() {
        topology = topology.path(&format!("path {index}"), link.clone());
    }
    let started = real_time();
    let mut pair = Pair::connected(&topology, options.setup);
    pair.open_all_paths();
    let opened = pair.elapsed();
    if let Some(interval) = options.interval {
        pair.network.trace(interval);
    }
    let before: Vec<_> = carried(&pair, options.from);
    let took = pair.transfer(options.from, options.size, Duration::from_secs(3600));
    let real = started.elapsed();

    if let Some(interval) = options.interval {
        print_series(&pair, options.from, interval);
    }
    for (index, (path, before)) in pair.links().iter().zip(before).enumerate() {
        let links = path.links();
        let link = pair.network.link(links[direction(options.from)]);
        let counters = link.counters();
        println!(
            "{}: {:.2} Mbit/s of {:.0}, queue delay {:.1} ms mean, {:.1} ms at most, \
             dropped {} by the queue, {} at random",
            path.name,
            mbit(counters.bytes_out - before, took),
            options.paths[index]
                .rate
                .map_or(f64::INFINITY, |rate| rate / 1e6),
            counters.mean_queue_delay().as_secs_f64() * 1e3,
            counters.max_queue_delay.as_secs_f64() * 1e3,
            counters.dropped_queue,
            counters.dropped_loss,
        );
    }
    println!(
        "{:.1} MB in {:.3} s: {:.2} Mbit/s",
        options.size as f64 / 1e6,
        took.as_secs_f64(),
        mbit(options.size, took)
    );
    println!(
        "simulated {:.3} s in {:.3} s: {:.1} times real time, {} events",
        (opened + took).as_secs_f64(),
        real.as_secs_f64(),
        (opened + took).as_secs_f64() / real.as_secs_f64(),
        pair.steps()
    );
}

fn direction(from: Side) -> usize {
    usize::from(from.is_server())
}

fn carried(pair: &Pair, from: Side) -> Vec<u64> {
    let paths = pair.links().iter();
    let links = paths.map(|path| path.links()[direction(from)]);
    links
        .map(|link| pair.network.link(link).counters().bytes_out)
        .collect()
}

fn mbit(bytes: u64, time: Duration) -> f64 {
    bytes as f64 * 8.0 / 1e6 / time.as_secs_f64()
}

fn print_series(pair: &Pair, from: Side, interval: Duration) {
    let names: Vec<_> = pair.links().iter().map(|path| path.name.clone()).collect();
    println!("seconds,{}", names.join(","));
    let series: Vec<_> = pair
        .links()
        .iter()
        .map(|path| {
            let link = pair.network.link(path.links()[direction(from)]);
            link.counters().bytes_per_interval()
        })
        .collect();
    let rows = series.iter().map(|bytes| bytes.len()).max().unwrap_or(0);
    for row in 0..rows {
        let values: Vec<_> = series
            .iter()
            .map(|bytes| {
                let bytes = bytes.get(row).copied().unwrap_or(0);
                format!("{:.3}", mbit(bytes, interval))
            })
            .collect();
        let time = interval.as_secs_f64() * row as f64;
        println!("{time:.3},{}", values.join(","));
    }
}

fn main() -> ExitCode {
    match parse(std::env::args().skip(1)) {
        Ok(options) => {
            run(options);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}
