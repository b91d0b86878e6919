//! Rules for paths, and policies, that change while a connection runs.

use mpquic_tokio::path_managers::{Origin, Rules, Steering};
use mpquic_tokio::{Endpoint, PathStatus, TrafficMeter, default_transport};

use crate::harness::{Net, TestResult, client, eventually, exchange, until_active, within};

/// A client whose sockets are counted, and the rules for its paths.
fn steered() -> Result<(Net, Steering, TrafficMeter), crate::harness::Error> {
    let steering = Steering::default();
    let manager = steering.factory(mpquic_tokio::path_managers::default());
    let config = client(default_transport())?.path_manager(manager);
    let mut net = Net::new(&["127.0.0.1"], &["127.0.0.1"], config.clone())?;
    let meter = TrafficMeter::default();
    let mut builder = Endpoint::builder().client(config).traffic_meter(&meter);
    for local in ["127.0.0.1:0", "127.0.0.2:0"] {
        builder = builder.bind(local.parse()?);
    }
    net.client = builder.build()?;
    Ok((net, steering, meter))
}

fn closed(addresses: &[[u8; 4]]) -> Rules {
    let mut rules = Rules::default();
    let origins = addresses.iter().map(|ip| Origin::Address((*ip).into()));
    rules.closed.extend(origins);
    rules
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closed_addresses_send_nothing_until_they_open() -> TestResult {
    let (net, steering, meter) = steered()?;
    let (a, b) = net.connect().await?;
    until_active(&a, 2).await?;
    let count = || a.paths().len();
    steering.set(closed(&[[127, 0, 0, 2]]));
    a.review_paths();
    eventually("one path", || count() == 1).await?;
    exchange(&a, &b, 1 << 20).await?;
    // The last path stays, and says nothing.
    steering.set(closed(&[[127, 0, 0, 1], [127, 0, 0, 2]]));
    a.review_paths();
    let sent = || meter.traffic().iter().map(|one| one.sent).sum::<u64>();
    let before = sent();
    let mut stream = a.open_uni().await?;
    stream.write_all(b"late").await?;
    stream.finish()?;
    // The path's probes are due meanwhile.
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    assert_eq!(sent(), before);
    steering.set(closed(&[[127, 0, 0, 1]]));
    a.review_paths();
    let late = async {
        let mut stream = b.accept_uni().await?;
        Ok::<_, crate::harness::Error>(stream.read_to_end(9).await?)
    };
    assert_eq!(within("data after the pause", late).await??, b"late");
    steering.set(Rules::default());
    a.review_paths();
    until_active(&a, 2).await?;
    exchange(&a, &b, 1 << 20).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_connection_takes_other_backups_and_policies() -> TestResult {
    let (net, steering, _) = steered()?;
    let (a, b) = net.connect().await?;
    until_active(&a, 2).await?;
    let mut rules = Rules::default();
    rules.backups.push(Origin::Address([127, 0, 0, 2].into()));
    steering.set(rules);
    a.review_paths();
    let backups = || {
        let paths = a.paths().into_iter();
        let statuses = paths.filter_map(|path| path.status().ok());
        statuses
            .filter(|(ours, _)| *ours == PathStatus::Backup)
            .count()
    };
    assert_eq!(backups(), 1);
    a.set_scheduler(&*mpquic_sched::by_name("round-robin")?);
    assert!(a.set_controller(&*mpquic_cc::by_name("cubic")?));
    assert!(!a.set_controller(&*mpquic_cc::by_name("prague")?));
    exchange(&a, &b, 4 << 20).await?;
    steering.set(Rules::default());
    a.review_paths();
    assert_eq!(backups(), 0);
    exchange(&a, &b, 1 << 20).await
}
