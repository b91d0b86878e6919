//! Sequences of operations of network, client and server, which the core's own tests draw at random
//! (`crates/mpquic-core/tests/operations`): here coverage guides them. No invariant breaks, every
//! transfer completes once the network works again, and no state is left.

#![no_main]

use libfuzzer_sys::fuzz_target;

/// The model of the core's tests.
#[path = "."]
mod operations {
    #[expect(dead_code, reason = "operations are drawn in another way")]
    #[path = "../../crates/mpquic-core/tests/operations/operation.rs"]
    mod operation;
    #[path = "../../crates/mpquic-core/tests/operations/reasons.rs"]
    mod reasons;
    #[path = "../../crates/mpquic-core/tests/operations/run.rs"]
    mod run;
    #[expect(dead_code, reason = "sides are drawn apart")]
    #[path = "../../crates/mpquic-core/tests/operations/setup.rs"]
    mod setup;

    use arbitrary::{Arbitrary, Result, Unstructured};
    use mpquic_core::PathStatus;
    use mpquic_sim::Side;

    use operation::{Limit, OnPath, OnStream, Operation, SIDES, Share, Trouble};
    use run::Run;
    use setup::Sides;

    /// The largest power of two of bytes in a transfer: more takes long and shows nothing new.
    const MOST_BYTES: u32 = 15;

    /// A network and configurations, and what happens.
    #[derive(Debug, Arbitrary)]
    pub(super) struct Input {
        seed: u16,
        tls: u8,
        operations: Vec<Drawn>,
    }

    #[derive(Debug)]
    struct Drawn(Operation, u32);

    impl<'a> Arbitrary<'a> for Drawn {
        fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
            Ok(Self(operation(u)?, u32::from(u.arbitrary::<u8>()?) * 3 / 2))
        }
    }

    /// Lets it happen.
    pub(super) fn run(input: Input) {
        // Real cryptography is slow; the tests have more of it.
        let tls = input.tls == 255;
        let Some(mut run) = Run::new(input.seed.into(), tls, Sides::Apart) else {
            return;
        };
        let all = input.operations.into_iter().take(16);
        let all: Vec<_> = all
            .map(|Drawn(operation, pause)| (operation, pause))
            .collect();
        run.run(&all);
    }

    fn operation(u: &mut Unstructured<'_>) -> Result<Operation> {
        Ok(match u.int_in_range(0..=17u8)? {
            0 | 1 => Operation::Send(side(u)?, log(u)?),
            2 => Operation::Ask(side(u)?, log(u)?, log(u)?),
            3 => Operation::Datagram(side(u)?, u.int_in_range(8..=1300)?),
            4 | 5 => Operation::Stream(side(u)?, share(u)?, on_stream(u)?),
            6 => Operation::Pause(side(u)?),
            7 => Operation::Resume(side(u)?),
            8 => Operation::ReadUnordered(side(u)?),
            9 => Operation::UpdateKeys(side(u)?),
            10 => Operation::OpenPath(share(u)?, status(u)?),
            11 | 12 => Operation::Network(share(u)?, trouble(u)?),
            13 | 14 => Operation::Path(side(u)?, share(u)?, on_path(u)?),
            15 => Operation::Close(side(u)?, u.int_in_range(0..=100)?),
            16 => Operation::ReplaceConnectionIds(side(u)?),
            _ => Operation::Limit(side(u)?, limit(u)?),
        })
    }

    fn on_stream(u: &mut Unstructured<'_>) -> Result<OnStream> {
        Ok(match u.int_in_range(0..=8u8)? {
            0 => OnStream::Reset(u.int_in_range(0..=100)?),
            1 => OnStream::ResetAtHalf(u.int_in_range(0..=100)?),
            2 => OnStream::Stop(u.int_in_range(0..=100)?),
            3 => OnStream::Priority(u.int_in_range(-2..=2)?),
            4 => OnStream::Incremental(u.arbitrary()?),
            5 => OnStream::Redundant(u.arbitrary()?),
            6 => OnStream::Bind(share(u)?),
            7 => OnStream::Unbind,
            _ => OnStream::Expect(u.arbitrary::<u16>()?.into()),
        })
    }

    fn limit(u: &mut Unstructured<'_>) -> Result<Limit> {
        Ok(match u.int_in_range(0..=3u8)? {
            0 => Limit::SendWindow(u.int_in_range(12..=23)?),
            1 => Limit::ReceiveWindow(u.int_in_range(12..=23)?),
            2 => Limit::UniStreams(u.int_in_range(1..=100)?),
            _ => Limit::BidiStreams(u.int_in_range(1..=100)?),
        })
    }

    fn on_path(u: &mut Unstructured<'_>) -> Result<OnPath> {
        Ok(match u.int_in_range(0..=4u8)? {
            0 => OnPath::Status(status(u)?),
            1 => OnPath::Ping,
            2 => OnPath::DownAndUp,
            3 => OnPath::Close,
            _ => OnPath::Move(share(u)?),
        })
    }

    fn trouble(u: &mut Unstructured<'_>) -> Result<Trouble> {
        let fraction = |u: &mut Unstructured<'_>| Ok(f64::from(u.arbitrary::<u8>()?) / 256.0);
        Ok(match u.int_in_range(0..=9u8)? {
            0 => Trouble::Outage(true),
            1..=3 => Trouble::Outage(false),
            4 => Trouble::Rate(0.5 + 99.0 * fraction(u)?),
            5 => Trouble::Delay(u.int_in_range(1..=199)?),
            6 => Trouble::Loss(0.1 * fraction(u)?),
            7 => Trouble::Corrupt(0.05 * fraction(u)?),
            8 => Trouble::Mtu(u.int_in_range(1250..=1499)?),
            _ => Trouble::Rebind {
                other_ip: u.arbitrary()?,
            },
        })
    }

    fn side(u: &mut Unstructured<'_>) -> Result<Side> {
        Ok(SIDES[usize::from(u.arbitrary::<bool>()?)])
    }

    fn status(u: &mut Unstructured<'_>) -> Result<PathStatus> {
        Ok(if u.arbitrary()? {
            PathStatus::Backup
        } else {
            PathStatus::Available
        })
    }

    fn log(u: &mut Unstructured<'_>) -> Result<u32> {
        u.int_in_range(0..=MOST_BYTES)
    }

    fn share(u: &mut Unstructured<'_>) -> Result<Share> {
        Ok(Share(u64::from(u.arbitrary::<u8>()?) << 56))
    }
}

fuzz_target!(|input: operations::Input| operations::run(input));
