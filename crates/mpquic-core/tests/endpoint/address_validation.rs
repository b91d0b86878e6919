//! Tokens and Retry.

use super::*;

#[test]
fn rfc_9000_8_1_3_a_token_spares_the_next_connection_the_retry() {
    let mut test = Test::new();
    test.retry = true;
    let retries = |test: &mut Test| {
        test.validated = None;
        test.visit();
        test.validated
    };
    // The second attempt answers the Retry.
    assert_eq!(retries(&mut test), Some(true));
    assert_eq!(test.tokens.0.lock().unwrap().len(), 1);
    test.retry = false;
    let used = test.tokens.0.lock().unwrap()[0].clone();
    assert_eq!(retries(&mut test), Some(true));
    // RFC 9000 section 8.1.4: once.
    *test.tokens.0.lock().unwrap() = vec![used];
    assert_eq!(retries(&mut test), Some(false));
}

#[test]
fn rfc_9000_17_2_5_2_only_one_genuine_retry_is_followed() {
    let mut test = Test::new();
    test.retry = true;
    let mut client = test.connect();
    let mut server = None;
    let initial = test.datagrams(&mut client.1).remove(0);
    let retry = test.give_server(&mut server, initial.clone()).unwrap();

    let mut forged = retry.clone();
    let last = forged.len() - 1;
    forged[last] ^= 1;
    test.give_client(&mut client, forged);
    assert!(test.datagrams(&mut client.1).is_empty());

    test.give_client(&mut client, retry.clone());
    let second = test.datagrams(&mut client.1);
    for data in &second {
        assert_eq!(long_header(data).0, long_header(&retry).1);
        assert!(data.len() >= 1200);
    }

    // Another genuine one for the first Initial, and one for the second.
    let again = test.give_server(&mut server, initial).unwrap();
    test.give_client(&mut client, again);
    assert!(test.datagrams(&mut client.1).is_empty());

    for data in second {
        assert!(test.give_server(&mut server, data).is_none());
    }
    assert_eq!(test.validated, Some(true));
    test.exchange(&mut client, &mut server);
    assert!(!client.1.is_handshaking());
}

/// RFC 9000 section 8.1.3: all Initial packets have the token.
#[test]
fn rfc_9000_8_1_3_repeated_initial_packets_have_the_token_too() {
    let mut test = Test::new();
    test.visit();
    let mut client = test.connect();
    let mut tokens = Vec::new();
    while tokens.len() < 3 {
        for mut datagram in test.datagrams(&mut client.1) {
            if let Ok(Header::Initial { token, .. }) =
                next_packet(&mut datagram, 8).map(|packet| packet.header)
            {
                tokens.push(token);
            }
        }
        (test.now, _) = client.1.poll_timeout().unwrap();
        client.1.handle_timeout(test.now);
    }
    assert!(!tokens[0].is_empty());
    assert!(tokens.iter().all(|token| *token == tokens[0]));
}

/// RFC 9000 section 8.1.3: no two clients get the same token, even at the same time.
#[test]
fn rfc_9000_8_1_3_each_token_is_another_one() {
    let mut test = Test::new();
    let begin = test.now;
    let mut tokens = std::collections::BTreeSet::new();
    for _ in 0..5 {
        test.now = begin;
        test.visit();
        let given = std::mem::take(&mut *test.tokens.0.lock().unwrap());
        assert!(!given.is_empty());
        for (_, token) in given {
            assert!(tokens.insert(token));
        }
    }
}

/// A token without room for the ClientHello is worse than no token.
#[test]
fn no_token_stops_the_next_connection() {
    for (length, is_used) in [(1000, true), (1001, false), (1200, false), (16_000, false)] {
        let with_token = || {
            let test = Test::new();
            let token = Bytes::from(vec![7; length]);
            *test.tokens.0.lock().unwrap() = vec![("token v1 server.test".to_owned(), token)];
            test
        };
        let mut test = with_token();
        let mut client = test.connect();
        let first = next_packet(&mut test.datagrams(&mut client.1)[0], 8).unwrap();
        let Header::Initial { token, .. } = first.header else {
            panic!("{first:?}")
        };
        assert_eq!(token.len() == length, is_used, "{length}");
        let mut test = with_token();
        test.visit();
        assert_eq!(test.validated, Some(false), "the token is not the server's");
    }
}
