//! Version Negotiation, packets that come early or never belonged there, and what an attacker on
//! the path may inject.

use super::*;

#[test]
fn rfc_9000_6_2_version_negotiation_ends_the_attempt() {
    let mut test = Test::new();
    let mut client = test.connect();
    let initial = test.datagrams(&mut client.1).remove(0);
    test.give_client(
        &mut client,
        version_negotiation(&initial, &[0xff00_0020, 0x709a_50c4]),
    );
    assert_eq!(lost(&mut client.1), Some(ConnectionError::VersionMismatch));
    assert!(client.1.is_drained());
    test.events(&mut client, &mut None);
    assert_eq!(test.client.open_connections(), 0);
}

#[test]
fn rfc_9000_6_2_version_negotiation_with_our_version_or_too_late_is_ignored() {
    let mut test = Test::new();
    let mut client = test.connect();
    let mut server = None;
    let flight = test.datagrams(&mut client.1);
    let initial = flight[0].clone();
    test.give_client(&mut client, version_negotiation(&initial, &[7, 1]));
    for data in flight {
        assert!(test.give_server(&mut server, data).is_none());
    }
    for data in test.datagrams(&mut server.as_mut().unwrap().1) {
        test.give_client(&mut client, data);
    }
    test.give_client(&mut client, version_negotiation(&initial, &[7]));
    test.exchange(&mut client, &mut server);
    assert!(!client.1.is_handshaking());
    assert_eq!(lost(&mut client.1), None);
}

#[test]
fn rfc_9001_9_2_changed_and_foreign_packets_change_nothing() {
    let mut test = Test::new();
    let mut client = test.connect();
    let mut server = None;
    let mut noise = 0u8;
    for _ in 0..20 {
        test.now += MS;
        for data in test.datagrams(&mut client.1) {
            for at in [0, 1, 5, 7, 20, data.len() / 2, data.len() - 1] {
                let mut changed = data.clone();
                noise = noise.wrapping_add(17);
                changed[at] ^= noise | 1;
                if server.is_some() {
                    test.give_server(&mut server, changed);
                }
            }
            test.give_server(&mut server, data.clone());
            test.give_server(&mut server, data);
            test.events(&mut client, &mut server);
        }
        let sent = test.datagrams(&mut server.as_mut().unwrap().1);
        for data in sent {
            for at in [0, 1, 5, 7, 20, data.len() / 2, data.len() - 1] {
                let mut changed = data.clone();
                noise = noise.wrapping_add(17);
                changed[at] ^= noise | 1;
                test.give_client(&mut client, changed);
            }
            test.give_client(&mut client, data.clone());
            test.give_client(&mut client, data);
            test.events(&mut client, &mut server);
        }
    }
    assert!(!client.1.is_handshaking() && !server.as_ref().unwrap().1.is_handshaking());
    assert_eq!(lost(&mut client.1), None);
    assert_eq!(lost(&mut server.unwrap().1), None);
}

