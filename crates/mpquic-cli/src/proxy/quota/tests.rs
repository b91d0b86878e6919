//! Tests of counts over months and restarts.

use super::*;
use crate::options::quota::{parse_quota, parse_quota_or_none};
use crate::process::clock;
use crate::testing::logged;

/// 2026-11-20, 00:00 UTC.
const NOVEMBER: u64 = 1_795_132_800;
const DAY: u64 = 86_400;

/// A client with a file of counts, whose clock the test sets.
struct Router {
    quotas: Quotas,
    file: Option<PathBuf>,
    options: Vec<String>,
    start: Instant,
    /// Seconds since the start.
    ran: u64,
    /// Seconds since 1970.
    clock: u64,
    sent: u64,
}

impl Router {
    fn new(directory: &std::path::Path, options: &[&str]) -> Self {
        let file = Some(directory.join("quota.json"));
        let options: Vec<_> = options.iter().map(|text| (*text).to_owned()).collect();
        Self {
            quotas: Quotas::new(read(&options), file.clone()),
            file,
            options,
            start: clock::now(),
            ran: 0,
            clock: NOVEMBER,
            sent: 0,
        }
    }

    fn time(&self) -> Time {
        Time {
            clock: SystemTime::UNIX_EPOCH + Duration::from_secs(self.clock),
            steady: self.start + Duration::from_secs(self.ran),
        }
    }

    fn look(&mut self) -> bool {
        let at = Origin::Interface("wwan0".to_owned());
        let traffic = [Traffic::new(at, self.sent, 0)];
        self.quotas.look(self.time(), &traffic, &[])
    }

    /// Sends megabytes in a second.
    fn send(&mut self, megabytes: u64) -> bool {
        self.sent += megabytes * 1_000_000;
        self.pass(1)
    }

    fn pass(&mut self, seconds: u64) -> bool {
        self.ran += seconds;
        self.clock += seconds;
        self.look()
    }

    /// A crash, and another start with the clock at this time.
    fn crash(&mut self, clock: u64) {
        self.quotas = Quotas::new(read(&self.options), self.file.clone());
        (self.clock, self.sent) = (clock, 0);
        self.look();
    }

    fn row(&self) -> QuotaRow {
        self.quotas.rows()["wwan0"].clone()
    }

    fn used(&self) -> u64 {
        self.row().used / 1_000_000
    }
}

fn read(options: &[String]) -> Vec<Quota> {
    options
        .iter()
        .map(|text| parse_quota(text).unwrap())
        .collect()
}

#[test]
fn an_interface_closes_at_its_quota_and_opens_with_the_month() {
    let directory = tempfile::tempdir().unwrap();
    let mut router = Router::new(directory.path(), &["wwan*=20M,reset=21"]);
    assert!(!router.send(0));
    assert!(!router.send(19));
    assert_eq!(router.row().until.as_deref(), Some("2026-11-21"));
    let told = logged(|| {
        assert!(router.send(1));
        assert!(!router.send(1));
    });
    assert_eq!(told.matches("used up").count(), 1, "{told}");
    let line =
        "wwan0 has used up its quota (20.00 MB of 20.00 MB): its paths are closed until 2026-11-21";
    assert!(told.contains(line), "{told}");
    assert_eq!(router.quotas.closed(), ["wwan0"]);
    assert!(router.row().used_up);
    // Another start does not open it, whatever its clock says at first.
    for clock in [0, NOVEMBER - 90 * DAY, NOVEMBER] {
        router.crash(clock);
        assert_eq!(router.quotas.closed(), ["wwan0"]);
    }
    router.clock = NOVEMBER + DAY - 2;
    assert!(!router.pass(1));
    assert!(router.pass(1));
    assert!(router.quotas.closed().is_empty());
    assert_eq!(
        (router.used(), router.row().until.as_deref()),
        (0, Some("2026-12-21"))
    );
    router.send(5);
    assert_eq!(router.used(), 5);
}

