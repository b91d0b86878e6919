//! No allocation per packet once a connection is warm: counted on both sides of a pipe in memory.

use allocation_counter::measure;
use mpquic_benches::{Crypto, Pipe};

fn pipe(crypto: Crypto, paths: u8) -> Pipe {
    let transport = mpquic_benches::unpaced();
    Pipe::new(crypto, paths, transport)
}

/// How often `run` allocates, once what it did twenty times before has warmed everything up: how
/// large queues and lists become differs from one run to the next, with what packets carry.
fn allocations(mut run: impl FnMut()) -> u64 {
    for _ in 0..20 {
        run();
    }
    measure(run).count_total
}

#[test]
fn streams_allocate_nothing() {
    for (crypto, paths) in [(Crypto::Null, 1), (Crypto::Tls, 1), (Crypto::Tls, 2)] {
        let mut pipe = pipe(crypto, paths);
        let count = allocations(|| pipe.transfer(8 << 20));
        assert_eq!(count, 0, "{crypto:?}, {paths} paths, 8 MiB");
    }
}

#[test]
fn datagrams_allocate_nothing() {
    for (crypto, paths) in [(Crypto::Null, 1), (Crypto::Tls, 1), (Crypto::Tls, 2)] {
        let mut pipe = pipe(crypto, paths);
        let count = allocations(|| pipe.datagrams(8000, 1000));
        assert_eq!(count, 0, "{crypto:?}, {paths} paths, 8000 datagrams");
    }
}

/// The measure itself: what the tests above would say to one allocation.
#[test]
fn an_allocation_is_counted() {
    let count = allocations(|| drop(std::hint::black_box(Box::new(1))));
    assert_eq!(count, 1);
}
