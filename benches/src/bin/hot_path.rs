//! Runs one hot path of the protocol in memory, for profilers and for `.ci/instructions`, which
//! counts instructions.
//!
//! WHAT is bulk, two-paths, auto (two paths with that scheduler), losses, reordering, paced (MiB of
//! a stream), datagrams, requests or handshake.
//!
//! ```text
//! cargo run --profile bench -p mpquic-benches --bin hot_path -- WHAT null|tls COUNT
//! ```

use std::process::ExitCode;

use mpquic_benches::{Crypto, Pipe};

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
    let pipe = || Pipe::new(crypto, 1, mpquic_benches::unpaced());
    match what {
        // MiB
        "bulk" => pipe().transfer(count << 20),
        "two-paths" => Pipe::new(crypto, 2, mpquic_benches::unpaced()).transfer(count << 20),
        "auto" => {
            let transport = mpquic_benches::unpaced_with("auto");
            Pipe::new(crypto, 2, transport).transfer(count << 20);
        }
        "losses" => {
            let mut pipe = pipe();
            pipe.lose(10);
            pipe.transfer(count << 20);
        }
        "reordering" => {
            let mut pipe = pipe();
            pipe.reorder(10);
            pipe.transfer(count << 20);
        }
        "paced" => {
            let mut transport = mpquic_benches::unpaced();
            transport.pacing = true;
            Pipe::new(crypto, 1, transport).transfer(count << 20);
        }
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
