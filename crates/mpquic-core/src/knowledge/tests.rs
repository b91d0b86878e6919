use super::*;

/// A clock that tests set.
#[derive(Debug)]
struct Clock(Mutex<SystemTime>);

impl TimeSource for Clock {
    fn now(&self) -> SystemTime {
        *self.0.lock().unwrap()
    }
}

struct Test {
    store: Arc<MemoryStore>,
    clock: Arc<Clock>,
    knowledge: Knowledge,
}

impl Test {
    fn new() -> Self {
        let start = SystemTime::UNIX_EPOCH + HOUR * 24 * 365;
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(Clock(Mutex::new(start)));
        let knowledge = Knowledge::with_clock(store.clone(), clock.clone());
        Self {
            store,
            clock,
            knowledge,
        }
    }

    fn wait(&self, time: Duration) {
        *self.clock.0.lock().unwrap() += time;
    }

    /// Puts this value into the store.
    fn put(&self, key: Key, value: &'static [u8]) {
        let entry = Entry::new(Bytes::from_static(value), self.clock.now());
        self.store.save(key, entry);
    }
}

fn path(host: u16) -> FourTuple {
    let [a, b] = host.to_be_bytes();
    let (local, remote) = ([10, 0, 0, 1], [10, 1, a, b]);
    FourTuple::new((local, 1).into(), (remote, 443).into())
}

const CAPACITY: SavedCapacity = SavedCapacity {
    window: 1_000_000,
    rtt: Duration::from_millis(40),
};
const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

#[test]
fn each_kind_is_good_for_its_time() {
    let test = Test::new();
    let known = &test.knowledge;
    known.save_capacity(path(1), CAPACITY);
    known.save_round_trip(path(1), 7 * MS);
    known.save_round_trip(path(2), Duration::MAX);
    known.save_token(Version::V1, "a", Bytes::from_static(b"token"));
    known.save_token(Version::V1, "b", Bytes::from_static(b"token"));
    test.wait(HOUR - SECOND);
    assert_eq!(known.capacity(path(1)), Some(CAPACITY));
    assert_eq!(known.round_trip(path(1)), Some(7 * MS));
    assert_eq!(known.round_trip(path(2)), Some(Duration::MAX));
    test.wait(SECOND);
    assert_eq!(known.capacity(path(1)), None);
    assert_eq!(known.round_trip(path(1)), None);
    test.wait(HOUR * (24 * 14 - 1) - SECOND);
    assert_eq!(known.take_token(Version::V1, "a").unwrap(), "token");
    test.wait(SECOND);
    assert_eq!(known.take_token(Version::V1, "b"), None);
}

/// The clock was wrong, or is wrong now.
#[test]
fn entries_from_the_far_future_are_ignored() {
    let test = Test::new();
    test.knowledge.save_capacity(path(1), CAPACITY);
    *test.clock.0.lock().unwrap() -= HOUR - SECOND;
    assert_eq!(test.knowledge.capacity(path(1)), Some(CAPACITY));
    *test.clock.0.lock().unwrap() -= SECOND;
    assert_eq!(test.knowledge.capacity(path(1)), None);
}

#[test]
fn new_entries_find_room_after_the_clock_was_set_back() {
    let test = Test::new();
    let known = Knowledge::with_clock(MemoryStore::new(2), test.clock.clone());
    known.save_capacity(path(1), CAPACITY);
    known.save_capacity(path(2), CAPACITY);
    *test.clock.0.lock().unwrap() -= HOUR * 24;
    known.save_capacity(path(3), CAPACITY);
    known.save_capacity(path(4), CAPACITY);
    assert_eq!(known.capacity(path(3)), Some(CAPACITY));
    assert_eq!(known.capacity(path(4)), Some(CAPACITY));
}

/// RFC 9000 section 8.1.3: a token is used once, with its server; RFC 9369 section 5: in its
/// version.
#[test]
fn a_token_is_taken_once() {
    let test = Test::new();
    let known = &test.knowledge;
    known.save_token(Version::V1, "a", Bytes::from_static(b"old"));
    known.save_token(Version::V1, "a", Bytes::from_static(b"new"));
    assert_eq!(known.take_token(Version::V2, "a"), None);
    assert_eq!(known.take_token(Version::V1, "b"), None);
    assert_eq!(known.take_token(Version::V1, "a").unwrap(), "new");
    assert_eq!(known.take_token(Version::V1, "a"), None);
}

