//! Sequences that once failed. The numbers drawn from their seeds must stay, so they have the
//! configurations of their time.

use mpquic_core::PathStatus::{Available, Backup};
use mpquic_sim::Side;
use mpquic_sim::Side::{Client, Server};

use super::operation::OnPath::{self, Close, DownAndUp, Ping};
use super::operation::OnStream;
use super::operation::Operation::{
    self, Ask, Datagram, Network, OpenPath, Path, Pause, Resume, Send, Stream, UpdateKeys,
};
use super::operation::Share;
use super::operation::Trouble::{Corrupt, Delay, Loss, Mtu, Outage, Rebind};
use super::run::Run;
use super::setup::Sides;

fn replay(seed: u64, sides: Sides, operations: &[(Operation, u32)]) {
    for tls in [false, true] {
        let run = Run::new(seed, tls, sides);
        assert!(
            run.is_some_and(|mut run| run.run(operations)),
            "no handshake"
        );
    }
}

fn reset(side: Side, share: Share) -> Operation {
    Operation::Stream(side, share, OnStream::Reset(7))
}

fn stop(side: Side, share: Share) -> Operation {
    Operation::Stream(side, share, OnStream::Stop(7))
}

#[test]
fn the_first_sequence_that_failed() {
    let operations = [
        (Network(Share(0), Mtu(1290)), 26),
        (Send(Client, 21), 395),
        (Network(Share(0), Outage(true)), 50),
        (Network(Share(0), Outage(true)), 113),
        (Resume(Client), 72),
        (OpenPath(Share(0), Backup), 144),
        (Network(Share(0), Outage(false)), 253),
        (OpenPath(Share(0), Backup), 49),
        (Path(Client, Share(0), OnPath::Status(Backup)), 298),
        (OpenPath(Share(0), Available), 126),
        (Path(Server, Share(0), DownAndUp), 310),
        (OpenPath(Share(0), Available), 92),
        (Resume(Client), 117),
        (Send(Client, 12), 272),
        (Send(Client, 0), 175),
        (Path(Server, Share(14757395258967641293), DownAndUp), 31),
        (Path(Server, Share(14757395258967641293), Ping), 81),
        (Send(Client, 0), 394),
        (Network(Share(0), Delay(53)), 382),
        (Send(Server, 12), 246),
        (Network(Share(0), Delay(96)), 197),
        (Resume(Client), 359),
        (reset(Client, Share(4611686018427387904)), 327),
        (reset(Client, Share(4611686018427387904)), 39),
        (Resume(Client), 225),
        (Pause(Server), 79),
        (reset(Client, Share(4611686018427387904)), 250),
        (Pause(Client), 75),
        (Network(Share(0), Corrupt(0.030069461092095483)), 171),
        (Resume(Server), 335),
        (Send(Server, 18), 165),
        (Send(Client, 17), 134),
        (reset(Server, Share(0)), 332),
        (Network(Share(0), Delay(15)), 242),
        (Path(Client, Share(0), DownAndUp), 0),
    ];
    replay(18_075_310_250_474_316_107, Sides::Alike, &operations);
}

#[test]
fn the_second_sequence_that_failed() {
    let operations = [
        (OpenPath(Share(0), Available), 11),
        (OpenPath(Share(0), Available), 266),
        (Network(Share(0), Outage(true)), 0),
        (OpenPath(Share(0), Available), 75),
        (Send(Server, 0), 0),
        (Path(Client, Share(4611686018427387904), Close), 0),
        (reset(Client, Share(0)), 0),
        (Network(Share(0), Rebind { other_ip: false }), 0),
        (Datagram(Server, 1), 215),
        (Send(Client, 13), 0),
        (reset(Client, Share(0)), 0),
        (Send(Client, 0), 0),
        (reset(Client, Share(0)), 35),
        (Send(Client, 0), 240),
        (Send(Client, 0), 68),
        (Send(Client, 0), 189),
        (Send(Client, 0), 304),
        (Path(Server, Share(0), Close), 5),
    ];
    replay(13_707_921_311_733_808_328, Sides::Alike, &operations);
}

#[test]
fn the_third_sequence_that_failed() {
    let operations = [
        (Send(Client, 0), 0),
        (Send(Client, 0), 0),
        (Send(Client, 0), 0),
        (Send(Client, 0), 0),
        (Send(Client, 0), 0),
    ];
    replay(1_185_989_697_164_800_672, Sides::Alike, &operations);
}

