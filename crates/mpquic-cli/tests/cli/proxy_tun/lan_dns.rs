//! `--dns-file`: the servers of a router's resolver for the LAN.

use std::fs;

use nix::sys::signal::Signal;

use super::Network;
use crate::wait_until;

#[test]
#[ignore = "needs root, for network namespaces"]
fn the_resolver_of_the_lan_asks_through_the_tunnel() {
    let network = Network::new();
    let (server, _) = network.serve();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("resolv.conf.auto");
    let read = || fs::read_to_string(&path).unwrap();
    let of_link = |server: &str| format!("# Interface wan\nnameserver {server}\nsearch lan\n");
    fs::write(&path, of_link("10.77.0.1")).unwrap();
    let before = network.state();
    let options = ["--dns", "203.0.113.1", "--dns-file", path.to_str().unwrap()];
    let client = network.start(&server, &options);
    let set = read();
    assert!(
        set.contains("nameserver 203.0.113.1\n") && set.contains("search lan\n"),
        "{set}"
    );
    assert!(!set.contains("10.77.0.1"), "{set}");
    // The file of the router's own programs stays.
    let own = fs::read_to_string(network.resolver_file()).unwrap();
    assert_eq!(own, "nameserver 10.77.0.1\n");
    // A link comes up, and the system writes its name servers.
    fs::write(&path, of_link("10.77.0.9")).unwrap();
    wait_until("the name server of --dns", || {
        read().contains("nameserver 203.0.113.1\n")
    });
    client.end(Signal::SIGTERM);
    assert_eq!(read(), of_link("10.77.0.9"));
    assert_eq!(network.state(), before);

    // A killed client leaves the file to `proxy down`.
    let client = network.start(&server, &options);
    client.end(Signal::SIGKILL);
    assert!(read().contains("203.0.113.1"));
    assert!(network.run(&["down"]).status.success());
    assert_eq!(read(), of_link("10.77.0.9"));
}
