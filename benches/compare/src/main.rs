//! Runs mpquic, other QUIC stacks and limits of the machine with the same workloads, TLS, windows,
//! congestion controller and buffers. Server and client are processes of their own on CPUs of their
//! own.
//!
//! ```text
//! cargo run --release --manifest-path benches/compare/Cargo.toml -- --peer all
//! ```
//!
//! Rounds alternate between the contestants, so that other work of the machine slows all of them.

use std::fs;
use std::process::Command;

use clap::{Parser, ValueEnum};
use compare_peer::{Options, Result, tls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use contestant::Contestant;
use measure::{Outcome, Placement, measure};
use subject::Subject;
use table::Row;

mod contestant;
mod measure;
mod subject;
mod table;

#[derive(Debug, Parser)]
#[command(about = "mpquic next to other QUIC stacks, on this machine")]
struct Arguments {
    /// Rounds of all contestants
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Workloads, separated by commas [default: all]
    #[arg(long, value_delimiter = ',')]
    workload: Vec<Subject>,
    /// Contestants, separated by commas; `all` for every stack and limit
    #[arg(long, value_delimiter = ',', default_values = ["mpquic", "quinn"])]
    peer: Vec<String>,
    /// The contestant to which ratios relate
    #[arg(long, default_value = "quinn")]
    reference: Contestant,
    /// Run the programs of an earlier build
    #[arg(long)]
    no_build: bool,
    #[command(flatten)]
    placement: Placement,
    #[command(flatten)]
    options: Options,
}

impl Arguments {
    fn subjects(&self) -> &[Subject] {
        if self.workload.is_empty() {
            Subject::value_variants()
        } else {
            &self.workload
        }
    }

    fn contestants(&self) -> Result<Vec<Contestant>> {
        if self.peer.iter().any(|name| name == "all") {
            return Ok(Contestant::value_variants().to_vec());
        }
        let peers = self
            .peer
            .iter()
            .map(|name| Contestant::from_str(name, true));
        Ok(peers.collect::<Result<_, _>>()?)
    }
}

fn main() -> Result<()> {
    let mut arguments = Arguments::parse();
    let contestants = arguments.contestants()?;
    let broken = if arguments.no_build {
        Vec::new()
    } else {
        build(&contestants)?
    };
    arguments.placement.prepare()?;
    let directory = std::env::temp_dir().join(format!("mpquic-compare-{}", std::process::id()));
    arguments.options.credentials.clone_from(&directory);
    fs::create_dir_all(&directory)?;
    let written = write_credentials(&arguments.options);
    if written.is_ok() {
        for subject in arguments.subjects() {
            let rows = subject.rows(&contestants).into_iter();
            let mut rows = Vec::from_iter(rows.map(|(who, what)| Row::new(who, what)));
            for row in &mut rows {
                let broken = broken.contains(&row.contestant.package());
                row.lacks = broken.then(|| "does not build here".to_owned());
            }
            rounds(*subject, &mut rows, &arguments);
            println!("{}", table::table(*subject, &rows, arguments.reference));
        }
    }
    fs::remove_dir_all(&directory)?;
    written
}

/// Builds the contestants' programs beside this program, and returns the programs that cannot be
/// built. Each program is built alone, so that its features of a library do not change the other
/// programs.
fn build(contestants: &[Contestant]) -> Result<Vec<&'static str>> {
    let mut failed = Vec::new();
    let mut packages = Vec::from_iter(contestants.iter().map(|who| who.package()));
    packages.dedup();
    for package in packages {
        let mut cargo = Command::new(option_env!("CARGO").unwrap_or("cargo"));
        cargo.args(["build", "--release", "--locked", "--manifest-path"]);
        cargo.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        if !cargo.args(["--package", package]).status()?.success() {
            failed.push(package);
        }
    }
    Ok(failed)
}

/// A certificate by an authority that clients trust, both with ECDSA keys on P-256, which every
/// stack can use. A self-signed certificate would favour stacks that do not check its own
/// signature.
fn write_credentials(options: &Options) -> Result<()> {
    let mut parameters = CertificateParams::new(Vec::new())?;
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters
        .distinguished_name
        .push(DnType::CommonName, "authority");
    let authority = CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let parameters = CertificateParams::new(vec![tls::SERVER_NAME.to_owned()])?;
    let certificate = parameters.signed_by(&key, &authority)?;
    for (name, contents) in [
        (tls::AUTHORITY, authority.pem()),
        (tls::CERTIFICATE, certificate.pem()),
        (tls::KEY, key.serialize_pem()),
    ] {
        fs::write(options.credentials.join(name), contents)?;
    }
    Ok(())
}

/// Runs all rounds of a table. A failed run is counted, and the other runs go on.
fn rounds(subject: Subject, rows: &mut [Row], arguments: &Arguments) {
    for round in 1..=arguments.rounds {
        // The order changes with each round, so that no contestant always follows the same other
        // one.
        rows.reverse();
        for row in rows.iter_mut().filter(|row| row.lacks.is_none()) {
            let (who, what) = (row.contestant, row.workload);
            match measure(who, what, &arguments.options, &arguments.placement) {
                Ok(Outcome::Sample(sample)) => {
                    let described = table::describe(subject, &sample);
                    eprintln!("{what} {round}: {who}: {described}");
                    row.rounds.push(Some(sample));
                }
                Ok(Outcome::Lacks(reason)) => row.lacks = Some(reason),
                Err(failure) => {
                    eprintln!("{what} {round}: {who}: failed: {failure}");
                    row.rounds.push(None);
                }
            }
        }
    }
    if arguments.rounds % 2 == 1 {
        rows.reverse();
    }
}