#[test]
fn the_fourth_sequence_that_failed() {
    let operations = [
        (Send(Client, 9), 0),
        (Send(Client, 0), 0),
        (OpenPath(Share(0), Available), 195),
        (stop(Client, Share(0)), 65),
        (stop(Client, Share(0)), 266),
        (Send(Client, 0), 174),
        (Network(Share(0), Rebind { other_ip: false }), 0),
        (stop(Client, Share(0)), 0),
        (Network(Share(0), Delay(8)), 0),
        (Send(Server, 0), 285),
        (Network(Share(0), Outage(true)), 0),
        (Send(Server, 0), 222),
        (Send(Server, 0), 385),
        (reset(Client, Share(0)), 382),
        (Send(Client, 0), 0),
        (Send(Client, 0), 0),
        (Path(Server, Share(9223372036854775808), Close), 0),
        (Send(Client, 0), 0),
        (Send(Client, 0), 231),
        (Send(Client, 0), 343),
        (Path(Client, Share(0), DownAndUp), 321),
        (Send(Client, 0), 337),
        (Send(Client, 0), 368),
        (Send(Client, 0), 236),
        (Path(Client, Share(0), Close), 0),
        (Send(Client, 0), 0),
        (Network(Share(0), Rebind { other_ip: false }), 0),
        (Send(Client, 0), 0),
        (Send(Client, 0), 0),
    ];
    replay(16_393_192_905_632_156_836, Sides::Alike, &operations);
}

#[test]
fn the_fifth_sequence_that_failed() {
    let operations = [
        (Send(Server, 0), 51),
        (Network(Share(0), Outage(true)), 0),
        (OpenPath(Share(0), Available), 226),
        (Send(Client, 0), 94),
        (Network(Share(6148914691236517206), Outage(true)), 54),
        (stop(Client, Share(0)), 98),
        (Network(Share(6148914691236517206), Outage(true)), 153),
        (Datagram(Client, 1), 375),
        (Pause(Server), 277),
        (Network(Share(6148914691236517206), Outage(true)), 249),
        (Path(Client, Share(0), OnPath::Status(Backup)), 142),
        (Network(Share(6148914691236517206), Outage(true)), 202),
        (Network(Share(0), Outage(false)), 272),
        (OpenPath(Share(0), Available), 214),
        (Datagram(Server, 109), 385),
        (Network(Share(0), Outage(false)), 271),
        (Send(Client, 0), 0),
        (Network(Share(0), Outage(true)), 101),
        (Network(Share(0), Mtu(1250)), 174),
        (Datagram(Client, 1), 0),
        (Send(Client, 0), 95),
        (Network(Share(6148914691236517206), Outage(true)), 14),
        (Network(Share(0), Mtu(1250)), 94),
        (Send(Client, 13), 0),
        (Datagram(Client, 1), 0),
    ];
    replay(3_359_751_359_181_558_905, Sides::Alike, &operations);
}

/// A burst of losses takes one acknowledgement after another, and probe timeouts back off. What
/// ended the standstill too late depends on rates, delays, windows and keep-alives as drawn from
/// this seed.
#[test]
fn the_sixth_sequence_that_failed() {
    let operations = [
        (UpdateKeys(Client), 40),
        (Path(Client, Share(0), OnPath::Move(Share(0))), 243),
        (Path(Server, Share(0), OnPath::Status(Available)), 330),
        (Send(Server, 19), 286),
        (Network(Share(4611686018427387904), Outage(true)), 199),
        (Path(Server, Share(0), DownAndUp), 213),
        (Network(Share(4611686018427387904), Outage(true)), 271),
        (Network(Share(0), Outage(false)), 209),
        (Send(Server, 11), 288),
        (Send(Client, 17), 232),
        (OpenPath(Share(0), Available), 63),
        (UpdateKeys(Client), 90),
        (Send(Server, 19), 326),
        (Resume(Client), 205),
        (Pause(Server), 308),
        (Pause(Server), 211),
        (Resume(Client), 16),
        (Datagram(Client, 8), 366),
        (UpdateKeys(Client), 361),
        (Send(Server, 1), 156),
        (Send(Server, 20), 304),
        (Pause(Client), 98),
        (Send(Client, 0), 77),
        (Pause(Client), 216),
        (Pause(Client), 56),
        (
            Operation::Stream(Server, Share(3689348814741910324), OnStream::Reset(0)),
            26,
        ),
        (Send(Server, 0), 361),
        (Path(Client, Share(0), OnPath::Move(Share(0))), 0),
        (Send(Server, 11), 0),
        (Send(Server, 0), 0),
        (Datagram(Server, 215), 0),
    ];
    replay(2_655_061_289_403_135_166, Sides::Apart, &operations);
}

