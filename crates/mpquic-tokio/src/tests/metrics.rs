//! The reports to the recorder of the crate `metrics`; `docs/observability.md` lists the figures.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

use tokio::time::sleep;

use crate::testing::{Pair, TestResult};

/// Keeps reported values by name and labels.
#[derive(Default)]
struct Kept {
    described: Mutex<BTreeSet<String>>,
    counters: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    samples: Mutex<BTreeMap<String, Arc<Samples>>>,
}

#[derive(Default)]
struct Samples(Mutex<Vec<f64>>);

impl HistogramFn for Samples {
    fn record(&self, value: f64) {
        self.0.lock().unwrap().push(value);
    }
}

fn named(key: &Key) -> String {
    let labels = key
        .labels()
        .map(|label| format!(" {}={}", label.key(), label.value()));
    format!("{}{}", key.name(), labels.collect::<String>())
}

impl Recorder for Kept {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }
    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }
    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, _: SharedString) {
        self.describe(&name);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let mut counters = self.counters.lock().unwrap();
        Counter::from_arc(counters.entry(named(key)).or_default().clone())
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        let mut counters = self.counters.lock().unwrap();
        Gauge::from_arc(counters.entry(named(key)).or_default().clone())
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let mut samples = self.samples.lock().unwrap();
        Histogram::from_arc(samples.entry(named(key)).or_default().clone())
    }
}

impl Kept {
    fn describe(&self, name: &KeyName) {
        let mut described = self.described.lock().unwrap();
        described.insert(name.as_str().to_owned());
    }

    /// The values of a histogram.
    fn samples(&self, name: &str) -> Vec<f64> {
        let samples = self.samples.lock().unwrap()[name].clone();
        let samples = samples.0.lock().unwrap();
        samples.clone()
    }

    fn counter(&self, name: &str) -> u64 {
        let counters = self.counters.lock().unwrap();
        counters
            .get(name)
            .map_or(0, |value| value.load(Ordering::Relaxed))
    }
}

/// Each byte is reported once, even for a path and a connection that end before a report.
#[tokio::test(start_paused = true)]
async fn recorder_gets_every_value_once() -> TestResult {
    let kept = Kept::default();
    let _guard = ::metrics::set_default_local_recorder(&kept);
    let pair = Pair::with_paths(2)?;
    let (a, b) = pair.connect_over(2).await?;
    let client = &pair.client.endpoint;
    let locals: Vec<_> = a
        .path_stats()
        .iter()
        .map(|path| path.four_tuple.local)
        .collect();
    let ips: Vec<_> = locals.iter().map(|local| local.ip().to_string()).collect();
    let told = |ip: &str| kept.counter(&format!("mpquic_path_bytes_sent_total local={ip}"));
    assert!(ips.iter().all(|ip| told(ip) == 0), "nobody asked");

    for _ in 0..2 {
        client.report_metrics();
        for path in a.path_stats() {
            assert_eq!(
                told(&path.four_tuple.local.ip().to_string()),
                path.bytes_sent
            );
        }
    }
    assert_eq!(kept.counter("mpquic_endpoint_outgoing_handshakes_total"), 1);
    let open = f64::from_bits(kept.counter("mpquic_endpoint_connections"));
    assert_eq!(open, 1.0);
    for name in ["mpquic_path_rtt_seconds", "mpquic_path_window_bytes"] {
        let name = format!("{name} local={}", ips[0]);
        let samples = kept.samples(&name);
        assert!(
            samples.len() == 2 && samples.iter().all(|value| *value > 0.0),
            "{samples:?}"
        );
    }

    let mut stream = a.open_uni().await?;
    stream.write_all(&[7; 100_000]).await?;
    stream.finish()?;
    b.accept_uni().await?.read_to_end(100_000).await?;
    // A later report cannot ask a closed path.
    a.paths()[1].close()?;
    sleep(Duration::from_secs(5)).await;
    let ended = a.ended_path_stats();
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert_eq!(told(&ips[1]), ended[0].bytes_sent);
    assert!(told(&ips[1]) > 30_000, "{}", told(&ips[1]));
    let samples = kept.samples(&format!("mpquic_path_rtt_seconds local={}", ips[1]));
    assert_eq!(samples.len(), 2, "nobody asked since");
    for counted in kept.counters.lock().unwrap().keys() {
        let name = counted.split(' ').next().unwrap_or_default();
        assert!(kept.described.lock().unwrap().contains(name), "{name}");
    }
    a.close(0u32.into(), b"");
    client.wait_idle().await;
    client.report_metrics();
    let sum: u64 = ips.iter().map(|ip| told(ip)).sum();
    let all = a.stats().bytes_sent;
    assert!(all > 100_000);
    // The packet that closes the connection belongs to no path.
    assert!(sum <= all && sum + 1500 > all, "{sum} of {all}");
    assert_eq!(
        f64::from_bits(kept.counter("mpquic_endpoint_connections")),
        0.0
    );
    Ok(())
}