/// What arrives while a connection starts waits for it.
#[test]
fn datagrams_that_overtake_the_start_of_their_connection_are_kept() {
    let mut test = Test::new();
    test.visit();
    let mut client = test.connect();
    let text: Vec<u8> = (0..5000).map(|index| index as u8).collect();
    let id = write(&mut client.1, &text);
    let flight = test.datagrams(&mut client.1);
    assert!(flight.len() >= 5);
    let mut flight = flight.into_iter();
    let four_tuple = FourTuple::new(server_address(), client_address());
    let arrive = |test: &mut Test, data| {
        test.server
            .handle_datagram(test.now, four_tuple, None, data, &mut test.buf)
    };

    let first = arrive(&mut test, flight.next().unwrap());
    let Some(DatagramEvent::NewConnection(incoming)) = first else {
        panic!("{first:?}");
    };
    assert!(arrive(&mut test, flight.next().unwrap()).is_none());
    let accepting = test
        .server
        .begin_accept(test.now, incoming, &mut Vec::new())
        .unwrap();
    assert!(arrive(&mut test, flight.next().unwrap()).is_none());
    let (mut connection, accepted) = accepting.start();
    // However long that takes.
    test.now += Duration::from_secs(60);
    assert!(arrive(&mut test, flight.next().unwrap()).is_none());
    let handle = accepted.handle();
    let late = test.server.finish_accept(test.now, accepted);
    assert_eq!(late.len(), 2);
    for datagram in late {
        connection.handle_datagram(datagram);
    }
    for data in flight {
        match arrive(&mut test, data) {
            Some(DatagramEvent::Connection(to, datagram)) => {
                assert_eq!(to, handle);
                connection.handle_datagram(datagram);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(connection.streams().accept(Dir::Uni), Some(id));
    assert_eq!(read(&mut connection, id), (text, true));
    let mut server = Some((handle, connection));
    test.exchange(&mut client, &mut server);
    assert!(!client.1.is_handshaking());
    assert_eq!(lost(&mut client.1), None);
}

/// A connection given up during its start, as by a panic, leaves no state behind.
#[test]
fn a_connection_that_does_not_start_is_forgotten() {
    let mut test = Test::new();
    let mut client = test.connect();
    let flight = test.datagrams(&mut client.1);
    let four_tuple = FourTuple::new(server_address(), client_address());
    for is_started in [false, true] {
        let data = flight[0].clone();
        let event = test
            .server
            .handle_datagram(test.now, four_tuple, None, data, &mut test.buf);
        let Some(DatagramEvent::NewConnection(incoming)) = event else {
            panic!("{event:?}");
        };
        let mut buf = Vec::new();
        let accepting = test.server.begin_accept(test.now, incoming, &mut buf);
        let accepting = accepting.unwrap();
        assert_eq!(test.server.open_connections(), 1);
        if is_started {
            drop(accepting.start());
        } else {
            drop(accepting);
        }
    }
    // The client's next datagram is a new attempt.
    let mut server = None;
    for data in flight {
        test.give_server(&mut server, data);
    }
    assert_eq!(test.server.open_connections(), 1);
    test.exchange(&mut client, &mut server);
    assert!(!client.1.is_handshaking());
}

/// A proven address lets the server answer before the handshake is complete.
#[test]
fn rfc_9001_5_7_a_server_may_answer_in_its_first_flight() {
    let mut test = Test::new();
    test.visit();
    let mut client = test.connect();
    write(&mut client.1, b"question");
    let mut server = None;
    for data in test.datagrams(&mut client.1) {
        test.give_server(&mut server, data);
    }
    assert_eq!(test.validated, Some(true));
    let id = write(&mut server.as_mut().unwrap().1, b"answer");
    for data in test.datagrams(&mut server.as_mut().unwrap().1) {
        test.give_client(&mut client, data);
    }
    assert!(!client.1.is_handshaking());
    assert_eq!(read(&mut client.1, id), (b"answer".to_vec(), true));
}

/// RFC 9001 section 5.7: 1-RTT packets wait for the end of the handshake; overtaking the handshake
/// costs no repetition.
#[test]
fn rfc_9001_5_7_packets_that_overtake_the_handshake_are_kept() {
    let mut test = Test::new();
    let mut client = test.connect();
    let mut server = None;
    for data in test.datagrams(&mut client.1) {
        test.give_server(&mut server, data);
    }
    for data in test.datagrams(&mut server.as_mut().unwrap().1) {
        test.give_client(&mut client, data);
    }
    assert!(!client.1.is_handshaking());
    let finished = test.datagrams(&mut client.1);
    let id = write(&mut client.1, b"early bird");
    let overtaking = test.datagrams(&mut client.1);
    for data in overtaking.into_iter().chain(finished) {
        test.give_server(&mut server, data);
    }
    let accepted = &mut server.as_mut().unwrap().1;
    assert_eq!(accepted.streams().accept(Dir::Uni), Some(id));
    assert_eq!(read(accepted, id), (b"early bird".to_vec(), true));
}

/// RFC 9001 section 5.7: kept packets are bounded, in number and in bytes, because forged ones
/// cannot be told apart yet.
#[test]
fn rfc_9001_5_7_few_packets_that_overtake_the_handshake_are_kept() {
    // The size of each datagram, and the number of kept ones.
    for (size, kept) in [
        (100, 16),
        (1200, 16),
        (20_000, 1),
        (16 << 10, 2),
        (40_000, 0),
    ] {
        let mut test = Test::new();
        let mut client = test.connect();
        let mut server = None;
        for data in test.datagrams(&mut client.1) {
            test.give_server(&mut server, data);
        }
        let answer = test.datagrams(&mut server.as_mut().unwrap().1);
        let (_, server_cid) = long_header(&answer[0]);
        let mut forged = BytesMut::from(&[0x40][..]);
        forged.extend_from_slice(&server_cid);
        forged.resize(size, 7);
        for _ in 0..20 {
            test.give_server(&mut server, forged.clone());
        }
        let dropped = server.as_ref().unwrap().1.stats().packets_dropped;
        assert_eq!(dropped, 20 - kept, "{size} bytes");
        // The handshake goes on.
        for data in answer {
            test.give_client(&mut client, data);
        }
        test.exchange(&mut client, &mut server);
        assert!(!server.unwrap().1.is_handshaking());
    }
}
