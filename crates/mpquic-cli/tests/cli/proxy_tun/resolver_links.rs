//! The resolver's file in a directory of another user, who puts links there.

use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::path::Path;

use super::*;

/// The user of a daemon that owns the directory of its resolver's file.
const DAEMON: u32 = 65_534;
const SECRET: &str = "root:$6$HASH:19000::::::\nnameserver of nobody\n";

struct Place {
    _root: tempfile::TempDir,
    /// A secret of root.
    shadow: String,
    /// A file that does not exist.
    missing: String,
    directory: String,
    file: String,
}

impl Place {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
        let place = Self {
            shadow: path("shadow"),
            missing: path("nologin"),
            directory: path("daemon"),
            file: path("daemon/resolv.auto"),
            _root: root,
        };
        fs::write(&place.shadow, SECRET).unwrap();
        fs::create_dir(&place.directory).unwrap();
        fs::write(&place.file, "nameserver 10.9.9.9\n").unwrap();
        place
    }

    fn give_to_the_daemon(&self) {
        chown(&self.directory, Some(DAEMON), Some(DAEMON)).unwrap();
    }

    fn link_to(&self, target: &str) {
        fs::remove_file(&self.file).unwrap();
        symlink(target, &self.file).unwrap();
        std::os::unix::fs::lchown(&self.file, Some(DAEMON), Some(DAEMON)).unwrap();
    }

    #[track_caller]
    fn is_untouched(&self, network: &Network) {
        assert_eq!(fs::read_to_string(&self.shadow).unwrap(), SECRET);
        assert!(!Path::new(&self.missing).exists());
        let namespace = File::open(format!("/run/netns/{}", network.client)).unwrap();
        let number = std::os::unix::fs::MetadataExt::ino(&namespace.metadata().unwrap());
        let state = fs::read_to_string(format!("/run/mpquic-tun/mpquic0.{number}.json"));
        let state = state.unwrap_or_default();
        assert!(!state.contains("HASH"), "{state}");
    }
}

#[test]
#[ignore = "needs root, for network namespaces"]
fn a_resolver_file_that_another_user_can_replace_is_refused_at_the_start() {
    let network = Network::new();
    let place = Place::new();
    place.give_to_the_daemon();
    let before = network.state();
    let (file, dns) = (&*place.file, "203.0.113.1");
    let words = ["client", "https://10.77.0.1:1", "--insecure", "--tun"];
    let words = [&words[..], &["--dns", dns, "--dns-file", file]].concat();
    let mut client = Client::of(network.command(&words));
    wait_until("the end of the client", || {
        client.0.try_wait().unwrap().is_some()
    });
    client.logs(&["--dns-file", file, &place.directory, &DAEMON.to_string()]);
    assert_eq!(client.0.wait().unwrap().code(), Some(3));
    assert_eq!(fs::read_to_string(file).unwrap(), "nameserver 10.9.9.9\n");
    assert_eq!(network.state(), before);
}

/// A daemon gets its directory while the client runs.
#[test]
#[ignore = "needs root, for network namespaces"]
fn links_in_the_place_of_the_resolver_file_are_not_followed() {
    let network = Network::new();
    let (server, _) = network.serve();
    let place = Place::new();
    let options = ["--dns", "203.0.113.1", "--dns-file", &place.file];
    let client = network.start(&server, &options);
    assert!(
        fs::read_to_string(&place.file)
            .unwrap()
            .contains("203.0.113.1")
    );
    // Root itself put a link there.
    place.link_to(&place.shadow);
    client.logs(&["cannot keep the name servers", &place.file]);
    place.is_untouched(&network);
    place.give_to_the_daemon();
    for target in [&place.shadow, &place.missing] {
        place.link_to(target);
        // The client looks every two seconds.
        std::thread::sleep(Duration::from_secs(3));
        place.is_untouched(&network);
    }
    place.link_to(&place.shadow);
    client.end(Signal::SIGTERM);
    place.is_untouched(&network);
    assert_exit(&network.run(&["down"]), 0);
    place.is_untouched(&network);
}
