//! Tests of the default plan: retries, unsure addresses, withdrawn and preferred addresses.

use mpquic_core::TransportErrorCode;

use super::*;
use crate::testing::epoch;

fn local(address: &str) -> Local {
    Local::new(address.parse().expect("an address"))
}

/// A plan whose handshake runs on `first`, with these local addresses; `named` are further
/// addresses of the server.
fn plan_with(first: FourTuple, named: &[SocketAddr], locals: &[Local]) -> Plan {
    Plan::new(&Start::new(first, locals).remotes(named))
}

#[test]
fn failed_paths_rest_and_lost_addresses_are_forgotten() {
    let now = epoch();
    let (a, b) = (local("127.0.0.1:1"), local("127.0.0.2:1"));
    let first = FourTuple::new(a.address(), "127.0.0.3:1".parse().unwrap());
    let mut plan = plan_with(first, &[], &[a.clone(), b]);
    assert_eq!(plan.targets.len(), 2);
    plan.is_multipath = true;
    plan.targets[1].path = Some(PathId(1));
    for rest in [1, 2, 4, 8, 16, 32, 60, 60] {
        plan.targets[1].path = Some(PathId(1));
        plan.on_path_event(&abandoned(1), now);
        let until = now + Duration::from_secs(rest);
        assert_eq!(plan.next_timeout(), Some(until));
        let target = &plan.targets[1];
        let idle = || 0;
        assert!(!target.is_due(now, idle) && target.is_due(until, idle));
        // On a busy connection, the path is due after the first backoff.
        let busy = || WORTH_A_TRY;
        assert!(!target.is_due(now, busy) && target.is_due(now + FIRST_BACKOFF, busy));
        let less = target.is_due(now + FIRST_BACKOFF, || WORTH_A_TRY - 1);
        assert_eq!(less, rest == 1);
    }
    // After a change of the network, the first backoff is long enough.
    plan.retry_soon();
    assert_eq!(plan.next_timeout(), Some(now + FIRST_BACKOFF));
    plan.targets[1].path = Some(PathId(1));
    plan.targets[1].rest = None;
    plan.on_path_event(&abandoned(1), now);
    assert_eq!(plan.next_timeout(), Some(now + FIRST_BACKOFF));
    // The peer allows no further path at present, or none at all.
    plan.is_blocked = true;
    assert_eq!(plan.next_timeout(), None);
    plan.on_path_event(&PathEvent::Available, now);
    assert!(plan.next_timeout().is_some());
    plan.is_multipath = false;
    assert_eq!(plan.next_timeout(), None);
    plan.is_multipath = true;
    // The application has closed the path.
    plan.targets[1].is_impossible = true;
    assert_eq!(plan.next_timeout(), None);
    plan.set_locals(&[a]);
    assert_eq!(plan.targets.len(), 1);
}

