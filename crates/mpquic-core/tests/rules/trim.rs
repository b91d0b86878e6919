//! When a silent connection frees memory.

use std::time::Duration;

use mpquic_core::{PathId, Side, SpaceId, TimeoutReason};

use super::harness::{MS, Net, Options, SECOND, SIDES};

/// How long until the side frees memory, after its other timers of that time.
fn trims_after(net: &mut Net, side: Side) -> Duration {
    let start = net.now;
    for _ in 0..20 {
        let next = net.connection(side).poll_timeout();
        if let Some((_, TimeoutReason::Trim)) = next {
            assert_eq!(net.fire(side).len(), 0, "it is no reason to send");
            return net.now - start;
        }
        let sent = net.fire(side);
        net.give_all(sent);
        net.exchange();
    }
    panic!("{side:?} frees no memory");
}

/// Once soon after the handshake, then once for each time something arrived.
#[test]
fn a_connection_frees_memory_once_nothing_has_arrived_for_a_while() {
    for side in SIDES {
        let mut net = Net::connecting(Options::default());
        net.exchange();
        let first = trims_after(&mut net, side);
        assert!(first <= 200 * MS, "{first:?} after the handshake");
        let next = net.connection(side).poll_timeout();
        assert!(!matches!(next, Some((_, TimeoutReason::Trim))), "{next:?}");

        net.connection(!side)
            .inject(SpaceId::Data(PathId::ZERO), &[1]);
        let sent = net.take(!side);
        net.give_all(sent);
        let second = trims_after(&mut net, side);
        assert!(second >= SECOND, "{second:?} after a packet");
    }
}
