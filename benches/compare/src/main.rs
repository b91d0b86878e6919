//! Runs mpquic next to other QUIC stacks: the same workloads, TLS, windows, congestion controller
//! and buffers; server and client are processes of their own on CPUs of their own.
//!
//! ```text
//! cargo run --release --manifest-path benches/compare/Cargo.toml -- --rounds 5
//! ```
//!
//! Rounds alternate between the contestants, so that whatever else the machine does hits all.

use std::fs;
use std::process::Command;

use clap::{Parser, ValueEnum};
use compare_peer::{Options, Result, Workload, tls};

use contestant::Contestant;
use measure::{Outcome, Placement, measure};
use table::Row;

mod contestant;
mod measure;
mod table;

#[derive(Debug, Parser)]
#[command(about = "mpquic next to other QUIC stacks, on this machine")]
struct Arguments {
    /// Rounds of all contestants
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Workloads, separated by commas [default: all]
    #[arg(long, value_delimiter = ',')]
    workload: Vec<Workload>,
    /// Contestants, separated by commas
    #[arg(long, value_delimiter = ',', default_values = ["mpquic", "quinn"])]
    peer: Vec<Contestant>,
    /// The contestant that ratios are to
    #[arg(long, default_value = "quinn")]
    reference: Contestant,
    /// Run the programs that were built before
    #[arg(long)]
    no_build: bool,
    #[command(flatten)]
    placement: Placement,
    #[command(flatten)]
    options: Options,
}

fn main() -> Result<()> {
    let mut arguments = Arguments::parse();
    if arguments.workload.is_empty() {
        arguments.workload = Workload::value_variants().to_vec();
    }
    if !arguments.no_build {
        build(&arguments.peer)?;
    }
    arguments.placement.prepare()?;
    let directory = std::env::temp_dir().join(format!("mpquic-compare-{}", std::process::id()));
    arguments.options.credentials.clone_from(&directory);
    fs::create_dir_all(&directory)?;
    let result = write_credentials(&arguments.options).and_then(|()| compare(&arguments));
    fs::remove_dir_all(&directory)?;
    result
}

/// Builds the programs of the contestants, next to this one.
fn build(contestants: &[Contestant]) -> Result<()> {
    let mut cargo = Command::new(option_env!("CARGO").unwrap_or("cargo"));
    cargo.args(["build", "--release", "--locked", "--manifest-path"]);
    cargo.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
    for contestant in contestants {
        cargo.args(["--package", contestant.package()]);
    }
    if cargo.status()?.success() {
        Ok(())
    } else {
        Err("the contestants cannot be built".into())
    }
}

/// A certificate with an ECDSA key on P-256, which every stack can use.
fn write_credentials(options: &Options) -> Result<()> {
    let names = vec![tls::SERVER_NAME.to_owned()];
    let made = rcgen::generate_simple_self_signed(names)?;
    fs::write(options.credentials.join(tls::CERTIFICATE), made.cert.pem())?;
    fs::write(
        options.credentials.join(tls::KEY),
        made.signing_key.serialize_pem(),
    )?;
    Ok(())
}

fn compare(arguments: &Arguments) -> Result<()> {
    let mut tables = Vec::new();
    for workload in &arguments.workload {
        let rows = rounds(arguments, *workload);
        let table = table::table(*workload, &rows, arguments.reference);
        println!("\n{table}");
        tables.push(table);
    }
    if tables.len() > 1 {
        println!("\n{}", tables.join("\n"));
    }
    Ok(())
}

/// All rounds of a workload. A run that fails is counted, and the others go on.
fn rounds(arguments: &Arguments, workload: Workload) -> Vec<Row> {
    let Arguments {
        placement, options, ..
    } = arguments;
    let mut rows = Vec::from_iter(arguments.peer.iter().map(|&contestant| Row {
        contestant,
        rounds: Vec::new(),
        lacks: None,
    }));
    for round in 1..=arguments.rounds {
        for row in rows.iter_mut().filter(|row| row.lacks.is_none()) {
            let contestant = row.contestant;
            match measure(contestant, workload, options, placement) {
                Ok(Outcome::Sample(sample)) => {
                    let described = table::describe(workload, &sample);
                    println!("{workload} {round}: {contestant}: {described}");
                    row.rounds.push(Some(sample));
                }
                Ok(Outcome::Lacks(reason)) => row.lacks = Some(reason),
                Err(failure) => {
                    println!("{workload} {round}: {contestant}: failed: {failure}");
                    row.rounds.push(None);
                }
            }
        }
    }
    rows
}
