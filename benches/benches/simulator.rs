//! The speed of the simulator: 10 MB over two paths of 100 Mbit/s, which take about half a second
//! of virtual time.

use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use mpquic_sim::{LinkConfig, Pair, Setup, Side, Topology};

const SIZE: u64 = 10_000_000;

fn download(c: &mut Criterion) {
    let mut group = c.benchmark_group("simulator");
    group.throughput(Throughput::Bytes(SIZE));
    group.sample_size(20);
    let link = |delay| LinkConfig::new(100.0, Duration::from_millis(delay)).loss(0.001);
    let topology = Topology::new().path("a", link(10)).path("b", link(30));
    let unchecked = |setup: Setup| Setup {
        checks: false,
        ..setup
    };
    let setups = [
        ("null/checked", Setup::new()),
        ("null/unchecked", unchecked(Setup::new())),
        ("tls/unchecked", unchecked(Setup::new().tls())),
    ];
    for (name, setup) in setups {
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut pair = Pair::connected(&topology, setup.clone());
                pair.open_all_paths();
                pair.transfer(Side::Server, SIZE, Duration::from_secs(60))
            });
        });
    }
    group.finish();
}

criterion_group!(benches, download);
criterion_main!(benches);
