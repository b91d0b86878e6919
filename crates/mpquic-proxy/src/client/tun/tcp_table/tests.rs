use super::*;

const OPENS: Flags = Flags::new(2);
const ACKNOWLEDGES: Flags = Flags::new(16);
const RESETS: Flags = Flags::new(4);

fn ends(port: u16) -> Ends {
    Ends {
        application: ([198, 18, 0, 1], port).into(),
        target: ([192, 0, 2, 7], 443).into(),
    }
}

/// Opens a connection as far as possible.
fn open(table: &mut TcpTable<u16>, from: u16, now: Instant) -> u16 {
    let Verdict::Open(port) = table.on_segment(ends(from), OPENS) else {
        panic!("it has room");
    };
    table.on_flow(port, from, now);
    assert_eq!(table.on_accepted(port), Some(from));
    port
}

#[tokio::test(start_paused = true)]
async fn the_handshake_waits_for_the_flow() {
    let now = Instant::now();
    let mut table = TcpTable::default();
    assert_eq!(
        table.on_segment(ends(1), ACKNOWLEDGES),
        Verdict::Unknown,
        "of an earlier client"
    );
    let Verdict::Open(port) = table.on_segment(ends(1), OPENS) else {
        panic!("it has room");
    };
    assert_eq!(
        table.on_segment(ends(1), OPENS),
        Verdict::Drop,
        "it is repeated"
    );
    assert_eq!(table.on_accepted(port), None);
    table.on_flow(port, "flow", now);
    assert_eq!(table.on_segment(ends(1), OPENS), Verdict::Pass(port));
    assert_eq!(table.on_answer(port), Some(ends(1)));
    assert_eq!(table.on_answer(port + 1), None);
    assert_eq!(table.on_accepted(port), Some("flow"));
    assert_eq!(table.on_accepted(port), None, "only once");
    assert_eq!(table.on_segment(ends(1), ACKNOWLEDGES), Verdict::Pass(port));
}

#[tokio::test(start_paused = true)]
async fn without_a_flow_it_is_as_if_it_had_never_been() {
    let mut table = TcpTable::<()>::default();
    let Verdict::Open(port) = table.on_segment(ends(1), OPENS) else {
        panic!("it has room");
    };
    table.on_no_flow(port);
    assert_eq!(table.on_answer(port), None);
    assert!(matches!(table.on_segment(ends(1), OPENS), Verdict::Open(_)));
}

#[tokio::test(start_paused = true)]
async fn last_words_are_passed_on_for_a_while() {
    let start = Instant::now();
    let mut table = TcpTable::default();
    let port = open(&mut table, 1, start);
    table.on_ended(port, start);
    assert_eq!(table.sweep(start + LINGER / 2), 0);
    assert_eq!(table.on_segment(ends(1), ACKNOWLEDGES), Verdict::Pass(port));
    assert_eq!(table.sweep(start + LINGER), 0);
    assert_eq!(table.on_segment(ends(1), ACKNOWLEDGES), Verdict::Unknown);
    assert_eq!(table.on_answer(port), None);
}

#[tokio::test(start_paused = true)]
async fn the_same_addresses_may_be_used_again_at_once() {
    let now = Instant::now();
    let mut table = TcpTable::default();
    let port = open(&mut table, 1, now);
    table.on_ended(port, now);
    let again = open(&mut table, 1, now);
    assert_ne!(again, port, "the listener still knows the old one");
    // The end of the first is not one of the second.
    table.sweep(now + LINGER);
    assert_eq!(
        table.on_segment(ends(1), ACKNOWLEDGES),
        Verdict::Pass(again)
    );
}

#[tokio::test(start_paused = true)]
async fn applications_that_are_gone_in_the_handshake_keep_nothing() {
    let now = Instant::now();
    let mut table = TcpTable::default();
    for from in [1, 2] {
        let Verdict::Open(port) = table.on_segment(ends(from), OPENS) else {
            panic!("it has room");
        };
        table.on_flow(port, from, now);
        match from {
            // The program closes, and the listener is told as well.
            1 => assert_eq!(table.on_segment(ends(1), RESETS), Verdict::Pass(port)),
            _ => assert_eq!(table.sweep(now + HANDSHAKE), 1),
        }
        assert_eq!(table.on_accepted(port), None);
        assert_eq!(table.on_answer(port), None);
    }
}

#[tokio::test(start_paused = true)]
async fn there_are_never_more_than_that() {
    let now = Instant::now();
    let mut table = TcpTable::default();
    let most = u16::try_from(MOST).unwrap();
    let ports: Vec<_> = (0..most).map(|from| open(&mut table, from, now)).collect();
    assert_eq!(table.on_segment(ends(most), OPENS), Verdict::Drop);
    // One ends, another begins.
    table.on_ended(ports[0], now);
    open(&mut table, most, now);
    assert_eq!(table.on_segment(ends(most + 1), OPENS), Verdict::Drop);
    // Not all ended connections are kept.
    for port in &ports[1..] {
        table.on_ended(*port, now);
    }
    for from in most..=u16::MAX {
        let port = match table.ports.get(&ends(from)) {
            Some(port) => *port,
            None => open(&mut table, from, now),
        };
        table.on_ended(port, now);
        assert!(table.ended.len() <= MOST_ENDED);
    }
    assert_eq!(table.connections.len(), table.ended.len());
    assert_eq!(table.ports.len(), table.ended.len());
}
