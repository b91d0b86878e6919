use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::crypto::CryptoError;

const PTO: Duration = Duration::from_millis(100);
const A: PathId = PathId(0);
const B: PathId = PathId(1);

/// A test key whose tag length is its generation, with small limits.
struct NumberedKey(usize);

impl PacketKey for NumberedKey {
    fn encrypt(&self, _: PathId, _: u64, _: &mut [u8], _: usize) {}
    fn decrypt(&self, _: PathId, _: u64, _: &[u8], _: &mut [u8]) -> Result<usize, CryptoError> {
        Err(CryptoError)
    }
    fn tag_length(&self) -> usize {
        self.0
    }
    fn confidentiality_limit(&self) -> u64 {
        1000
    }
    fn integrity_limit(&self) -> u64 {
        10
    }
}

struct NoMask;

impl HeaderKey for NoMask {
    fn decrypt(&self, _: usize, _: &mut [u8]) -> bool {
        true
    }
    fn encrypt(&self, _: usize, _: &mut [u8]) {}
}

#[derive(Default)]
struct KeySource(AtomicU64);

impl KeySource {
    fn pair(&self) -> KeyPair<Box<dyn PacketKey>> {
        let generation = self.0.fetch_add(1, Ordering::Relaxed) as usize;
        KeyPair {
            local: Box::new(NumberedKey(generation)),
            remote: Box::new(NumberedKey(generation)),
        }
    }
}

impl Session for KeySource {
    fn is_handshaking(&self) -> bool {
        false
    }
    fn read_handshake(&mut self, _: &[u8]) -> Result<(), TransportError> {
        Ok(())
    }

    fn next_one_rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        Some(self.pair())
    }
}

struct Test {
    keys: OneRttKeys,
    session: KeySource,
    now: Instant,
}

impl Test {
    #[expect(clippy::disallowed_methods, reason = "any point in time will do")]
    fn new() -> Self {
        let session = KeySource::default();
        let keys = Keys {
            header: KeyPair {
                local: Box::new(NoMask),
                remote: Box::new(NoMask),
            },
            packet: session.pair(),
        };
        Self {
            keys: OneRttKeys::new(keys),
            session,
            now: Instant::now(),
        }
    }

    /// The generation of the key a packet would be opened with.
    fn key_for(&mut self, phase: bool, number: u64, path: PathId) -> usize {
        let choice = self.keys.choose(phase, number, path, &mut self.session);
        let choice = choice.unwrap();
        let generation = self.keys.key(choice).unwrap().tag_length();
        assert_eq!(generation as u32, self.keys.generation_of(choice));
        generation
    }

    /// A packet was opened with the key it calls for; true if it updated the keys.
    fn receive(&mut self, phase: bool, number: u64, path: PathId) -> bool {
        let choice = self.keys.choose(phase, number, path, &mut self.session);
        let choice = choice.unwrap();
        self.keys
            .on_opened(choice, self.now, &mut self.session, || PTO)
            .unwrap()
    }

    fn initiate(&mut self) -> bool {
        self.keys.initiate(self.now, &mut self.session)
    }

    fn acked(&mut self, generation: u32) {
        self.keys.on_acked(generation, self.now, || PTO);
    }

    fn sealing_generation(&self) -> (usize, bool) {
        let (_, key, phase) = self.keys.sealing();
        (key.tag_length(), phase)
    }
}

#[test]
fn rfc_9001_6_1_update_waits_for_an_ack_in_the_phase() {
    let mut test = Test::new();
    assert!(!test.initiate());
    test.acked(0);
    assert!(test.initiate());
    assert_eq!(test.sealing_generation(), (1, true));
    assert_eq!(test.keys.generation(), 1);
    assert!(!test.initiate());
    // An acknowledgement of the old phase confirms nothing.
    test.acked(0);
    test.now += 100 * PTO;
    assert!(!test.initiate());
}

#[test]
fn mp_040_next_update_waits_three_largest_ptos_after_the_ack() {
    let mut test = Test::new();
    test.acked(0);
    assert!(test.initiate());
    assert!(!test.receive(true, 0, A));
    test.acked(1);
    test.now += 3 * PTO - Duration::from_millis(1);
    test.keys.on_timeout(test.now);
    assert!(!test.initiate());
    test.now += Duration::from_millis(1);
    test.keys.on_timeout(test.now);
    assert!(test.initiate());
    assert_eq!(test.sealing_generation(), (2, false));
}

#[test]
fn rfc_9001_6_2_peer_update_is_followed() {
    let mut test = Test::new();
    assert!(!test.receive(false, 7, A));
    assert_eq!(test.key_for(true, 8, A), 1);
    assert_eq!(test.sealing_generation(), (0, false));
    assert!(test.receive(true, 8, A));
    assert_eq!(test.sealing_generation(), (1, true));
    assert!(!test.receive(true, 9, A));
}

