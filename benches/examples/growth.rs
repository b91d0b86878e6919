//! The cost of a byte as limits, streams, connections and losses grow: CPU time of both sides
//! together, in memory, with encryption.
//!
//! ```text
//! cargo run --profile bench -p mpquic-benches --example growth -- [WORD]
//! ```
//!
//! With a word, only tables with this word in their name. A row shows the least of several
//! measurements, and its ratio to the first row of the table.

use cpu_time::ThreadTime;
use mpquic_benches::{Crypto, Pipe, SharedMemory};
use mpquic_core::config::TransportOptions;

/// Measurements of a row.
const ROUNDS: usize = 5;
/// MiB that a measurement moves.
const SIZE: u64 = 32;

fn main() {
    let paths = [1, 2, 4, 8, 16, 32, 64];
    table("paths allowed", &paths, |paths| {
        let mut pipe = pipe(|transport| transport.max_concurrent_paths = paths as u32);
        Box::new(move || pipe.transfer(SIZE << 20))
    });
    table("paths in use", &[1, 2, 4, 8, 16], |paths| {
        let mut transport = transport();
        transport.max_concurrent_paths = 64;
        let mut pipe = Pipe::new(Crypto::Tls, paths as u8, transport);
        Box::new(move || pipe.transfer(SIZE << 20))
    });
    table(
        "streams of 3.3 KB at a time",
        &[10, 100, 1000, 10_000],
        |count| {
            let mut pipe = pipe(|transport| {
                let window = 256 << 20;
                transport.max_concurrent_uni_streams = 20_000;
                transport.initial_receive_window = window;
                transport.initial_stream_receive_window = window;
                transport.max_receive_window = window;
                transport.send_window = window;
            });
            // Opening and closing a stream costs the same in all rows.
            let bytes = (SIZE << 20) / 10_000;
            let times = (SIZE << 20) / (bytes * count);
            Box::new(move || (0..times).for_each(|_| pipe.streams(count as usize, bytes as usize)))
        },
    );
    table("connections in turns", &[1, 10, 100, 1000], |count| {
        // As in a driver, all connections share the memory for datagrams under way.
        let mut memory = SharedMemory::default();
        let mut pipes = Vec::from_iter((0..count).map(|_| {
            let mut pipe = pipe(|_| {});
            pipe.swap_memory(&mut SharedMemory::default());
            pipe
        }));
        let each = (SIZE << 20) / count;
        // A visit to a connection moves 16 KiB or a little more, for any number of connections.
        let visits = (each >> 14).max(1);
        Box::new(move || {
            for _ in 0..visits {
                for pipe in &mut pipes {
                    pipe.swap_memory(&mut memory);
                    pipe.transfer(each / visits);
                    pipe.swap_memory(&mut memory);
                }
            }
        })
    });
    table("lost, of a thousand", &[0, 1, 10, 50, 100], |lost| {
        let mut pipe = pipe(|_| {});
        pipe.lose(lost);
        Box::new(move || pipe.transfer(SIZE << 20))
    });
}

fn transport() -> TransportOptions {
    mpquic_benches::unpaced()
}

fn pipe(change: impl FnOnce(&mut TransportOptions)) -> Pipe {
    let mut transport = transport();
    change(&mut transport);
    Pipe::new(Crypto::Tls, 1, transport)
}

/// Prints a row for each of `values`, with a bar as long as the cost of a byte relative to the
/// first row.
fn table(name: &str, values: &[u64], prepare: impl Fn(u64) -> Box<dyn FnMut()>) {
    if std::env::args()
        .nth(1)
        .is_some_and(|word| !name.contains(&word))
    {
        return;
    }
    println!("| {name} | CPU s/GB | ratio | |");
    println!("| --- | --- | --- | --- |");
    let mut first = None;
    for value in values {
        let mut run = prepare(*value);
        run();
        let rounds = (0..ROUNDS).map(|_| {
            let start = ThreadTime::now();
            run();
            start.elapsed().as_secs_f64()
        });
        let least = rounds.fold(f64::MAX, f64::min);
        let cost = least / (SIZE << 20) as f64 * 1e9;
        let ratio = cost / *first.get_or_insert(cost);
        let bar = "#".repeat((20.0 * ratio).round() as usize);
        println!("| {value} | {cost:.3} | {ratio:.2} | `{bar}` |");
    }
    println!();
}
