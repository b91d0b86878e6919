//! What a plan does with what happens to paths and addresses.

use super::*;
use crate::runtime::{Runtime, TokioRuntime};
use crate::testing::Network;

fn socket(address: &str) -> Arc<Socket> {
    let port = Network::default().bind(address.parse().unwrap());
    Arc::new(Socket::simulated(&port))
}

#[test]
fn pairs_cover_all_addresses_of_both_sides_first() {
    let locals = [socket("127.0.0.1:1"), socket("127.0.0.2:1")];
    let remotes: Vec<SocketAddr> = ["127.0.0.3:1", "127.0.0.4:1", "[::1]:1"]
        .iter()
        .map(|address| address.parse().unwrap())
        .collect();
    let pairs = address_pairs(&locals, &remotes);
    assert_eq!(pairs.len(), 4, "IPv6 cannot be reached: {pairs:?}");
    assert_ne!(pairs[0].local, pairs[1].local);
    assert_ne!(pairs[0].remote, pairs[1].remote);
}

/// RFC 6724: of a link with several addresses, each destination has the one that suits it.
#[test]
fn paths_of_an_interface_start_at_the_address_that_suits() {
    let on = |interface: Option<&str>, address: &str| {
        let port = Network::default().bind(address.parse().unwrap());
        Arc::new(Socket::simulated_on(&port, interface))
    };
    let locals = [
        on(Some("eth0"), "[fd77::1]:1"),
        on(Some("eth0"), "[2001:db8::1]:1"),
        on(Some("eth1"), "[fd78::1]:1"),
        on(None, "[fd79::1]:1"),
    ];
    let starts = |remote: &str| -> Vec<String> {
        let pairs = address_pairs(&locals, &[remote.parse().unwrap()]);
        let locals = pairs.iter().map(|pair| pair.local.ip().to_string());
        locals.collect()
    };
    // What was named stays, and one network may translate what it has.
    assert_eq!(starts("[2600::1]:5"), ["2001:db8::1", "fd78::1", "fd79::1"]);
    assert_eq!(starts("[fd00::1]:5"), ["fd77::1", "fd78::1", "fd79::1"]);
}

#[test]
fn failed_paths_rest_and_lost_addresses_are_forgotten() {
    let now = TokioRuntime.now();
    let (a, b) = (socket("127.0.0.1:1"), socket("127.0.0.2:1"));
    let first = FourTuple::new(a.local(), "127.0.0.3:1".parse().unwrap());
    let mut plan = PathPlan::new(first, &[]);
    plan.set_locals(vec![a.clone(), b.clone()]);
    assert_eq!(plan.targets.len(), 2);
    plan.is_multipath = true;
    plan.targets[1].path = Some(PathId(1));
    for rest in [1, 2, 4, 8, 16, 32, 60, 60] {
        plan.targets[1].path = Some(PathId(1));
        plan.on_event(&abandoned(1), now);
        let until = now + Duration::from_secs(rest);
        assert_eq!(plan.next_timeout(), Some(until));
        let target = &plan.targets[1];
        let idle = || 0;
        assert!(!target.is_due(now, idle) && target.is_due(until, idle));
        // There is enough to carry.
        let busy = || WORTH_A_TRY;
        assert!(!target.is_due(now, busy) && target.is_due(now + FIRST_BACKOFF, busy));
        let less = target.is_due(now + FIRST_BACKOFF, || WORTH_A_TRY - 1);
        assert_eq!(less, rest == 1);
    }
    // The network changed: it need not rest any longer than after its first failure.
    #[cfg(feature = "interfaces")]
    {
        assert!(plan.retry_soon());
        assert_eq!(plan.next_timeout(), Some(now + FIRST_BACKOFF));
        plan.targets[1].path = Some(PathId(1));
        plan.targets[1].rest = None;
        assert!(!plan.retry_soon(), "nothing rests");
        plan.on_event(&abandoned(1), now);
        assert_eq!(plan.next_timeout(), Some(now + FIRST_BACKOFF));
    }
    // The peer allows no further path at present, or none at all.
    plan.is_blocked = true;
    assert_eq!(plan.next_timeout(), None);
    plan.on_event(&PathEvent::Available, now);
    assert!(plan.next_timeout().is_some());
    plan.is_multipath = false;
    assert_eq!(plan.next_timeout(), None);
    plan.is_multipath = true;
    // Nor does the application want one there.
    plan.targets[1].is_impossible = true;
    assert_eq!(plan.next_timeout(), None);
    plan.set_locals(vec![a]);
    assert_eq!(plan.targets.len(), 1);
}