#[test]
fn a_capacity_is_known_until_it_is_forgotten() {
    let test = Test::new();
    let known = &test.knowledge;
    known.save_capacity(path(1), CAPACITY);
    let elsewhere = FourTuple::new(path(1).local, path(2).remote);
    assert_eq!(known.capacity(elsewhere), None);
    assert_eq!(known.capacity(path(1)), Some(CAPACITY));
    known.forget_capacity(path(1));
    assert_eq!(known.capacity(path(1)), None);
}

/// Ports of servers matter for round-trip times, local ports do not.
#[test]
fn round_trips_are_those_to_a_port() {
    let known = Test::new().knowledge;
    known.save_round_trip(path(1), 7 * MS);
    let mut other = path(1);
    other.local.set_port(9);
    assert_eq!(known.round_trip(other), Some(7 * MS));
    other.remote.set_port(444);
    assert_eq!(known.round_trip(other), None);
}

#[test]
fn malformed_values_are_ignored() {
    let test = Test::new();
    let known = &test.knowledge;
    for (value, is_known) in [
        (&b"5 6"[..], true),
        (b"18446744073709551615 18446744073709551615", true),
        (b"18446744073709551616 6", false),
        (b"5", false),
        (b"5 6 7", false),
        (b"-5 6", false),
        (b"\xff\xff 6", false),
        (b"", false),
    ] {
        test.put(Key::capacity(path(1)), value);
        assert_eq!(known.capacity(path(1)).is_some(), is_known, "{value:?}");
    }
    for (value, is_known) in [
        (&b"5"[..], true),
        (b"silent", true),
        (b"-5", false),
        (b"5 6", false),
        (b"quiet", false),
    ] {
        test.put(Key::round_trip(path(1)), value);
        assert_eq!(known.round_trip(path(1)).is_some(), is_known, "{value:?}");
    }
}

#[test]
fn the_oldest_of_a_kind_makes_room() {
    let test = Test::new();
    let known = &test.knowledge;
    known.save_token(Version::V1, "a", Bytes::from_static(b"token"));
    for host in 0..=1024 {
        test.wait(MS);
        known.save_capacity(path(host), CAPACITY);
    }
    assert_eq!(known.capacity(path(0)), None);
    assert_eq!(known.capacity(path(1)), Some(CAPACITY));
    // A known path takes no other's place.
    known.save_capacity(path(1024), CAPACITY);
    assert_eq!(known.capacity(path(1)), Some(CAPACITY));
    assert_eq!(test.store.drain().count(), 1025);
    assert_eq!(test.store.drain().count(), 0);
}

#[test]
fn debug_output_has_no_token() {
    let test = Test::new();
    let token = Bytes::from_static(b"secret");
    test.knowledge.save_token(Version::V1, "a", token);
    let shown = format!("{:?}", test.knowledge);
    assert_eq!(shown, "Knowledge(MemoryStore { limit: 1024, .. })");
}

#[test]
fn texts_of_keys_tell_them_apart() {
    let keys = [
        Key::token(Version::V1, "a"),
        Key::token(Version::V2, "a"),
        Key::capacity(path(1)),
        Key::round_trip(path(1)),
    ];
    for key in &keys {
        assert_eq!(Key::parse(&key.to_string()).as_ref(), Some(key));
    }
    for wrong in [
        "",
        "token",
        "token v1",
        "token v9 a",
        "capacity a b",
        "capacity 10.0.0.1 10.0.0.2:1",
        "round_trip 10.0.0.1 10.0.0.2",
        "other 1 2",
    ] {
        assert_eq!(Key::parse(wrong), None, "{wrong}");
    }
    assert_eq!(
        keys.map(|key| key.to_string()),
        [
            "token v1 a",
            "token v2 a",
            "capacity 10.0.0.1 10.1.0.1",
            "round_trip 10.0.0.1 10.1.0.1:443"
        ]
    );
}