#[test]
fn a_crash_loses_the_bytes_of_a_minute_at_most() {
    let directory = tempfile::tempdir().unwrap();
    let mut router = Router::new(directory.path(), &["wwan0=20G"]);
    router.send(0);
    for _ in 0..60 {
        router.send(1);
    }
    router.send(3);
    assert_eq!(router.used(), 63);
    router.crash(NOVEMBER);
    assert!((60..=63).contains(&router.used()), "{}", router.used());
    // An end in order loses nothing.
    router.send(7);
    let before = router.used();
    router.quotas.save(router.time());
    router.crash(NOVEMBER);
    assert_eq!(router.used(), before);
}

#[test]
fn two_clients_count_together() {
    let directory = tempfile::tempdir().unwrap();
    let mut one = Router::new(directory.path(), &["wwan0=20M"]);
    let mut other = Router::new(directory.path(), &["wwan0=20M"]);
    for router in [&mut one, &mut other] {
        router.send(0);
        router.send(12);
    }
    assert!(!one.pass(60));
    assert!(other.pass(60));
    assert_eq!(other.used(), 24);
    assert!(one.pass(60));
    assert_eq!(one.used(), 24);
}

#[test]
fn counts_go_on_without_a_place_for_a_file() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "").unwrap();
    let mut router = Router::new(directory.path(), &["wwan0=20M"]);
    router.file = Some(directory.path().join("file/quota.json"));
    router.crash(NOVEMBER);
    let told = logged(|| {
        router.send(0);
        for _ in 0..3 {
            router.send(4);
            router.pass(60);
        }
    });
    assert_eq!(
        told.matches("cannot keep the counts").count(),
        0,
        "told at the start"
    );
    assert_eq!(router.used(), 12);
    assert!(router.send(8));
    router.clock = NOVEMBER + 11 * DAY;
    assert!(router.pass(1));
    assert_eq!(router.used(), 0);
    let told = logged(|| {
        router.file = None;
        router.crash(NOVEMBER);
    });
    assert!(told.contains("--quota-file names a file"), "{told}");
    router.send(0);
    assert!(router.send(20));
}

#[test]
fn quotas_change_at_run_time() {
    let directory = tempfile::tempdir().unwrap();
    let mut router = Router::new(directory.path(), &["wwan*=20M"]);
    router.send(0);
    assert!(router.send(20));
    let set = |text: &str, router: &mut Router| {
        router.quotas.set(parse_quota_or_none(text).unwrap());
        router.pass(1)
    };
    assert!(set("wwan0=30M", &mut router));
    assert_eq!(router.used(), 20);
    assert!(set("wwan0=15M,reset=5", &mut router));
    assert_eq!(router.row().until.as_deref(), Some("2026-12-05"));
    assert!(set("wwan0=none", &mut router));
    assert!(router.quotas.rows().is_empty());
    // Bytes without a quota do not count.
    router.send(50);
    assert!(!set("wwan0=30M", &mut router));
    assert_eq!(router.used(), 20);
}

#[test]
fn addresses_count_for_their_interface() {
    let Some(at) = mpquic_tokio::interface_addresses().unwrap().pop() else {
        return;
    };
    let quota = parse_quota(&format!("{}=20M", at.name)).unwrap();
    let mut quotas = Quotas::new(vec![quota], None);
    let time = Time {
        clock: clock::time_of_day(),
        steady: clock::now(),
    };
    let traffic = [
        Traffic::new(Origin::Address(at.ip), 5, 6),
        Traffic::new(Origin::Interface(at.name.clone()), 7, 8),
        Traffic::new(Origin::Address([192, 0, 2, 77].into()), 100, 100),
    ];
    quotas.look(time, &traffic, std::slice::from_ref(&at));
    assert_eq!(quotas.rows()[&at.name].used, 26);
}
