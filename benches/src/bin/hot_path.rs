//! Runs one hot path of the protocol in memory, for programs that look at it from outside: profilers
//! and `benches/instructions`, which counts instructions.
//!
//! ```text
//! cargo run --profile bench -p mpquic-benches --bin hot_path -- bulk|datagrams|requests|handshake \
//!     null|tls COUNT
//! ```

use std::process::ExitCode;

use mpquic_benches::{Crypto, Pipe};
use mpquic_core::config::TransportOptions;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [what, crypto, count] = words[..] else {
        eprintln!("three words, please: what, null or tls, and how often");
        return ExitCode::FAILURE;
    };
    let crypto = match crypto {
        "tls" => Crypto::Tls,
        _ => Crypto::Null,
    };
    let Ok(count) = count.parse() else {
        eprintln!("no number: {count}");
        return ExitCode::FAILURE;
    };
    run(what, crypto, count)
}

fn run(what: &str, crypto: Crypto, count: u64) -> ExitCode {
    let pipe = || {
        let transport = TransportOptions::new(mpquic_sched::default(), mpquic_cc::default());
        Pipe::new(crypto, 1, transport)
    };
    match what {
        // MiB
        "bulk" => pipe().transfer(count << 20),
        "datagrams" => pipe().datagrams(count, 1000),
        "requests" => pipe().requests(count, 1024, 50),
        "handshake" => (0..count).for_each(|_| drop(pipe())),
        _ => {
            eprintln!("unknown: {what}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
