//! The hot path of both sides without links and sockets: a stream from one connection to another.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use mpquic_benches::{Crypto, Pipe};

const BYTES: u64 = 1 << 20;

fn transfer(c: &mut Criterion) {
    let mut group = c.benchmark_group("pipe");
    group.throughput(Throughput::Bytes(BYTES));
    for (name, crypto) in [("aes_128_gcm", Crypto::Tls), ("null", Crypto::Null)] {
        for paths in [1, 2] {
            let transport = mpquic_benches::unpaced();
            let mut pipe = Pipe::new(crypto, paths, transport);
            pipe.transfer(16 * BYTES);
            group.bench_function(format!("{name}/paths_{paths}"), |b| {
                b.iter(|| pipe.transfer(BYTES));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, transfer);
criterion_main!(benches);