#[test]
fn rfc_9001_6_5_old_packets_open_for_three_ptos() {
    let mut test = Test::new();
    assert!(test.receive(true, 20, A));
    assert_eq!(test.key_for(false, 15, A), 0);
    assert!(!test.receive(false, 15, A));
    // Later than the first of the new phase: can only be the phase after it.
    assert_eq!(test.key_for(false, 21, A), 2);
    assert_eq!(test.keys.next_timeout(), Some(test.now + 3 * PTO));
    test.now += 3 * PTO;
    test.keys.on_timeout(test.now);
    assert_eq!(test.keys.next_timeout(), None);
    assert_eq!(test.key_for(false, 15, A), 2);
}

#[test]
fn rfc_9001_6_5_own_update_keeps_old_keys_until_the_peer_follows() {
    let mut test = Test::new();
    test.acked(0);
    assert!(test.initiate());
    test.now += 100 * PTO;
    test.keys.on_timeout(test.now);
    assert_eq!(test.keys.next_timeout(), None);
    assert_eq!(test.key_for(false, 1000, A), 0);
    assert!(!test.receive(true, 1001, A));
    assert_eq!(test.keys.next_timeout(), Some(test.now + 3 * PTO));
}

#[test]
fn mp_042_phases_are_told_apart_within_each_path() {
    let mut test = Test::new();
    assert!(test.receive(true, 5, A));
    // On the other path nothing of the new phase arrived: high numbers are still old.
    assert_eq!(test.key_for(false, 900, B), 0);
    assert!(!test.receive(true, 1000, B));
    assert_eq!(test.key_for(false, 900, B), 0);
    assert_eq!(test.key_for(false, 1001, B), 2);
    // A reordered packet of the new phase moves the border down.
    assert!(!test.receive(true, 800, B));
    assert_eq!(test.key_for(false, 900, B), 2);
}

#[test]
fn mp_043_any_path_confirms_an_update() {
    let mut test = Test::new();
    test.acked(0);
    assert!(test.initiate());
    assert!(!test.receive(true, 0, B));
    test.acked(1);
    test.now += 3 * PTO;
    test.keys.on_timeout(test.now);
    assert!(test.initiate());
}

#[test]
fn rfc_9001_6_6_limits() {
    let mut test = Test::new();
    for sealed in 0..1000 {
        assert_eq!(test.keys.wants_update(), sealed >= 500, "{sealed}");
        assert_eq!(test.keys.is_exhausted(), sealed >= 872, "{sealed}");
        test.keys.on_sealed();
    }
    test.acked(0);
    assert!(test.initiate());
    assert!(!test.keys.wants_update() && !test.keys.is_exhausted());

    for _ in 0..10 {
        assert_eq!(test.keys.on_open_failed(&mut test.session), Ok(()));
    }
    // MP-038: failures of all generations count together.
    test.receive(true, 0, A);
    let error = test.keys.on_open_failed(&mut test.session).unwrap_err();
    assert_eq!(error.fault, Fault::IntegrityLimit);
}

#[test]
fn rfc_9001_6_3_next_keys_are_there_before_an_update_but_not_on_idle_connections() {
    let mut test = Test::new();
    // The session made generation 0 only.
    let made = |test: &Test| test.session.0.load(Ordering::Relaxed);
    for number in 0..63 {
        assert!(!test.receive(false, number, A));
    }
    assert_eq!(made(&test), 1);
    assert!(!test.receive(false, 63, A));
    assert_eq!(made(&test), 2);
    // A forged packet costs the same whichever phase it shows.
    let mut test = Test::new();
    assert_eq!(test.keys.on_open_failed(&mut test.session), Ok(()));
    assert_eq!(made(&test), 2);
    assert_eq!(test.key_for(true, 0, A), 1);
    assert_eq!(made(&test), 2);
}

/// An update before we sent anything with the keys of the last one cannot have waited for an
/// acknowledgement.
#[test]
fn rfc_9001_6_2_a_second_update_waits_for_an_acknowledged_packet() {
    let mut test = Test::new();
    assert!(test.receive(true, 1, PathId::ZERO));
    let choice = test.keys.choose(false, 2, PathId::ZERO, &mut test.session);
    let result = test
        .keys
        .on_opened(choice.unwrap(), test.now, &mut test.session, || PTO);
    assert_eq!(result, Err(Fault::UpdatedTwice.into()));
    test.keys.on_sealed();
    assert!(test.receive(false, 2, PathId::ZERO));
}
