use std::cell::{Cell, RefCell};

use clap::Parser;

use super::kill_switch::tests::kill_switch;
use super::state::tests::state;
use super::*;
use crate::process::screen::tests::Heard;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    tun: TunArgs,
}

#[test]
fn device_names_are_checked() {
    for name in ["mpquic0", "tun-lan", "fifteen-letters"] {
        assert_eq!(parse_name(name), Ok(name.to_owned()));
    }
    for name in ["", "sixteen-letters-", "tun%d", "a/b", "a b", "-4", ".."] {
        assert!(parse_name(name).is_err(), "{name}");
    }
}

#[test]
fn networks_have_no_host() {
    assert!(parse_network("203.0.113.0/24").is_ok());
    assert!(parse_network("2001:db8::/32").is_ok());
    let wrong = parse_network("203.0.113.1/24").unwrap_err();
    assert!(wrong.contains("203.0.113.0/24"), "{wrong}");
    assert!(parse_network("203.0.113.1").is_err());
}

#[test]
fn device_addresses_are_unused() {
    let taken = if_addrs::get_if_addrs().unwrap();
    let taken: Vec<_> = taken.iter().map(|interface| interface.addr.ip()).collect();
    for (has_v6, count) in [(false, 1), (true, 2)] {
        let addresses = free_addresses(has_v6).unwrap();
        assert_eq!(addresses.len(), count);
        assert!(addresses.iter().all(|one| !taken.contains(&one.addr())));
        let [IpNet::V4(v4), ..] = addresses[..] else {
            panic!("{addresses:?}");
        };
        // Each device has four addresses, and the second address is its own.
        let number = v4.addr().to_bits() - POOL_V4.to_bits();
        assert!(number % 4 == 1 && number < 4 * MOST_DEVICES, "{v4}");
        assert_eq!(v4.prefix_len(), 30);
        if let Some(IpNet::V6(v6)) = addresses.get(1) {
            assert_eq!(v6.addr().to_bits() - POOL_V6.to_bits(), u128::from(number));
            assert_eq!(v6.prefix_len(), 126);
        }
    }
}

#[test]
fn device_errors_name_the_reason() {
    let told = |kind: io::ErrorKind| {
        let failure = cannot_open("tun0", &kind.into());
        failure.message().to_owned()
    };
    for (kind, what) in [
        (
            io::ErrorKind::PermissionDenied,
            "no permission to make the network device tun0",
        ),
        (
            io::ErrorKind::ResourceBusy,
            "the network device tun0 is in use",
        ),
        (io::ErrorKind::NotFound, "this system has no TUN devices"),
        (
            io::ErrorKind::Other,
            "cannot make the network device tun0: ",
        ),
    ] {
        assert!(told(kind).starts_with(what), "{}", told(kind));
    }
    let failure = failed("tun0", &io::ErrorKind::NotFound.into());
    assert!(failure.message().starts_with("the device tun0: "));
}