/// The rule was wrong, not the code: a burst of losses took ten acknowledgements of a side that had
/// nothing else to send.
#[test]
fn the_seventh_sequence_that_failed() {
    let operations = [
        (Path(Client, Share(0), DownAndUp), 36),
        (Datagram(Server, 8), 28),
        (Path(Server, Share(0), OnPath::Status(Available)), 0),
        (Path(Client, Share(0), OnPath::Move(Share(0))), 123),
        (Send(Client, 8), 0),
        (Resume(Client), 35),
        (Send(Server, 20), 277),
        (Operation::Stream(Client, Share(0), OnStream::Reset(0)), 228),
        (Network(Share(0), Outage(true)), 33),
        (Path(Client, Share(0), OnPath::Move(Share(0))), 373),
        (Path(Client, Share(0), OnPath::Status(Available)), 251),
        (Pause(Client), 285),
        (Operation::Ask(Server, 12, 0), 316),
        (Datagram(Client, 8), 228),
        (OpenPath(Share(0), Available), 215),
        (
            Path(
                Client,
                Share(9223372036854775808),
                OnPath::Status(Available),
            ),
            355,
        ),
        (Operation::Ask(Client, 0, 17), 276),
        (Path(Server, Share(0), Close), 347),
        (
            Path(
                Client,
                Share(9223372036854775808),
                OnPath::Status(Available),
            ),
            110,
        ),
        (Pause(Client), 200),
        (Pause(Client), 288),
        (Datagram(Client, 8), 279),
        (Path(Server, Share(0), Close), 80),
        (
            Operation::Stream(Client, Share(0), OnStream::Priority(0)),
            153,
        ),
        (Send(Client, 0), 85),
        (Pause(Client), 229),
        (Network(Share(0), Delay(171)), 395),
    ];
    replay(1_965_085_179_561_739_178, Sides::Apart, &operations);
}

/// The rule was wrong, not the code: a burst of losses took ten acknowledgements of a side that had
/// nothing else to send.
#[test]
fn the_eighth_sequence_that_failed() {
    let operations = [
        (Network(Share(0), Outage(true)), 0),
        (OpenPath(Share(0), Available), 40),
        (Datagram(Server, 8), 0),
        (Operation::Stream(Client, Share(0), OnStream::Reset(0)), 341),
        (Operation::Stream(Client, Share(0), OnStream::Reset(0)), 74),
        (UpdateKeys(Client), 207),
        (Send(Client, 19), 362),
        (OpenPath(Share(0), Available), 0),
        (Path(Client, Share(0), OnPath::Status(Available)), 0),
        (Network(Share(0), Corrupt(0.016437595632254654)), 0),
    ];
    replay(6_582_708_956_308_293_404, Sides::Apart, &operations);
}

/// Likewise, until the idle timeout of both sides.
#[test]
fn the_ninth_sequence_that_failed() {
    let operations = [
        (Network(Share(0), Corrupt(0.0)), 2),
        (Network(Share(0), Outage(true)), 0),
        (Operation::Ask(Client, 19, 0), 0),
        (UpdateKeys(Client), 0),
        (Send(Client, 1), 0),
        (OpenPath(Share(0), Available), 0),
        (Operation::Stream(Client, Share(0), OnStream::Stop(0)), 267),
        (Path(Client, Share(0), OnPath::Status(Available)), 237),
        (Pause(Client), 342),
        (Datagram(Client, 8), 177),
        (Operation::Stream(Client, Share(0), OnStream::Stop(0)), 102),
        (Operation::Ask(Client, 1, 0), 74),
        (OpenPath(Share(0), Available), 207),
        (Send(Client, 18), 362),
        (Send(Client, 0), 0),
        (Send(Server, 0), 15),
        (Operation::Ask(Client, 1, 0), 266),
        (Send(Client, 0), 250),
        (Datagram(Client, 8), 132),
        (Send(Client, 0), 362),
        (Path(Client, Share(0), OnPath::Status(Available)), 0),
        (Operation::Stream(Client, Share(0), OnStream::Stop(0)), 18),
    ];
    replay(6_582_708_956_308_293_404, Sides::Apart, &operations);
}

/// The server's first connection dies of silence, as all its packets are lost, and the client is
/// accepted once more. The application then closes the second connection.
#[test]
fn the_tenth_sequence_that_failed() {
    let operations = [
        (Send(Client, 0), 57),
        (Send(Client, 0), 2),
        (Send(Client, 0), 60),
        (Network(Share(0), Outage(true)), 334),
        (Send(Client, 0), 256),
        (Operation::Close(Server, 0), 358),
    ];
    replay(1_768_852_542_559_458_487, Sides::Apart, &operations);
}

