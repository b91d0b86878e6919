use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use mpquic_core::congestion::SavedCapacity;
use mpquic_core::knowledge::Knowledge;
use mpquic_core::{FourTuple, Version};
use tempfile::{TempDir, tempdir};

use super::*;

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// A directory for stores, which is not there yet.
fn directory() -> (TempDir, PathBuf) {
    let parent = tempdir().unwrap();
    let directory = parent.path().join("a/b");
    (parent, directory)
}

/// The store of another process, and the knowledge of connections in the store.
fn process(directory: &Path) -> (Arc<FileStore>, Knowledge) {
    let store = Arc::new(FileStore::new(directory));
    (store.clone(), Knowledge::new(store))
}

fn path(host: u16) -> FourTuple {
    let [a, b] = host.to_be_bytes();
    let (local, remote) = ([10, 0, 0, 1], [10, 1, a, b]);
    FourTuple::new((local, 1).into(), (remote, 443).into())
}

fn capacity(window: u64) -> SavedCapacity {
    SavedCapacity {
        window,
        rtt: 600 * MS,
    }
}

fn token(server: &str) -> Key {
    Key::parse(&format!("token v1 {server}")).unwrap()
}

fn entry(value: &'static str) -> Entry {
    Entry::new(Bytes::from_static(value.as_bytes()), StdSystemTime.now())
}