/// Only paths that never worked are given up, and only at addresses that the application has not
/// named.
#[test]
fn announced_addresses_that_never_answer_are_given_up() {
    let now = epoch();
    let local = local("127.0.0.1:1");
    let first = FourTuple::new(local.address(), "127.0.0.3:1".parse().unwrap());
    let announced = ServerAddress::new("127.0.0.4:1".parse().unwrap());
    let named = [announced.address];
    for (has_worked, named) in [(false, &[][..]), (true, &[]), (false, &named)] {
        let mut plan = plan_with(first, named, std::slice::from_ref(&local));
        plan.is_multipath = true;
        plan.on_path_event(&PathEvent::ServerAddresses([announced].into()), now);
        assert_eq!(plan.targets.len(), 2);
        for failures in 1..=5 {
            plan.targets[1].path = Some(PathId(1));
            if has_worked {
                plan.on_path_event(&PathEvent::Established(PathId(1)), now);
            }
            plan.on_path_event(&abandoned(1), now);
            let tries = plan.next_timeout().is_some();
            let is_worth_it = has_worked || !named.is_empty();
            assert_eq!(tries, is_worth_it || failures < 3, "{failures}");
        }
        if !named.is_empty() {
            continue;
        }
        // An address that the server withdraws and announces again is tried like a new one.
        plan.on_path_event(&PathEvent::ServerAddresses([].into()), now);
        assert_eq!(plan.targets.len(), 1);
        plan.on_path_event(&PathEvent::ServerAddresses([announced].into()), now);
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

/// Targets of other local addresses stay given up.
#[test]
fn a_local_address_that_works_makes_its_targets_worth_a_try() {
    let now = epoch();
    let locals = [local("127.0.0.1:1"), local("127.0.0.2:1")];
    let first = FourTuple::new(locals[0].address(), "127.0.0.3:1".parse().unwrap());
    let announced = ServerAddress::new("127.0.0.4:1".parse().unwrap());
    let mut plan = plan_with(first, &[], &locals);
    plan.is_multipath = true;
    plan.on_path_event(&PathEvent::ServerAddresses([announced].into()), now);
    let to_announced = |plan: &Plan, local: usize| {
        let four_tuple = FourTuple::new(locals[local].address(), announced.address);
        let mut targets = plan.targets.iter();
        targets
            .position(|target| target.four_tuple == four_tuple)
            .unwrap()
    };
    let all = [0, 1].map(|local| to_announced(&plan, local));
    for _ in 0..ATTEMPTS_IF_UNSURE {
        for index in all {
            plan.targets[index].path = Some(PathId(9));
            plan.on_path_event(&abandoned(9), now);
        }
    }
    assert!(all.iter().all(|index| plan.targets[*index].is_given_up));
    // The path of the handshake works.
    plan.on_path_event(&PathEvent::Established(PathId::ZERO), now);
    assert_eq!(
        all.map(|index| plan.targets[index].is_given_up),
        [false, true]
    );
    assert_eq!(plan.targets[all[0]].failures, Some(0));
}

/// Three addresses are withdrawn: the first has a path, the second has no path, and the application
/// names the third.
#[test]
fn withdrawn_addresses_without_a_path_need_not_be_left() {
    let now = epoch();
    let local = local("127.0.0.1:1");
    let first = FourTuple::new(local.address(), "127.0.0.3:1".parse().unwrap());
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    let all = ["127.0.0.4:1", "127.0.0.5:1", "127.0.0.6:1"].map(address);
    let mut plan = plan_with(first, &all[2..], &[local]);
    plan.is_multipath = true;
    plan.on_path_event(
        &PathEvent::ServerAddresses(all.map(ServerAddress::new).into()),
        now,
    );
    for (index, target) in plan.targets.iter_mut().enumerate() {
        let has_path = target.four_tuple.remote != all[1];
        target.path = has_path.then_some(PathId(index as u32));
    }
    plan.on_path_event(&PathEvent::ServerAddresses([].into()), now);
    // The second has no path, and the application has named the third.
    assert_eq!(plan.withdrawn, [all[0]]);
}

#[test]
fn mp_019_further_paths_lead_to_the_preferred_address() {
    let now = epoch();
    let (a, b) = (local("127.0.0.1:1"), local("127.0.0.2:1"));
    let handshake = "127.0.0.3:1".parse().unwrap();
    let preferred: SocketAddr = "127.0.0.4:2".parse().unwrap();
    let first = FourTuple::new(a.address(), handshake);
    let mut plan = plan_with(first, &[preferred], &[a.clone(), b.clone()]);
    assert_eq!(plan.targets.len(), 4);
    let open = |plan: &Plan| {
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
        .find(|target| target.four_tuple == FourTuple::new(b.address(), handshake))
        .unwrap()
        .path = Some(PathId(1));
    let moved = FourTuple::new(a.address(), preferred);
    plan.on_path_event(&PathEvent::Migrated(PathId::ZERO, moved), now);
    // A path to the former address stays as long as it works.
    assert_eq!(open(&plan).len(), 3);
    assert!(open(&plan).contains(&FourTuple::new(b.address(), handshake)));
    plan.on_path_event(&abandoned(1), now);
    assert!(open(&plan).iter().all(|target| target.remote == preferred));
    assert_eq!(plan.remotes, [preferred]);
}

#[test]
fn mp_019_paths_that_are_not_open_yet_lead_to_the_preferred_address() {
    let now = epoch();
    let (a, b) = (local("127.0.0.1:1"), local("127.0.0.2:1"));
    let [handshake, preferred] = ["127.0.0.3:1", "127.0.0.4:2"].map(|to| to.parse().unwrap());
    let mut plan = plan_with(
        FourTuple::new(a.address(), handshake),
        &[],
        &[a.clone(), b.clone()],
    );
    let moved = FourTuple::new(a.address(), preferred);
    plan.on_path_event(&PathEvent::Migrated(PathId::ZERO, moved), now);
    let all: Vec<_> = plan
        .targets
        .iter()
        .map(|target| target.four_tuple)
        .collect();
    assert_eq!(all, [moved, FourTuple::new(b.address(), preferred)]);
}

#[test]
fn mp_019_the_preferred_address_takes_the_place_of_the_former_one() {
    let local = local("127.0.0.1:1");
    let [handshake, preferred, other] =
        ["127.0.0.3:1", "127.0.0.4:2", "127.0.0.5:1"].map(|to| to.parse().unwrap());
    for (known, expected) in [
        (&[other][..], [preferred, other]),
        (&[other, preferred], [other, preferred]),
    ] {
        let mut plan = plan_with(
            FourTuple::new(local.address(), handshake),
            known,
            std::slice::from_ref(&local),
        );
        let moved = FourTuple::new(local.address(), preferred);
        plan.on_path_event(&PathEvent::Migrated(PathId::ZERO, moved), epoch());
        assert_eq!(plan.remotes, expected);
    }
}

#[test]
fn the_address_that_the_handshake_left_gets_a_path() {
    let (a, b) = (local("127.0.0.1:1"), local("127.0.0.2:1"));
    let server = "127.0.0.3:1".parse().unwrap();
    let [first, second] = [&a, &b].map(|local| FourTuple::new(local.address(), server));
    let mut plan = plan_with(first, &[], &[a.clone(), b.clone()]);
    plan.on_path_event(&PathEvent::Migrated(PathId::ZERO, second), epoch());
    let targets = plan.targets.iter();
    let targets: Vec<_> = targets.map(|it| (it.four_tuple, it.path)).collect();
    assert_eq!(targets, [(second, Some(PathId::ZERO)), (first, None)]);
}

/// The addresses from which a plan would open paths now.
fn due(plan: &Plan, now: Instant) -> Vec<SocketAddr> {
    let due = |target: &&Target| target.is_due(now, || 0) && !plan.is_spare(target);
    let due = plan.targets.iter().filter(due);
    due.map(|target| target.four_tuple.local).collect()
}

#[test]
fn of_an_interface_another_address_is_tried_where_one_is_silent() {
    let now = epoch();
    let (first, second) = (
        local("10.0.0.1:1").on("eth0"),
        local("10.0.0.2:1").on("eth0"),
    );
    let other = local("10.0.1.1:1").on("eth1");
    let server = "192.0.2.1:1".parse().unwrap();
    let start = FourTuple::new(other.address(), server);
    let mut plan = plan_with(start, &[], &[first.clone(), second.clone(), other]);
    plan.is_multipath = true;
    assert_eq!(due(&plan, now), [first.address()]);
    let find = |plan: &Plan, local: &Local| {
        let mut targets = plan.targets.iter();
        targets.position(|target| target.four_tuple.local == local.address())
    };
    let [at, beside] = [&first, &second].map(|local| find(&plan, local).unwrap());
    plan.targets[at].path = Some(PathId(1));
    assert!(due(&plan, now).is_empty());
    plan.on_path_event(&abandoned(1), now);
    assert_eq!(due(&plan, now), [second.address()]);
    // While the second address has the path, the plan leaves the first address alone.
    plan.targets[beside].path = Some(PathId(2));
    assert_eq!(plan.next_timeout(), None);
    assert!(due(&plan, now + MAX_BACKOFF).is_empty());
    // It failed as well: now they take turns.
    plan.on_path_event(&abandoned(2), now + FIRST_BACKOFF / 2);
    assert_eq!(plan.next_timeout(), Some(now + FIRST_BACKOFF));
    assert_eq!(due(&plan, now + FIRST_BACKOFF), [first.address()]);
    // The application wants no path there.
    plan.on_application(FourTuple::new(first.address(), server), None);
    assert!(due(&plan, now + MAX_BACKOFF).is_empty());
}
