use std::net::{Ipv4Addr, SocketAddr};

use proptest::prelude::*;

use super::*;
use crate::packet::writer::written;

const PTO: Duration = Duration::from_millis(100);
const INITIAL_PTO: Duration = Duration::from_millis(999);

fn started() -> (Validation, Instant) {
    #[expect(
        clippy::disallowed_methods,
        reason = "tests need some instant to count from"
    )]
    let now = Instant::now();
    let mut validation = Validation::new();
    validation.start(now, PTO, INITIAL_PTO);
    (validation, now)
}

fn challenge(validation: &mut Validation, now: Instant, data: u8, full_size: bool) -> bool {
    let mut used = false;
    let (frames, deliveries) = written(1200, |w| {
        used = validation.write_frames(w, now, [data; 8], full_size);
    });
    assert!(deliveries.is_empty());
    let expected = used.then_some(Frame::PathChallenge([data; 8]));
    assert_eq!(frames, Vec::from_iter(expected));
    used
}

#[test]
fn mp_085_a_response_to_any_outstanding_challenge_validates() {
    for answered in 1..=3 {
        let (mut validation, mut now) = started();
        for data in 1..=3 {
            assert!(validation.wants_to_send());
            assert!(challenge(&mut validation, now, data, true));
            assert!(!validation.wants_to_send());
            now = validation.next_timeout().unwrap();
            assert!(!validation.on_timeout(now));
        }
        assert_eq!(validation.on_path_response(now, [9; 8]), None);
        assert!(validation.is_running());
        assert_eq!(
            validation.on_path_response(now, [answered; 8]),
            Some(Validated::Path)
        );
        assert!(!validation.is_running() && !validation.wants_to_send());
        assert_eq!(validation.next_timeout(), None);
        assert_eq!(validation.on_path_response(now, [answered; 8]), None);
    }
}

#[test]
fn mp_085_challenges_back_off_and_validation_fails_after_three_probe_timeouts() {
    let (mut validation, start) = started();
    let mut now = start;
    let mut sent_at = Vec::new();
    let failed = loop {
        if challenge(&mut validation, now, sent_at.len() as u8, true) {
            sent_at.push((now - start).as_millis());
        }
        now = validation.next_timeout().unwrap();
        if validation.on_timeout(now) {
            break now - start;
        }
    };
    assert_eq!(sent_at, [0, 100, 300, 700, 1500]);
    assert_eq!(failed, 3 * INITIAL_PTO);
    assert!(!validation.is_running());
    assert_eq!(validation.on_path_response(now, [0; 8]), None);
}

#[test]
fn a_challenge_goes_along_with_the_answer_to_the_peer() {
    let (mut validation, now) = started();
    validation.on_heard();
    assert!(challenge(&mut validation, now, 1, true));
    assert!(!challenge(&mut validation, now, 2, true));
    validation.on_heard();
    assert!(challenge(&mut validation, now, 2, true));
    assert_eq!(validation.next_timeout(), Some(now + PTO), "no backoff");
    let answered = validation.on_path_response(now, [2; 8]);
    assert_eq!(answered, Some(Validated::Path));
    validation.on_heard();
    assert!(!validation.wants_to_send(), "it is over");
}

#[test]
fn mp_085_a_slow_path_gets_three_of_its_own_probe_timeouts() {
    let (mut validation, now) = started();
    validation.start(now, 2 * INITIAL_PTO, INITIAL_PTO);
    assert_eq!(validation.next_timeout(), Some(now + 6 * INITIAL_PTO));
    assert!(!validation.on_timeout(now + 6 * INITIAL_PTO - PTO));
    assert!(validation.on_timeout(now + 6 * INITIAL_PTO));
}

#[test]
fn mp_085_validation_fails_even_if_no_challenge_could_leave() {
    let (mut validation, now) = started();
    assert!(
        written(8, |w| assert!(
            !validation.write_frames(w, now, [1; 8], true)
        ))
        .0
        .is_empty()
    );
    assert!(validation.wants_to_send());
    assert!(validation.on_timeout(now + 3 * INITIAL_PTO));
}

#[test]
fn mp_079_a_small_challenge_proves_the_address_only() {
    let (mut validation, now) = started();
    assert!(challenge(&mut validation, now, 1, false));
    let later = now + 2 * INITIAL_PTO;
    assert_eq!(
        validation.on_path_response(later, [1; 8]),
        Some(Validated::AddressOnly)
    );
    assert!(validation.wants_to_send());
    assert_eq!(validation.on_path_response(later, [1; 8]), None);
    assert!(challenge(&mut validation, later, 2, true));
    assert_eq!(validation.next_timeout(), Some(later + PTO));
    assert!(!validation.on_timeout(later + 2 * INITIAL_PTO));
    assert_eq!(
        validation.on_path_response(later, [2; 8]),
        Some(Validated::Path)
    );
}

#[test]
fn mp_079_a_full_sized_challenge_under_way_is_not_repeated() {
    let (mut validation, now) = started();
    assert!(challenge(&mut validation, now, 1, false));
    assert!(!validation.on_timeout(now + PTO));
    assert!(challenge(&mut validation, now + PTO, 2, true));
    assert_eq!(
        validation.on_path_response(now + PTO, [1; 8]),
        Some(Validated::AddressOnly)
    );
    assert!(!validation.wants_to_send());
    assert_eq!(
        validation.on_path_response(now + PTO, [2; 8]),
        Some(Validated::Path)
    );
}

#[test]
fn a_zero_probe_timeout_does_not_spin() {
    let (_, start) = started();
    let mut validation = Validation::new();
    validation.start(start, Duration::ZERO, INITIAL_PTO);
    let (mut now, mut sent) = (start, 0);
    while validation.is_running() {
        sent += u32::from(challenge(&mut validation, now, sent as u8, true));
        now = validation.next_timeout().unwrap();
        let _ = validation.on_timeout(now);
    }
    assert!((10..=12).contains(&sent), "{sent}");
}