#[test]
fn name_servers_are_always_routed() {
    let networks = |options: &[&str], has_v6| {
        let line = ["x", "--tun"].iter().chain(options);
        let args = Line::try_parse_from(line).unwrap().tun;
        let networks = args.networks(has_v6).into_iter();
        networks
            .map(|network| network.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(networks(&[], true), ["0.0.0.0/0", "::/0"]);
    assert_eq!(networks(&[], false), ["0.0.0.0/0"]);
    assert_eq!(networks(&["--dns", "9.9.9.9"], false), ["0.0.0.0/0"]);
    let some = ["--route", "10.0.0.0/8", "--route", "2001:db8::/32"];
    assert_eq!(networks(&some, true), ["10.0.0.0/8", "2001:db8::/32"]);
    assert_eq!(networks(&some, false), ["10.0.0.0/8"]);
    let names = [
        "--dns",
        "10.0.0.1",
        "--dns",
        "9.9.9.9",
        "--dns",
        "2620:fe::fe",
    ];
    let all = [&some[..], &names].concat();
    let expected = [
        "10.0.0.0/8",
        "2001:db8::/32",
        "9.9.9.9/32",
        "2620:fe::fe/128",
    ];
    assert_eq!(networks(&all, true), expected);
    assert_eq!(networks(&all, false), ["10.0.0.0/8", "9.9.9.9/32"]);
}

#[test]
fn the_user_may_set_all_routes() {
    let read = |options: &[&str]| {
        let line = ["x", "--tun"].iter().chain(options);
        Line::try_parse_from(line).map(|line| line.tun)
    };
    let args = read(&["--route", "none"]).unwrap();
    assert!(args.check().is_ok());
    for has_v6 in [true, false] {
        assert!(args.networks(has_v6).is_empty());
    }
    for (options, start) in [
        (&["--route", "10.0.0.0/8"][..], "--route none: "),
        (&["--dns", "9.9.9.9"], "--dns 9.9.9.9: "),
        (&["--keep-route", "10.0.0.0/8"], "--keep-route 10.0.0.0/8: "),
    ] {
        let args = read(&[&["--route", "none"], options].concat()).unwrap();
        let failure = args.check().unwrap_err();
        assert!(failure.message().starts_with(start), "{failure:?}");
        assert!(read(options).unwrap().check().is_ok());
    }
    let wrong = read(&["--route", "nothing"]).unwrap_err().to_string();
    let expected = "'nothing' for '--route <NETWORK|none>': expected a network, such as \
                    203.0.113.0/24 or 2001:db8::/32, or none";
    assert!(wrong.contains(expected), "{wrong}");
    let wrong = read(&["--route", "10.0.0.1/8"]).unwrap_err().to_string();
    assert!(wrong.contains("did you mean 10.0.0.0/8?"), "{wrong}");
    // A device without routed networks needs no command for routes or rules.
    let mut state = state("tun0");
    state.networks = Vec::new();
    assert!(routes::routes(&state).is_empty());
    assert!(routes::add(&state).is_empty());
}

#[test]
fn first_free_addresses_are_taken() {
    let beside = |taken: &[&str], has_v6| {
        let taken: Vec<_> = taken.iter().map(|ip| ip.parse().unwrap()).collect();
        let addresses = addresses_beside(&taken, has_v6).unwrap().into_iter();
        addresses.map(|one| one.to_string()).collect::<Vec<_>>()
    };
    let first = ["198.18.0.1/30", "fd6d:7071:7569:63a4::1/126"];
    assert_eq!(beside(&[], true), first);
    assert_eq!(beside(&["198.18.0.2"], false), first[..1]);
    // The address of either IP version may be in use.
    let second = ["198.18.0.5/30", "fd6d:7071:7569:63a4::5/126"];
    for taken in ["198.18.0.1", "fd6d:7071:7569:63a4::1"] {
        assert_eq!(beside(&[taken], true), second);
    }
    let number =
        |number: u32| IpAddr::from(Ipv4Addr::from_bits(POOL_V4.to_bits() + 4 * number + 1));
    let mut taken: Vec<_> = (0..255).map(number).collect();
    let last = addresses_beside(&taken, true).unwrap();
    assert_eq!(last[0].to_string(), "198.18.3.253/30");
    taken.push(number(255));
    assert_eq!(addresses_beside(&taken, true), None);
}

#[test]
fn the_number_of_a_device_is_what_ip_says_first() {
    let told = "7: tun0: <POINTOPOINT,UP> mtu 1400\n";
    assert_eq!(number_in(told, "tun0").unwrap(), 7);
    for wrong in ["", "tun0: 7", ": 7"] {
        let failure = number_in(wrong, "tun0").unwrap_err();
        let told = format!("`ip link show dev tun0` says {wrong:?}");
        assert_eq!(failure.message(), told);
    }
}

/// All rules are removed as far as possible, and a missing rule is no failure.
#[test]
fn rules_are_removed_though_some_are_missing() {
    let state = state("tun0");
    let removed = RefCell::new(Vec::new());
    let undone = |told: Option<&str>| {
        removed.borrow_mut().clear();
        undo_by(&state, |words| {
            removed.borrow_mut().push(words.to_vec());
            told.map_or(Ok(()), |told| Err(Failure::other(told)))
        })
    };
    assert!(undone(None).is_ok());
    assert_eq!(*removed.borrow(), routes::remove(&state));
    assert!(undone(Some("RTNETLINK answers: No such file or directory")).is_ok());
    let failure = undone(Some("RTNETLINK answers: Operation not permitted"));
    assert!(failure.unwrap_err().message().contains("not permitted"));
    assert_eq!(removed.borrow().len(), routes::remove(&state).len());
}

#[test]
fn changes_of_a_killed_client_are_undone() {
    let directory = tempfile::tempdir().unwrap();
    let places = [directory.path().join("mpquic")];
    let fine = |_: &State| panic!("nothing was left");
    let other = keep_in(&places, &state("tun1"), fine).unwrap();
    let file = keep_in(&places, &state("tun0"), fine).unwrap();
    assert_eq!(file.read().unwrap().process, 7);
    let next = State {
        process: 8,
        ..state("tun0")
    };
    let failure = keep_in(&places, &next, |_| Err(Failure::other("no"))).unwrap_err();
    assert_eq!(failure.message(), "no");
    assert_eq!(file.read().unwrap().process, 7);
    let undone = RefCell::new(Vec::new());
    let undo = |left: &State| {
        undone.borrow_mut().push(left.clone());
        Ok(())
    };
    let file = keep_in(&places, &next, undo).unwrap();
    assert_eq!(*undone.borrow(), [state("tun0")]);
    assert_eq!(file.read().unwrap().process, 8);
    assert_eq!(other.read().unwrap().name, "tun1");
    // The client was killed before it wrote the file's content.
    std::fs::write(file.path(), "").unwrap();
    let file = keep_in(&places, &next, fine).unwrap();
    assert_eq!(file.read().unwrap().process, 8);
    let nowhere = ["/dev/null/x".into()];
    let failure = keep_in(&nowhere, &next, fine).unwrap_err();
    let start = "--tun=tun0: cannot keep a state: ";
    assert!(
        failure.message().starts_with(start),
        "{}",
        failure.message()
    );
}

/// The killed client's name servers are removed before a lookup.
#[test]
fn a_killed_client_is_undone_before_a_lookup() {
    let directory = tempfile::tempdir().unwrap();
    let places = [directory.path().join("mpquic")];
    let undone = RefCell::new(Vec::new());
    let undo_killed = |is_free: bool| {
        let undo = |left: &State| {
            undone.borrow_mut().push(left.name.clone());
            Ok(())
        };
        undo_killed_in(&places, "tun0", || is_free, undo).unwrap();
    };
    let closed = State {
        kill_switch: Some(kill_switch()),
        ..state("tun0")
    };
    let file = StateFile::create(&places, &closed).unwrap();
    StateFile::create(&places, &state("tun1")).unwrap();
    undo_killed(false);
    assert_eq!(file.read().unwrap(), closed);
    undo_killed(true);
    undo_killed(true);
    assert_eq!(*undone.borrow(), ["tun0"]);
    assert_eq!(file.read().unwrap(), closed.left().unwrap());
    file.write(&state("tun0")).unwrap();
    undo_killed(true);
    assert!(file.read().is_err());
}

#[test]
fn undone_devices_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let places = [directory.path().join("mpquic")];
    let heard = Heard::begin();
    let forgotten = Cell::new(false);
    let down = |wanted, fails: &str| {
        let clean = |file: &StateFile, state: &State| {
            if state.name == fails {
                Err(Failure::other("in use"))
            } else {
                file.remove().map_err(Failure::other)
            }
        };
        let undone = down_in(&places, wanted, clean, || Ok(forgotten.take()));
        let [printed, _] = heard.take();
        (
            undone.map_err(|failure| failure.message().to_owned()),
            printed,
        )
    };
    let make = |names: &[&str]| {
        for name in names {
            StateFile::create(&places, &state(name)).unwrap();
        }
    };
    assert_eq!(down(None, ""), (Ok(()), "nothing to undo\n".to_owned()));
    make(&["tun0", "tun1", "tun2"]);
    let none = "nothing to undo for tun7\n".to_owned();
    assert_eq!(down(Some("tun7"), ""), (Ok(()), none));
    assert_eq!(
        down(Some("tun1"), ""),
        (Ok(()), "undone: tun1\n".to_owned())
    );
    // A failure for one device does not stop the work on other devices.
    let (undone, printed) = down(None, "tun0");
    assert_eq!(
        (undone, &*printed),
        (Err("in use".to_owned()), "undone: tun2\n")
    );
    assert_eq!(
        down(Some("tun0"), ""),
        (Ok(()), "undone: tun0\n".to_owned())
    );
    assert_eq!(down(None, "").1, "nothing to undo\n");
    forgotten.set(true);
    assert_eq!(down(None, "").1, "undone: the kill switch\n");
    assert_eq!(down(None, "").1, "nothing to undo\n");
}

/// A lookup of the proxy's name fails while the kill switch is closed.
#[test]
fn a_closed_kill_switch_knows_its_proxy() {
    let directory = tempfile::tempdir().unwrap();
    let places = [directory.path().join("mpquic")];
    let is_closed = Cell::new(true);
    let left = |device: &str, options: &[&str], proxy: &str| {
        let line = ["x", "--tun"].iter().chain(options);
        let args = Line::try_parse_from(line).unwrap().tun;
        let left = addresses_left_in(&places, device, &args, proxy, || Ok(is_closed.get()));
        left.map_err(|failure| failure.message().to_owned())
    };
    let with = &["--kill-switch"][..];
    assert_eq!(left("tun0", with, "proxy.example"), Ok(None));
    StateFile::create(&places, &state("tun1")).unwrap();
    assert_eq!(left("tun0", with, "proxy.example"), Ok(None));
    let closed = State {
        kill_switch: Some(kill_switch()),
        ..state("tun0")
    };
    StateFile::create(&places, &closed).unwrap();
    let addresses = kill_switch().addresses;
    assert_eq!(left("tun0", with, "proxy.example"), Ok(Some(addresses)));
    assert_eq!(left("tun0", with, "other.example"), Ok(None));
    let told = left("tun0", &[], "proxy.example").unwrap_err();
    assert!(told.contains("`mpquic proxy down tun0`"), "{told}");
    let told = left("tun1", with, "proxy.example").unwrap_err();
    assert!(
        told.starts_with("the kill switch of tun0 is closed"),
        "{told}"
    );
    is_closed.set(false);
    assert_eq!(left("tun1", &[], "proxy.example"), Ok(None));
}

#[test]
fn a_kill_switch_has_no_other_routed_networks() {
    let read = |options: &[&str]| {
        let line = ["x"].iter().chain(options);
        Line::try_parse_from(line).map(|line| line.tun.kill_switch)
    };
    assert_eq!(
        read(&["--tun", "--kill-switch"]).unwrap(),
        Some(Scope::Strict)
    );
    assert_eq!(
        read(&["--tun", "--kill-switch=lan"]).unwrap(),
        Some(Scope::Lan)
    );
    assert_eq!(read(&["--tun"]).unwrap(), None);
    assert!(read(&["--kill-switch"]).is_err());
    assert!(read(&["--tun", "--kill-switch", "--route", "10.0.0.0/8"]).is_err());
}