/// A path that has worked once is tried for ever, as is one to an address that the application has named.
#[test]
fn announced_addresses_that_never_answer_are_given_up() {
    let now = TokioRuntime.now();
    let local = socket("127.0.0.1:1");
    let first = FourTuple::new(local.local(), "127.0.0.3:1".parse().unwrap());
    let announced = ServerAddress::new("127.0.0.4:1".parse().unwrap());
    let named = [announced.address];
    for (has_worked, named) in [(false, &[][..]), (true, &[]), (false, &named)] {
        let mut plan = PathPlan::new(first, named);
        plan.set_locals(vec![local.clone()]);
        plan.is_multipath = true;
        plan.on_event(&PathEvent::ServerAddresses([announced].into()), now);
        assert_eq!(plan.targets.len(), 2);
        for failures in 1..=5 {
            plan.targets[1].path = Some(PathId(1));
            if has_worked {
                plan.on_event(&PathEvent::Established(PathId(1)), now);
            }
            plan.on_event(&abandoned(1), now);
            let tries = plan.next_timeout().is_some();
            let is_worth_it = has_worked || !named.is_empty();
            assert_eq!(tries, is_worth_it || failures < 3, "{failures}");
        }
        if !named.is_empty() {
            continue;
        }
        // One that the server has announced anew is new.
        plan.on_event(&PathEvent::ServerAddresses([].into()), now);
        assert_eq!(plan.targets.len(), 1);
        plan.on_event(&PathEvent::ServerAddresses([announced].into()), now);
        assert!(plan.targets[1].is_due(now, || 0));
    }
}

fn abandoned(path: u32) -> PathEvent {
    PathEvent::Abandoned {
        path: PathId(path),
        error_code: TransportErrorCode::PATH_UNSTABLE_OR_POOR,
        by_peer: false,
    }
}

/// Not so what was given up at another local address.
#[test]
fn a_local_address_that_works_makes_its_targets_worth_a_try() {
    let now = TokioRuntime.now();
    let locals = [socket("127.0.0.1:1"), socket("127.0.0.2:1")];
    let first = FourTuple::new(locals[0].local(), "127.0.0.3:1".parse().unwrap());
    let announced = ServerAddress::new("127.0.0.4:1".parse().unwrap());
    let mut plan = PathPlan::new(first, &[]);
    plan.set_locals(locals.to_vec());
    plan.is_multipath = true;
    plan.on_event(&PathEvent::ServerAddresses([announced].into()), now);
    let to_announced = |plan: &PathPlan, local: usize| {
        let four_tuple = FourTuple::new(locals[local].local(), announced.address);
        let mut targets = plan.targets.iter();
        targets
            .position(|target| target.four_tuple == four_tuple)
            .unwrap()
    };
    let all = [0, 1].map(|local| to_announced(&plan, local));
    for _ in 0..ATTEMPTS_IF_UNSURE {
        for index in all {
            plan.targets[index].path = Some(PathId(9));
            plan.on_event(&abandoned(9), now);
        }
    }
    assert!(all.iter().all(|index| plan.targets[*index].is_given_up));
    // The path of the handshake works.
    plan.on_event(&PathEvent::Established(PathId::ZERO), now);
    assert_eq!(
        all.map(|index| plan.targets[index].is_given_up),
        [false, true]
    );
    assert_eq!(plan.targets[all[0]].failures, Some(0));
}

