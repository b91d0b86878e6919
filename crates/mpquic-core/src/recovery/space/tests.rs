use super::*;
use crate::ids::PathId;

fn space() -> PacketNumberSpace {
    PacketNumberSpace::new(SpaceId::Data(PathId(1)))
}

#[test]
fn numbers_start_at_zero_and_rise() {
    // RFC 9000 section 12.3, MP-034
    let mut space = space();
    assert_eq!(space.expected_next(), 0);
    for number in 0..1000 {
        assert_eq!(space.next_packet_number(), number);
        assert_eq!(space.take_packet_number(), number);
    }
}

/// RFC 9000 section 12.3: there is no number above 2^62 - 1.
#[test]
fn rfc_9000_12_3_all_numbers_are_used_once() {
    for skips in [false, true] {
        let mut space = space();
        space.next = (1 << 62) - 100;
        if skips {
            space.skip_numbers([1; 32]);
        }
        let mut last = space.next - 1;
        while space.has_numbers() {
            let number = space.take_packet_number();
            assert!(number > last, "{number} after {last}");
            last = number;
        }
        assert!(last < 1 << 62, "{last}");
        assert!(last >= (1 << 62) - 2, "{last}");
        assert!(!skips || space.skipped.is_some());
    }
}

#[test]
fn numbers_are_skipped_ever_more_rarely() {
    let skipped = |seed| {
        let mut space = space();
        space.skip_numbers(seed);
        let mut skipped = Vec::new();
        let mut next = 0;
        while space.next < 1_000_000 {
            let peeked = space.next_packet_number();
            let taken = space.take_packet_number();
            assert_eq!(peeked, taken);
            if taken != next {
                assert_eq!(taken, next + 1);
                assert_eq!(space.skipped.filter(|&number| number < taken), Some(next));
                skipped.push(next);
            }
            next = taken + 1;
        }
        skipped
    };
    let first = skipped([1; 32]);
    assert!((18..40).contains(&first.len()), "{first:?}");
    assert!((32..=64).contains(&first[0]));
    assert!(first.windows(2).all(|pair| pair[1] - pair[0] <= 1 << 17));
    assert_eq!(first, skipped([1; 32]));
    // All bytes of the seed count, so nobody finds it by trying.
    for index in 0..32 {
        let mut other = [1; 32];
        other[index] = 2;
        assert_ne!(first, skipped(other), "{index}");
    }
}