/// The reason of the end is cut to what three times the bytes from a new address leave room for.
#[test]
fn the_eleventh_sequence_that_failed() {
    let half = Share(1 << 63);
    let operations = [
        (Datagram(Client, 8), 0),
        (Send(Server, 0), 0),
        (Send(Client, 13), 21),
        (OpenPath(Share(0), Backup), 3),
        (Operation::Stream(Client, Share(0), OnStream::Reset(0)), 0),
        (Datagram(Client, 135), 20),
        (Network(Share(0), Loss(0.06299366544412166)), 143),
        (Path(Server, half, OnPath::Status(Available)), 0),
        (Operation::Ask(Client, 0, 0), 9),
        (Operation::Ask(Server, 0, 16), 264),
        (Path(Server, Share(0), DownAndUp), 212),
        (Network(Share(0), Rebind { other_ip: true }), 243),
        (Datagram(Client, 8), 355),
        (Path(Client, half, Close), 0),
        (Path(Server, Share(0), Close), 0),
    ];
    replay(6_632_612_202_612_031_374, Sides::Apart, &operations);
}

/// A suspect path answered only with an acknowledgement of bare acknowledgements: its probes were
/// declared lost, no packet was left to acknowledge, and the path stayed suspect.
#[test]
fn a_path_whose_bare_acknowledgements_are_acknowledged_works_again() {
    let bind = OnStream::Bind(Share(1161545786049817901));
    let operations = [
        (OpenPath(Share(17544733403459999800), Available), 286),
        (Ask(Server, 1, 7), 239),
        (Send(Client, 14), 99),
        (Send(Server, 1), 329),
        (Send(Server, 20), 212),
        (OpenPath(Share(10517538128545943717), Available), 713),
        (Network(Share(14573701016665995608), Outage(true)), 1436),
        (Path(Client, Share(5619160644196961466), DownAndUp), 745),
        (Stream(Server, Share(16868745159781467623), bind), 611),
        (Path(Client, Share(16026561024480955848), Ping), 672),
    ];
    replay(17091294178298850927, Sides::Apart, &operations);
}

/// The server may send three times what came from the client's new address: not all of its reason.
#[test]
fn a_reason_is_cut_where_an_address_is_not_validated() {
    let operations = [
        (Network(Share(9_079_256_848_778_919_936), Delay(186)), 0),
        (
            Network(Share(2_882_303_761_517_117_440), Rebind { other_ip: false }),
            252,
        ),
    ];
    replay(65_535, Sides::Apart, &operations);
}

/// Its handshake has used up the allowance of the client's first datagram, and no other datagram of
/// the client arrives.
#[test]
fn a_server_may_be_unable_to_say_that_it_has_closed() {
    let mut operations = vec![
        (Pause(Client), 103),
        (Network(Share(1_080_863_910_568_919_040), Outage(true)), 382),
    ];
    operations.extend(std::iter::repeat_n((Datagram(Server, 893), 382), 12));
    operations.push((Operation::Close(Server, 99), 0));
    replay(101, Sides::Apart, &operations);
}

/// The path's delay rose beyond several probe timeouts. Acknowledgements of older packets came
/// between two timeouts each time, and the path then counted as silent anew, so no round trip ever
/// counted; the server was gone before its CONNECTION_CLOSE had arrived.
#[test]
fn a_path_that_becomes_much_longer_is_measured_again() {
    let operations = [
        (Network(Share(9079256848778919936), Delay(186)), 0),
        (Network(Share(17365880163140632576), Outage(true)), 0),
        (Send(Server, 10), 231),
        (Operation::UpdateKeys(Server), 0),
        (Datagram(Server, 812), 28),
        (OpenPath(Share(18374686479671623680), Backup), 382),
        (Network(Share(9079256848778919936), Delay(186)), 0),
        (Send(Client, 10), 361),
        (Network(Share(18374686479671623680), Delay(57)), 61),
        (
            Operation::Stream(Server, Share(3386706919782612992), OnStream::Reset(0)),
            189,
        ),
    ];
    replay(65402, Sides::Apart, &operations);
}

/// The client closed its first path before its connection IDs for the other path had arrived: the
/// server could not answer there, and waited for the IDs on another path.
#[test]
fn the_last_path_brings_the_connection_id_to_answer_with() {
    let operations = [
        (Network(Share(720575940379279360), Outage(true)), 22),
        (Network(Share(17654110539292344320), Outage(true)), 46),
        (OpenPath(Share(17654110539292344320), Available), 367),
        (Send(Client, 0), 154),
        (Path(Client, Share(5188146770730811392), Close), 228),
        (Datagram(Server, 201), 382),
    ];
    replay(39676, Sides::Apart, &operations);
}
