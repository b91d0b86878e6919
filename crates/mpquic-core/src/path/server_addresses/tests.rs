use proptest::prelude::*;

use super::*;
use crate::packet::writer::written;
use crate::recovery::testing::{ms, start};
use crate::server_address::Reach;

fn address(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn server(text: &str) -> ServerAddress {
    ServerAddress::new(address(text))
}

fn entries(all: &[&str]) -> Vec<AddressEntry> {
    let entries = all.iter().map(|text| AddressEntry {
        priority_hint: 0,
        address: address(text),
    });
    entries.collect()
}

fn frame(sequence_number: u64, preferred: &[&str]) -> AlternativeAddress {
    AlternativeAddress {
        sequence_number,
        preferred: entries(preferred),
        backup: Vec::new(),
    }
}

fn sent(addresses: &mut ServerAddresses) -> Vec<Frame> {
    written(1000, |w| addresses.write_frames(w)).0
}

/// The numbers and addresses of what is sent.
fn announced(addresses: &mut ServerAddresses) -> Vec<(u64, Vec<SocketAddr>)> {
    let frames = sent(addresses).into_iter();
    let frames = frames.map(|frame| match frame {
        Frame::AlternativeAddress(frame) => {
            let all = frame.preferred.iter().chain(&frame.backup);
            (
                frame.sequence_number,
                all.map(|entry| entry.address).collect(),
            )
        }
        other => panic!("{other:?}"),
    });
    frames.collect()
}

/// Addresses announced to a client that found its server at `known`.
fn told(known: &str, preferred: &[&str]) -> Vec<SocketAddr> {
    let mut addresses = ServerAddresses::new(true);
    let told = addresses.on_alternative_address(start(), &frame(0, preferred), address(known));
    let told = told.unwrap().unwrap_or_default();
    told.iter().map(|server| server.address).collect()
}

#[test]
fn section_3_nothing_is_sent_before_the_client_wants_it() {
    let mut addresses = ServerAddresses::default();
    let second = server("192.0.2.2:443");
    assert_eq!(addresses.announce(&[second], false), Ok(()));
    assert!(!addresses.wants_to_send() && sent(&mut addresses).is_empty());
    addresses.on_wanted();
    assert!(addresses.wants_to_send());
    assert_eq!(announced(&mut addresses), [(0, vec![second.address])]);
    assert!(!addresses.wants_to_send());
}

#[test]
fn section_5_each_set_has_a_larger_number_and_only_the_newest_is_repeated() {
    let mut addresses = ServerAddresses::default();
    let (a, b) = (server("192.0.2.2:443"), server("192.0.2.3:443"));
    assert_eq!(addresses.announce(&[], true), Ok(()));
    assert!(!addresses.wants_to_send(), "nothing was announced before");
    assert_eq!(addresses.announce(&[a, b.backup()], true), Ok(()));
    assert_eq!(
        sent(&mut addresses),
        [Frame::AlternativeAddress(AlternativeAddress {
            sequence_number: 0,
            preferred: entries(&["192.0.2.2:443"]),
            backup: entries(&["192.0.2.3:443"]),
        })]
    );
    assert_eq!(addresses.announce(&[a, b.backup()], true), Ok(()));
    assert!(!addresses.wants_to_send(), "nothing has changed");
    addresses.on_delivery(0, Fate::Lost);
    assert_eq!(announced(&mut addresses).len(), 1, "lost");
    assert_eq!(addresses.announce(&[b], true), Ok(()));
    assert_eq!(announced(&mut addresses), [(1, vec![b.address])]);
    addresses.on_delivery(0, Fate::Lost);
    assert!(!addresses.wants_to_send(), "it is out of date");
    addresses.on_delivery(1, Fate::Acked);
    addresses.on_delivery(1, Fate::Lost);
    assert!(!addresses.wants_to_send(), "it has arrived");
    assert_eq!(addresses.announce(&[], true), Ok(()));
    assert_eq!(announced(&mut addresses), [(2, vec![])]);
}

#[test]
fn section_5_priorities_rise_on_each_side() {
    let mut addresses = ServerAddresses::default();
    let all = ["192.0.2.4:443", "192.0.2.3:443", "192.0.2.2:443"].map(server);
    assert_eq!(
        addresses.announce(&[all[0], all[1].backup(), all[2]], true),
        Ok(())
    );
    let frames = sent(&mut addresses);
    let [Frame::AlternativeAddress(frame)] = &frames[..] else {
        panic!("{frames:?}");
    };
    let hints = |entries: &[AddressEntry]| -> Vec<_> {
        let entries = entries.iter();
        entries
            .map(|entry| (entry.priority_hint, entry.address))
            .collect()
    };
    assert_eq!(
        hints(&frame.preferred),
        [(0, all[0].address), (1, all[2].address)]
    );
    assert_eq!(hints(&frame.backup), [(0, all[1].address)]);
}

#[test]
fn impossible_addresses_are_not_announced() {
    let mut addresses = ServerAddresses::default();
    for wrong in [
        "0.0.0.0:443",
        "192.0.2.1:0",
        "224.0.0.1:443",
        "[::]:443",
        "[fe80::1]:443",
    ] {
        let refused = addresses.announce(&[server(wrong)], true);
        assert_eq!(refused, Err(AnnounceError::NotUsable(address(wrong))));
    }
    let a = server("192.0.2.1:443");
    let twice = Err(AnnounceError::Twice(a.address));
    assert_eq!(addresses.announce(&[a, a.backup()], true), twice);
    let many = (0..9).map(|host| ServerAddress::new(([192, 0, 2, host], 443).into()));
    let many: Vec<_> = many.collect();
    assert_eq!(
        addresses.announce(&many, true),
        Err(AnnounceError::TooMany(9))
    );
    assert!(!addresses.wants_to_send());
    assert_eq!(addresses.announce(&many[..8], true), Ok(()));
    assert_eq!(announced(&mut addresses)[0].1.len(), 8, "all in one frame");
}

#[test]
fn section_5_old_frames_are_ignored() {
    let known = address("192.0.2.1:443");
    let mut addresses = ServerAddresses::new(true);
    let mut told = |sequence, preferred: &[&str]| {
        let frame = frame(sequence, preferred);
        let told = addresses.on_alternative_address(start(), &frame, known);
        told.unwrap().map(<[ServerAddress]>::to_vec)
    };
    let (a, b) = ("192.0.2.2:443", "[2001:db8::1]:443");
    assert_eq!(told(5, &[a, b]), Some(vec![server(a), server(b)]));
    assert_eq!(told(5, &[a]), None);
    assert_eq!(told(4, &[a]), None);
    assert_eq!(told(6, &[a, b]), None, "nothing has changed");
    assert_eq!(told(7, &[b]), Some(vec![server(b)]));
    assert_eq!(told(9, &[]), Some(vec![]));
    assert_eq!(told(8, &[a]), None);
}

#[test]
fn section_3_the_frame_is_unknown_without_the_parameter() {
    for mut addresses in [ServerAddresses::default(), ServerAddresses::new(false)] {
        let known = address("192.0.2.1:443");
        let error = addresses.on_alternative_address(start(), &frame(0, &[]), known);
        assert_eq!(
            error.unwrap_err().fault,
            Fault::AlternativeAddressNotAnnounced
        );
    }
}

#[test]
fn rfc_9000_21_5_6_a_server_names_no_machine_that_only_its_client_reaches() {
    let all = [
        "192.0.2.2:443",
        "[2001:db8::2]:443",
        "10.1.2.3:443",
        "172.16.0.1:443",
        "192.168.1.1:443",
        "100.64.0.1:443",
        "[fd00::1]:443",
        "169.254.1.1:443",
        "127.0.0.2:443",
        "[::1]:443",
    ];
    let never = [
        "0.0.0.0:443",
        "0.1.2.3:443",
        "224.0.0.1:443",
        "255.255.255.255:443",
        "192.0.2.3:0",
        "[::]:443",
        "[ff02::1]:443",
        "[fe80::1]:443",
        "[::ffff:192.0.2.9]:443",
        "[::ffff:127.0.0.1]:443",
        "[::10.0.0.1]:443",
    ];
    for (known, own) in [
        ("192.0.2.1:443", 0..0),
        ("[2001:db8::1]:443", 0..0),
        ("10.0.0.1:443", 2..7),
        ("[fd00::9]:443", 2..7),
        ("169.254.9.9:443", 7..8),
        ("127.0.0.1:443", 8..10),
        ("[::1]:443", 8..10),
        ("[::ffff:127.0.0.1]:443", 8..10),
    ] {
        let expected = all[..2].iter().chain(&all[own]);
        let expected: Vec<_> = expected.map(|text| address(text)).collect();
        let mut seen = Vec::new();
        // Each alone, within the limit.
        for text in all.iter().chain(&never) {
            seen.extend(told(known, &[text]));
        }
        assert_eq!(seen, expected, "{known}");
    }
}

/// However many there are, and however often they change.
#[test]
fn a_server_names_few_addresses_and_new_ones_seldom() {
    let known = address("192.0.2.1:443");
    let mut addresses = ServerAddresses::new(true);
    let mut now = start();
    let mut named = std::collections::BTreeSet::new();
    let set = |round: u8| AlternativeAddress {
        sequence_number: round.into(),
        preferred: Vec::from_iter((0..100).map(|host| AddressEntry {
            priority_hint: 0,
            address: ([192, 88, round, host], 443).into(),
        })),
        backup: entries(&["192.0.2.2:443"]),
    };
    for round in 0..100 {
        let told = addresses
            .on_alternative_address(now, &set(round), known)
            .unwrap();
        let told = told.unwrap_or_default();
        assert!(told.len() <= ServerAddress::MAX);
        named.extend(told.iter().map(|server| server.address));
    }
    assert_eq!(named.len(), BURST as usize);
    now += 2 * INTERVAL - ms(1);
    let told = addresses.on_alternative_address(now, &set(100), known);
    assert_eq!(told.unwrap().map(<[_]>::len), Some(1));
    // What is known already is not new.
    let told = addresses.on_alternative_address(now, &set(101), known);
    assert_eq!(told.unwrap().map(<[_]>::len), Some(0));
}

proptest! {
    /// Private addresses are only named in their own network, and the result is bounded.
    #[test]
    fn any_frame_does_no_harm(
        sequence_number in 0..1u64 << 62,
        preferred in prop::collection::vec(any::<(u128, u16)>(), 0..30),
        backup in prop::collection::vec(any::<(u32, u16)>(), 0..30),
    ) {
        let entry = |address| AddressEntry { priority_hint: 0, address };
        let v6 = |(ip, port): (u128, u16)| SocketAddr::from((ip.to_be_bytes(), port));
        let v4 = |(ip, port): (u32, u16)| SocketAddr::from((ip.to_be_bytes(), port));
        let frame = AlternativeAddress {
            sequence_number,
            preferred: preferred.into_iter().map(v6).map(entry).collect(),
            backup: backup.into_iter().map(v4).map(entry).collect(),
        };
        let mut addresses = ServerAddresses::new(true);
        let told = addresses.on_alternative_address(start(), &frame, address("192.0.2.1:443"));
        let told = told.unwrap().unwrap_or_default();
        prop_assert!(told.len() <= ServerAddress::MAX);
        prop_assert!(told.iter().all(|server| Reach::of(server.address.ip()) == Reach::Global));
    }
}