fn names(directory: &Path) -> Vec<String> {
    let files = fs::read_dir(directory).into_iter().flatten();
    let mut names: Vec<_> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn entries_outlive_the_process() {
    let (_parent, directory) = directory();
    let (store, known) = process(&directory);
    known.save_capacity(path(1), capacity(1_000_000));
    known.save_capacity(path(2), capacity(2_000_000));
    known.save_round_trip(path(1), 7 * MS);
    known.save_round_trip(path(2), Duration::MAX);
    known.save_token(Version::V1, "::1", Bytes::from_static(b"a\n\xff"));
    assert_eq!(names(&directory), [""; 0], "not yet");
    store.flush().unwrap();
    store.flush().unwrap();
    assert_eq!(
        names(&directory),
        [
            "capacity-10.0.0.1-10.1.0.1",
            "capacity-10.0.0.1-10.1.0.2",
            "round_trip-10.0.0.1-10.1.0.1%3A443",
            "round_trip-10.0.0.1-10.1.0.2%3A443",
            "token-v1-%3A%3A1"
        ]
    );

    let (store, known) = process(&directory);
    assert_eq!(known.capacity(path(1)), Some(capacity(1_000_000)));
    assert_eq!(known.round_trip(path(1)), Some(7 * MS));
    assert_eq!(known.round_trip(path(2)), Some(Duration::MAX));
    assert_eq!(known.round_trip(path(3)), None);
    assert_eq!(
        known.take_token(Version::V1, "::1").unwrap(),
        &b"a\n\xff"[..]
    );
    // New entries go before kept ones, and an entry that is taken is in neither place.
    known.save_capacity(path(1), capacity(500_000));
    assert_eq!(known.capacity(path(1)), Some(capacity(500_000)));
    known.save_capacity(path(2), capacity(500_000));
    known.forget_capacity(path(2));
    assert_eq!(known.capacity(path(2)), None);
    store.flush().unwrap();

    let (_, known) = process(&directory);
    assert_eq!(known.capacity(path(1)), Some(capacity(500_000)));
    assert_eq!(known.capacity(path(2)), None);
    assert_eq!(known.take_token(Version::V1, "::1"), None);
}

#[test]
fn times_are_kept() {
    let (_parent, directory) = directory();
    let (store, known) = process(&directory);
    let saved = StdSystemTime.now() - HOUR + Duration::from_secs(60);
    let old = saved - Duration::from_secs(60);
    for (host, saved) in [(1, saved), (2, old), (3, UNIX_EPOCH)] {
        let key = Key::parse(&format!("capacity 10.0.0.1 10.1.0.{host}")).unwrap();
        store.save(key, Entry::new(Bytes::from_static(b"5 6"), saved));
    }
    assert_eq!(known.capacity(path(2)), None);
    store.flush().unwrap();
    let (_, known) = process(&directory);
    let known = [1, 2, 3].map(|host| known.capacity(path(host)).is_some());
    assert_eq!(known, [true, false, false]);
}

/// RFC 9000 section 8.1.3: a token is used once, with any number of processes.
#[test]
fn one_of_many_takes_a_token() {
    let (_parent, directory) = directory();
    let stores = [(); 4].map(|()| FileStore::new(&directory));
    for _ in 0..100 {
        stores[0].save(token("a"), entry("token"));
        stores[0].flush().unwrap();
        let taken = std::thread::scope(|scope| {
            let takers = stores.each_ref();
            let takers = takers.map(|store| scope.spawn(|| store.take(&token("a")).is_some()));
            takers.map(|taker| taker.join().unwrap())
        });
        assert_eq!(taken.iter().filter(|taken| **taken).count(), 1);
    }
    assert_eq!(names(&directory), [""; 0], "no temporary files");
}

/// The reader of a file that others replace sees one of their entries, never a part.
#[test]
fn files_are_replaced_in_one_step() {
    let (_parent, directory) = directory();
    let (reader, _) = process(&directory);
    let values = ["x".repeat(1000), "y".repeat(10)];
    let write = |value: &String| {
        let store = FileStore::new(&directory);
        for _ in 0..100 {
            let value = Bytes::from(value.clone());
            store.save(token("a"), Entry::new(value, StdSystemTime.now()));
            store.flush().unwrap();
        }
    };
    write(&values[0]);
    std::thread::scope(|scope| {
        let writers = values.each_ref().map(|value| scope.spawn(|| write(value)));
        while !writers.iter().all(|writer| writer.is_finished()) {
            let read = reader.load(&token("a")).unwrap().value;
            assert!(values.iter().any(|value| *value.as_bytes() == read));
        }
    });
}

#[test]
fn files_of_another_form_are_ignored() {
    let (_parent, directory) = directory();
    let (store, _) = process(&directory);
    let key = token("a");
    let file = directory.join("token-v1-a");
    fs::create_dir_all(&directory).unwrap();
    let longest = format!("1 1000\n{}", "x".repeat(1000));
    let longer = format!("1 1001\n{}", "x".repeat(1001));
    let huge = "x".repeat(1 << 20);
    for (content, is_entry) in [
        ("1 5\ntoken", true),
        ("18446744073709551615 5\ntoken", true),
        (&*longest, true),
        (&*longer, false),
        (&*huge, false),
        ("1 5\ntoke", false),
        ("1 5\ntoken ", false),
        ("18446744073709551616 5\ntoken", false),
        ("-1 5\ntoken", false),
        ("1\ntoken", false),
        ("1 5", false),
        ("token", false),
        ("\n", false),
        ("", false),
    ] {
        fs::write(&file, content).unwrap();
        let shown = &content[..content.len().min(20)];
        assert_eq!(store.load(&key).is_some(), is_entry, "{shown}");
        assert_eq!(store.take(&key).is_some(), is_entry, "{shown}");
        assert!(!file.exists());
    }
    fs::write(&file, b"1 2\xff\n\xff\xff").unwrap();
    assert_eq!(store.load(&key), None);
    // Such a file does not stand in the way of an entry.
    store.save(key.clone(), entry("token"));
    store.flush().unwrap();
    assert_eq!(store.load(&key).unwrap().value, "token");
}

#[test]
fn a_directory_in_place_of_a_file_is_an_error() {
    let (_parent, directory) = directory();
    let (store, _) = process(&directory);
    fs::create_dir_all(directory.join("token-v1-a/b")).unwrap();
    assert_eq!(store.load(&token("a")), None);
    store.save(token("a"), entry("token"));
    store.save(token("b"), entry("token"));
    assert!(store.flush().is_err());
    assert_eq!(names(&directory), ["token-v1-a", "token-v1-b"]);
    assert!(store.take(&token("a")).is_some(), "still in memory");
    // A directory is no file to remove, whatever its name and age.
    fs::create_dir_all(directory.join("temporary-1")).unwrap();
    let made = File::open(directory.join("temporary-1")).unwrap();
    made.set_modified(StdSystemTime.now() - HOUR).unwrap();
    store.save(token("c"), entry("token"));
    store.flush().unwrap();
    assert!(directory.join("temporary-1").exists());
}

/// A link may lead to a secret or to a device. A pipe would hold up the connection.
#[test]
#[cfg(unix)]
fn links_and_pipes_are_not_read() {
    let (parent, directory) = directory();
    let (store, _) = process(&directory);
    fs::create_dir_all(&directory).unwrap();
    let elsewhere = parent.path().join("elsewhere");
    fs::write(&elsewhere, "1 5\ntoken").unwrap();
    let link = directory.join("token-v1-a");
    std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    let pipe = directory.join("token-v1-b");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    for server in ["a", "b"] {
        assert_eq!(store.load(&token(server)), None);
        assert_eq!(store.take(&token(server)), None);
        store.save(token(server), entry("new"));
    }
    // New files take the place of both. What the link leads to stays as it is.
    store.flush().unwrap();
    for server in ["a", "b"] {
        assert_eq!(store.load(&token(server)).unwrap().value, "new");
    }
    assert_eq!(fs::read(elsewhere).unwrap(), b"1 5\ntoken");
}

#[test]
fn nothing_is_lost_without_a_directory() {
    let parent = tempdir().unwrap();
    let file = parent.path().join("file");
    fs::write(&file, "").unwrap();
    let (store, _) = process(&file.join("directory"));
    store.flush().unwrap();
    store.save(token("a"), entry("token"));
    assert!(store.flush().is_err());
    fs::remove_file(&file).unwrap();
    store.flush().unwrap();
    assert_eq!(names(&file.join("directory")), ["token-v1-a"]);
}

#[test]
fn the_oldest_files_make_room() {
    let (_parent, directory) = directory();
    let (store, known) = process(&directory);
    let now = StdSystemTime.now();
    let written = |name: &str, age| {
        let mut options = File::options();
        let file = options.append(true).create(true);
        let file = file.open(directory.join(name)).unwrap();
        file.set_modified(now - age).unwrap();
    };
    for host in 0..=u16::try_from(MOST).unwrap() {
        store.save(token(&host.to_string()), entry("token"));
    }
    known.save_capacity(path(1), capacity(1));
    store.flush().unwrap();
    assert_eq!(names(&directory).len(), MOST + 1);
    let mut tokens = names(&directory)
        .into_iter()
        .filter(|name| name.starts_with("token"));
    let oldest = tokens.next_back().unwrap();
    written(&oldest, HOUR);
    // Old files of each kind go, foreign ones stay.
    for (name, age) in [
        ("capacity-10.0.0.1-10.1.0.2", HOUR),
        ("round_trip-10.0.0.1-10.1.0.1%3A443", HOUR),
        ("temporary-1", HOUR),
        ("temporary-2", HOUR / 2),
        ("token-v1-old", HOUR * 24 * 14),
        ("README", HOUR * 24 * 365),
        ("capacity-10.0.0.1", HOUR),
    ] {
        written(name, age);
    }
    store.save(token("new"), entry("token"));
    store.flush().unwrap();
    let names = names(&directory);
    let of_tokens = names.iter().filter(|name| name.starts_with("token"));
    assert_eq!(of_tokens.count(), MOST);
    assert!(!names.contains(&oldest));
    let others: Vec<_> = names
        .iter()
        .filter(|name| !name.starts_with("token"))
        .collect();
    assert_eq!(
        others,
        [
            "README",
            "capacity-10.0.0.1",
            "capacity-10.0.0.1-10.1.0.1",
            "temporary-2"
        ]
    );
}

/// Files of a time when the clock was ahead do not take the place of new ones.
#[test]
fn files_from_the_future_make_room() {
    let (_parent, directory) = directory();
    let (store, _) = process(&directory);
    for host in 0..MOST {
        store.save(token(&host.to_string()), entry("token"));
    }
    store.flush().unwrap();
    let move_to_future = |time: Duration| {
        for name in names(&directory) {
            let file = File::options().append(true).open(directory.join(name));
            let future = StdSystemTime.now() + time;
            file.unwrap().set_modified(future).unwrap();
        }
    };
    move_to_future(HOUR * 24);
    store.save(token("new"), entry("token"));
    store.flush().unwrap();
    assert_eq!(names(&directory).len(), MOST);
    assert!(store.load(&token("new")).is_some());
    move_to_future(HOUR * 24 * 365);
    store.save(token("newer"), entry("token"));
    store.flush().unwrap();
    assert_eq!(names(&directory), ["token-v1-newer"]);
}

#[test]
fn entries_of_this_machine_and_unfit_ones_are_not_written() {
    let (_parent, directory) = directory();
    let (store, known) = process(&directory);
    let here = |ip: &str| {
        let ip: IpAddr = ip.parse().unwrap();
        FourTuple::new(SocketAddr::new(ip, 1), SocketAddr::new(ip, 2))
    };
    for ip in ["127.0.0.1", "::1"] {
        known.save_capacity(here(ip), capacity(1));
        known.save_round_trip(here(ip), MS);
        assert!(known.capacity(here(ip)).is_some());
    }
    store.save(token(&"a".repeat(MAX_NAME)), entry("token"));
    store.save(
        token("a"),
        Entry::new(vec![7; MAX_VALUE + 1].into(), UNIX_EPOCH),
    );
    store.flush().unwrap();
    assert!(!directory.exists());
}

#[test]
fn names_of_files_lead_back_to_keys() {
    for server in [
        "example.org",
        "::1",
        "../../etc/passwd",
        "a b-c",
        "%2e",
        "ä",
        "",
    ] {
        let key = token(server);
        let name = file_name(&key);
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"._-%".contains(&byte);
        assert!(name.bytes().all(is_fit), "{name}");
        assert_eq!(parse_name(&name), Some(key), "{name}");
    }
    let foreign = [
        "",
        "token",
        "token-v1",
        "token-v1-%2",
        "token-v1-%2e",
        "token-v1-%FF",
        "token-v1-a~",
        "capacity-a-b",
    ];
    for name in foreign {
        assert_eq!(parse_name(name), None, "{name}");
    }
}

#[test]
#[cfg(unix)]
fn only_the_owner_reads_files() {
    use std::os::unix::fs::PermissionsExt;
    let (_parent, directory) = directory();
    let (store, _) = process(&directory);
    store.save(token("a"), entry("token"));
    store.flush().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join("token-v1-a")), 0o600);
}
