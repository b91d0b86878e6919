//! Tests of changes at run time.

use clap::Parser;

use super::*;
use crate::proxy::quota::QuotaRow;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    client: ProxyClient,
}

/// A control of a client without a connection, and the choices that its connections follow.
fn control(options: &[&str]) -> (Control, Arc<Live>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("quota.json");
    let file = file.to_str().unwrap();
    let fixed = ["x", "https://proxy.example", "--quota-file", file];
    let args = Line::try_parse_from([&fixed, options].concat()).unwrap();
    let live = Arc::new(Live::default());
    let control = Control::new(&args.client, &live, &Current::default());
    (control, live)
}

fn done(control: &Control, line: &str) -> String {
    match control.command(line) {
        Reply::Done(told) => told,
        other => panic!("{line}: {other:?}"),
    }
}

fn refused(control: &Control, line: &str) -> String {
    match control.command(line) {
        Reply::Error(told) => told,
        other => panic!("{line}: {other:?}"),
    }
}

fn shown(control: &Control) -> Settings {
    match control.command("show") {
        Reply::Settings(settings) => *settings,
        other => panic!("{other:?}"),
    }
}

fn interface(name: &str) -> Origin {
    Origin::Interface(name.to_owned())
}

#[test]
fn options_and_changes_reach_connections() {
    let (control, live) = control(&["--backup", "wwan*", "--local", "wwan*", "--local", "lo"]);
    let rules = live.rules();
    assert_eq!(rules.backups, [interface("wwan*")]);
    assert!(rules.prices.is_empty() && rules.closed.is_empty());
    assert_eq!(done(&control, "cost wwan0=5"), "cost of wwan0: 5");
    assert_eq!(done(&control, "cost wwan*=7"), "cost of wwan*: 7");
    let prices = live.rules().prices;
    let costs: Vec<_> = prices.iter().map(|price| price.cost).collect();
    assert_eq!(costs, [7, 5], "the last word counts");
    done(&control, "cost wwan*=3");
    assert_eq!(shown(&control).costs, ["wwan*=3", "wwan0=5"]);
    assert_eq!(done(&control, "pause wwan0"), "wwan0: paused");
    assert_eq!(live.rules().closed, [interface("wwan0")]);
    assert_eq!(done(&control, "pause wwan0"), "wwan0: paused");
    assert_eq!(done(&control, "resume wwan0"), "wwan0: no longer paused");
    assert!(live.rules().closed.is_empty());
    assert_eq!(done(&control, "backup lo on"), "lo: a backup");
    assert!(live.rules().backups.contains(&interface("lo")));
    assert_eq!(
        done(&control, "backup wwan* off"),
        "wwan*: no longer a backup"
    );
    assert!(!live.rules().backups.contains(&interface("wwan*")));
    assert_eq!(done(&control, "scheduler lrf"), "scheduler: lrf");
    assert_eq!(done(&control, "controller cubic"), "controller: cubic");
    let settings = shown(&control);
    assert_eq!(
        (&*settings.scheduler, &*settings.controller),
        ("lrf", "cubic")
    );
    assert_eq!(settings.backups, ["lo"]);
    let mut transport = mpquic_tokio::default_transport();
    transport = live.transport(&transport).unwrap();
    assert_eq!(transport.scheduler.build().name(), "lrf");
    assert_eq!(transport.controller.build().name(), "cubic");
}

#[test]
fn wrong_names_are_told_with_the_right_ones() {
    let (control, live) = control(&["--local", "lo", "--cost", "lo=1"]);
    for line in [
        "cost wwan7=5",
        "pause wwan7",
        "backup wwan7 on",
        "quota wwan7=5G",
    ] {
        assert_eq!(
            refused(&control, line),
            "wwan7: no path starts there; there are: lo"
        );
    }
    assert!(refused(&control, "pause wwan*").contains("there are: lo"));
    assert!(refused(&control, "pause 192.0.2.77").contains("there are: lo"));
    assert!(refused(&control, "scheduler fast").contains("round-robin"));
    assert!(refused(&control, "controller fast").contains("cubic"));
    assert!(refused(&control, "quota lo=5").contains("such as 500M, 20G or 1.5T"));
    assert!(refused(&control, "explode").contains("expected cost IFACE=N"));
    assert_eq!(
        refused(&control, "resume lo"),
        "lo is not paused; nothing is paused"
    );
    done(&control, "pause l*");
    assert_eq!(
        refused(&control, "resume lo"),
        "lo is paused by the name l*: name l*"
    );
    done(&control, "resume l*");
    assert!(live.rules().closed.is_empty(), "nothing else has changed");
    assert_eq!(live.rules().prices.len(), prices_of("lo=1").len());
}

fn prices_of(cost: &str) -> Vec<mpquic_tokio::path_managers::Price> {
    let cost = crate::options::cost::parse_cost(cost).unwrap();
    prices(&[cost], &interface_addresses().unwrap())
}

#[test]
fn settings_are_shown_for_people() {
    let (control, _) = control(&["--local", "lo", "--quota", "lo=20G,reset=15"]);
    done(&control, "pause lo");
    let settings = shown(&control);
    let text = settings.table();
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some("scheduler   auto"));
    assert_eq!(lines.next(), Some("controller  coupled-bbr"));
    assert_eq!(lines.next(), Some("paused      lo"));
    assert_eq!(lines.next(), Some("quota       lo=20G,reset=15"));
    assert_eq!(lines.next(), Some("lo: paused, cost 0"));
    let json = serde_json::to_string(&settings).unwrap();
    assert_eq!(serde_json::from_str::<Settings>(&json).unwrap(), settings);
    let quota = |used_up| QuotaRow {
        used: 1_500_000_000,
        limit: 20_000_000_000,
        until: Some("2026-12-15".to_owned()),
        used_up,
    };
    let mut row = InterfaceRow {
        name: "wwan0".to_owned(),
        cost: 5,
        backup: true,
        paused: false,
        quota: Some(quota(false)),
    };
    assert_eq!(row.state(), "open");
    let used = "1.50 GB of 20.00 GB until 2026-12-15";
    assert_eq!(row.used().as_deref(), Some(used));
    row.quota = Some(quota(true));
    assert_eq!(row.state(), "quota used up");
    row.quota.as_mut().unwrap().until = None;
    assert!(row.used().unwrap().ends_with("until the clock is set"));
}
