//! Sockets that fail to read.

use std::io::ErrorKind;
use std::time::Duration;

use tokio::time::sleep;

use crate::testing::{DELAY, Error, Pair, TestResult, client, server, transfer};

/// The kernel reports an ICMP message, for example, to the next read, whatever datagram waits.
#[tokio::test(start_paused = true)]
async fn errors_of_a_socket_do_not_concern_what_arrives() -> TestResult {
    let pair = Pair::with_paths(1)?;
    let (a, b) = pair.connect().await?;
    transfer(&a, &b, 4 << 20).await?;
    sleep(Duration::from_secs(8)).await;
    let fail = async {
        for port in [&pair.at_client[0], &pair.at_server[0]] {
            port.fail_to_read(3, ErrorKind::ConnectionRefused);
        }
        sleep(DELAY / 2).await;
        for port in [&pair.at_client[0], &pair.at_server[0]] {
            assert_eq!(port.failures_left(), 0);
            port.fail_to_read(3, ErrorKind::ConnectionRefused);
        }
        Ok(())
    };
    let (elapsed, ()) = tokio::try_join!(transfer(&a, &b, 100_000), fail)?;
    assert_eq!(elapsed, DELAY);
    Ok(())
}

/// A socket that never works again does not keep a processor busy.
#[tokio::test(start_paused = true)]
async fn a_socket_that_always_fails_is_not_read_all_the_time() -> TestResult {
    let pair = Pair::with_paths(2)?;
    let (a, b) = pair.connect_over(2).await?;
    let port = &pair.at_client[1];
    let many = 1_000_000;
    port.fail_to_read(many, ErrorKind::Other);
    sleep(Duration::from_secs(1)).await;
    let failed = many - port.failures_left();
    assert!(
        (5_000..=10_100).contains(&failed),
        "{failed} times in a second"
    );
    transfer(&a, &b, 100_000).await?;
    Ok(())
}

/// A server and a client that send without pauses, and at most `max_transmit_segments` datagrams in
/// a train.
fn unpaced(max_transmit_segments: usize) -> Result<Pair, Error> {
    let transport = || {
        let mut transport = crate::default_transport();
        transport.max_transmit_segments = max_transmit_segments;
        transport.pacing = false;
        transport
    };
    Pair::new(
        (server(transport())?, &["10.0.0.1:443"]),
        (client(transport())?, &["10.0.1.1:1"]),
    )
}

/// Sends `bytes` at once, and returns the number of sending calls and the number of answering
/// calls.
async fn calls_for(bytes: usize) -> Result<(usize, usize), Error> {
    let pair = unpaced(2)?;
    let (a, b) = pair.connect().await?;
    transfer(&a, &b, 2_000_000).await?;
    sleep(Duration::from_secs(1)).await;
    let [client, server] = [&pair.at_client[0], &pair.at_server[0]];
    client.take_calls();
    server.take_calls();
    transfer(&a, &b, bytes).await?;
    sleep(DELAY).await;
    Ok((client.take_calls().len(), server.take_calls().len()))
}

/// The server reads all datagrams of a socket, in any number of calls, before the first answer.
#[tokio::test(start_paused = true)]
async fn trains_received_together_get_one_acknowledgement() -> TestResult {
    let (sent, answers) = calls_for(8000).await?;
    assert!(sent >= 3);
    assert_eq!(answers, 1);
    // Applications have had their turn meanwhile.
    let (sent, answers) = calls_for(110_000).await?;
    assert!(sent >= 35);
    assert_eq!(answers, 1);
    Ok(())
}

/// The server answers larger amounts before it has read all datagrams.
#[tokio::test(start_paused = true)]
async fn a_lot_that_arrived_together_is_acknowledged_several_times() -> TestResult {
    let (sent, answers) = calls_for(500_000).await?;
    assert!(sent >= 160);
    assert!((3..=5).contains(&answers), "{answers}");
    Ok(())
}

/// The connection sends no small groups of DATAGRAMs while the application goes on writing.
#[tokio::test(start_paused = true)]
async fn datagrams_leave_in_full_trains() -> TestResult {
    let pair = unpaced(40)?;
    let (a, b) = pair.connect().await?;
    transfer(&a, &b, 2_000_000).await?;
    sleep(Duration::from_secs(1)).await;
    pair.at_client[0].take_calls();
    for _ in 0..40 {
        a.send_datagram(vec![7; 1000].into())?;
    }
    sleep(DELAY).await;
    let calls = pair.at_client[0].take_calls();
    let datagrams = Vec::from_iter(calls.iter().map(|call| call.datagrams.len()));
    assert_eq!(datagrams, [40]);
    Ok(())
}