fn four_tuple(port: u16) -> FourTuple {
    let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    FourTuple::new(address(443), address(port))
}

fn answer(responses: &mut Responses, port: u16) -> Vec<Frame> {
    written(1200, |w| responses.write_frames(w, &four_tuple(port))).0
}

#[test]
fn mp_077_responses_leave_on_the_four_tuple_of_their_challenge() {
    let mut responses = Responses::new();
    responses.on_path_challenge(four_tuple(1), [1; 8]);
    responses.on_path_challenge(four_tuple(2), [2; 8]);
    responses.on_path_challenge(four_tuple(1), [3; 8]);
    assert_eq!(responses.four_tuples().next(), Some(four_tuple(1)));
    let expected = [Frame::PathResponse([1; 8]), Frame::PathResponse([3; 8])];
    assert_eq!(answer(&mut responses, 1), expected);
    assert_eq!(answer(&mut responses, 1), []);
    assert_eq!(responses.four_tuples().next(), Some(four_tuple(2)));
    assert_eq!(answer(&mut responses, 2), [Frame::PathResponse([2; 8])]);
    assert!(!responses.wants_to_send());
}

#[test]
fn a_response_that_does_not_fit_stays_owed() {
    let mut responses = Responses::new();
    responses.on_path_challenge(four_tuple(1), [1; 8]);
    responses.on_path_challenge(four_tuple(1), [2; 8]);
    let (frames, _) = written(10, |w| responses.write_frames(w, &four_tuple(1)));
    assert_eq!(frames, [Frame::PathResponse([1; 8])]);
    assert_eq!(answer(&mut responses, 1), [Frame::PathResponse([2; 8])]);
}

#[test]
fn the_newest_challenges_of_a_four_tuple_are_answered() {
    let mut responses = Responses::new();
    responses.on_path_challenge(four_tuple(2), [200; 8]);
    for data in 0..50 {
        responses.on_path_challenge(four_tuple(1), [data; 8]);
    }
    let expected: Vec<_> = (46..50)
        .map(|data| Frame::PathResponse([data; 8]))
        .collect();
    assert_eq!(answer(&mut responses, 1), expected);
    assert_eq!(answer(&mut responses, 2), [Frame::PathResponse([200; 8])]);
    responses.on_path_challenge(four_tuple(1), [1; 8]);
    responses.clear();
    assert!(!responses.wants_to_send());
}

#[test]
fn a_path_at_rest_keeps_no_memory_for_responses() {
    let mut responses = Responses::new();
    for port in 0..16 {
        responses.on_path_challenge(four_tuple(port), [1; 8]);
    }
    responses.trim();
    assert_eq!(
        responses.four_tuples().next(),
        Some(four_tuple(0)),
        "still owed"
    );
    responses.clear();
    assert!(responses.capacity() >= 16);
    responses.trim();
    assert_eq!(responses.capacity(), 0);
}

proptest! {
    #[test]
    fn owed_responses_are_bounded_and_newest(
        challenges in prop::collection::vec((0..40u16, any::<[u8; 8]>()), 1..200),
    ) {
        let mut responses = Responses::new();
        for &(port, data) in &challenges {
            responses.on_path_challenge(four_tuple(port), data);
            prop_assert!(responses.queue.len() <= MAX_RESPONSES);
            let same = responses.queue.iter().filter(|owed| owed.0 == four_tuple(port)).count();
            prop_assert!(same <= MAX_RESPONSES_PER_FOUR_TUPLE);
            let newest = (four_tuple(port), data);
            prop_assert_eq!(responses.queue.back(), Some(&newest));
        }
    }
}

/// Lets validation of the last path run until a round has failed; returns when, and whether the
/// path is given up.
fn next_round(validation: &mut Validation, mut now: Instant) -> (Instant, bool) {
    let deadline = validation.round.as_ref().unwrap().deadline;
    loop {
        challenge(validation, now, 0, true);
        now = validation.next_timeout().unwrap();
        let failed = validation.on_timeout_of_the_last(now);
        if now >= deadline {
            return (now, failed);
        }
        assert!(!failed);
    }
}

#[test]
fn rfc_9000_8_2_4_the_last_path_waits_longer_and_longer_for_a_peer_that_is_silent() {
    let (mut validation, mut now) = started();
    for factor in [1, 2, 4, 8, 16] {
        let (end, failed) = next_round(&mut validation, now);
        assert!(!failed);
        assert_eq!(end - now, 3 * INITIAL_PTO * factor);
        now = end;
    }
    for _ in 0..40 {
        let (end, failed) = next_round(&mut validation, now);
        assert!(!failed);
        assert_eq!(end - now, MAX_BACKOFF);
        now = end;
    }
    // It is heard again: the next challenge does not wait.
    assert!(challenge(&mut validation, now, 7, true));
    assert!(!validation.wants_to_send());
    validation.on_datagram();
    assert!(challenge(&mut validation, now, 8, true));
    validation.on_datagram();
    assert!(!validation.wants_to_send(), "once");
    assert_eq!(
        validation.on_path_response(now, [8; 8]),
        Some(Validated::Path)
    );
}

#[test]
fn rfc_9000_8_2_4_a_last_path_on_which_only_challenges_are_lost_is_given_up() {
    let (mut validation, mut now) = started();
    for heard in [true, false, true, false, true] {
        assert!(validation.is_running());
        if heard {
            validation.on_datagram();
        }
        let (end, failed) = next_round(&mut validation, now);
        assert_eq!(failed, validation.round.is_none());
        now = end;
    }
    assert!(!validation.is_running());
}