/// Of addresses that the server withdraws, those with a path are left once another one works.
#[test]
fn only_paths_that_are_there_have_to_be_left() {
    let now = TokioRuntime.now();
    let local = socket("127.0.0.1:1");
    let first = FourTuple::new(local.local(), "127.0.0.3:1".parse().unwrap());
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let all = ["127.0.0.4:1", "127.0.0.5:1", "127.0.0.6:1"].map(address);
    let mut plan = PathPlan::new(first, &all[2..]);
    plan.set_locals(vec![local]);
    plan.is_multipath = true;
    plan.on_event(
        &PathEvent::ServerAddresses(all.map(ServerAddress::new).into()),
        now,
    );
    for (index, target) in plan.targets.iter_mut().enumerate() {
        let has_path = target.four_tuple.remote != all[1];
        target.path = has_path.then_some(PathId(index as u32));
    }
    plan.on_event(&PathEvent::ServerAddresses([].into()), now);
    // The application has named the third.
    assert_eq!(plan.withdrawn, [all[0]]);
}

#[test]
fn mp_019_further_paths_lead_to_the_preferred_address() {
    let now = TokioRuntime.now();
    let (a, b) = (socket("127.0.0.1:1"), socket("127.0.0.2:1"));
    let handshake = "127.0.0.3:1".parse().unwrap();
    let preferred: SocketAddr = "127.0.0.4:2".parse().unwrap();
    let first = FourTuple::new(a.local(), handshake);
    let mut plan = PathPlan::new(first, &[preferred]);
    plan.set_locals(vec![a.clone(), b.clone()]);
    assert_eq!(plan.targets.len(), 4);
    let open = |plan: &PathPlan| {
        let mut targets: Vec<_> = plan
            .targets
            .iter()
            .map(|target| target.four_tuple)
            .collect();
        targets.sort_by_key(|target| target.local);
        targets
    };
    plan.targets
        .iter_mut()
        .find(|target| target.four_tuple == FourTuple::new(b.local(), handshake))
        .unwrap()
        .path = Some(PathId(1));
    let moved = FourTuple::new(a.local(), preferred);
    plan.on_event(&PathEvent::Migrated(PathId::ZERO, moved), now);
    // The path that leads to the old address stays as long as it works.
    assert_eq!(open(&plan).len(), 3);
    assert!(open(&plan).contains(&FourTuple::new(b.local(), handshake)));
    plan.on_event(&abandoned(1), now);
    assert!(open(&plan).iter().all(|target| target.remote == preferred));
    assert_eq!(plan.remotes, [preferred]);
}

#[test]
fn mp_019_paths_that_are_not_open_yet_lead_to_the_preferred_address() {
    let now = TokioRuntime.now();
    let (a, b) = (socket("127.0.0.1:1"), socket("127.0.0.2:1"));
    let [handshake, preferred] = ["127.0.0.3:1", "127.0.0.4:2"].map(|to| to.parse().unwrap());
    let mut plan = PathPlan::new(FourTuple::new(a.local(), handshake), &[]);
    plan.set_locals(vec![a.clone(), b.clone()]);
    let moved = FourTuple::new(a.local(), preferred);
    plan.on_event(&PathEvent::Migrated(PathId::ZERO, moved), now);
    let all: Vec<_> = plan
        .targets
        .iter()
        .map(|target| target.four_tuple)
        .collect();
    assert_eq!(all, [moved, FourTuple::new(b.local(), preferred)]);
}

#[test]
fn mp_019_the_preferred_address_takes_the_place_of_the_former_one() {
    let local = socket("127.0.0.1:1");
    let [handshake, preferred, other] =
        ["127.0.0.3:1", "127.0.0.4:2", "127.0.0.5:1"].map(|to| to.parse().unwrap());
    for (known, expected) in [
        (&[other][..], [preferred, other]),
        (&[other, preferred], [other, preferred]),
    ] {
        let mut plan = PathPlan::new(FourTuple::new(local.local(), handshake), known);
        plan.set_locals(vec![local.clone()]);
        let moved = FourTuple::new(local.local(), preferred);
        plan.on_event(
            &PathEvent::Migrated(PathId::ZERO, moved),
            TokioRuntime.now(),
        );
        assert_eq!(plan.remotes, expected);
    }
}
