//! What the machine can do without QUIC: UDP with and without encryption, encryption alone, TCP.

use compare_peer::{Options, Program, Result, Role, Workload};

use aead::{Aead, AwsLc, Ring};

mod aead;
mod tcp;
mod udp;

fn lacks(workload: Workload, _: &Options) -> Option<&'static str> {
    (workload != Workload::Bulk).then_some("a limit of downloads only")
}

fn main() -> Result<()> {
    let program = Program::parse(lacks);
    match program.options.variant.as_deref() {
        Some("udp") => udp_run(&program, None::<Ring>),
        Some("udp-ring") => udp_run(&program, Some(Ring::new()?)),
        Some("udp-aws-lc") => udp_run(&program, Some(AwsLc::new()?)),
        Some("seal-ring") => aead::run(&program, &Ring::new()?, aead::seal),
        Some("seal-aws-lc") => aead::run(&program, &AwsLc::new()?, aead::seal),
        Some("open-ring") => aead::run(&program, &Ring::new()?, aead::open),
        Some("open-aws-lc") => aead::run(&program, &AwsLc::new()?, aead::open),
        Some("tcp") => tcp::run(&program, tcp::Plain),
        Some("tcp-tls") => tcp::run(&program, tcp::Tls::new(&program.options)?),
        _ => Err("no such variant".into()),
    }
}

fn udp_run(program: &Program, aead: Option<impl Aead>) -> Result<()> {
    match program.role {
        Role::Server => udp::serve(&program.options, aead),
        Role::Client { port } => udp::fetch(&program.options, port, aead),
    }
}
