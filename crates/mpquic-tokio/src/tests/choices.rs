//! The application's wishes for single streams and DATAGRAMs: a path, a second copy, a deadline.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::time::sleep;

use crate::runtime::{Runtime, TokioRuntime};
use crate::testing::{DELAY, Error, Pair, TestResult, transfer};
use crate::{
    BindStreamError, Connection, DatagramOptions, PathId, ReadError, SendDatagramError,
    StoppedError, Version, WriteError,
};

const CODE: u32 = 77;

async fn connected() -> Result<(Pair, Connection, Connection), Error> {
    let pair = Pair::with_paths(2)?;
    let (a, b) = pair.connect_over(2).await?;
    transfer(&a, &b, 1 << 20).await?;
    sleep(Duration::from_secs(1)).await;
    Ok((pair, a, b))
}

fn soon(after: Duration) -> Instant {
    TokioRuntime.now() + after
}

/// Bytes that each socket of the client has sent after the last look.
fn sent(pair: &Pair) -> [usize; 2] {
    [0, 1].map(|index| {
        let calls = pair.at_client[index].take_calls();
        let datagrams = calls.iter().flat_map(|call| &call.datagrams);
        datagrams.map(Vec::len).sum()
    })
}

#[tokio::test(start_paused = true)]
async fn a_stream_and_datagrams_go_where_they_are_sent() -> TestResult {
    let (pair, a, b) = connected().await?;
    for index in [0, 1] {
        let path = PathId(index);
        sent(&pair);
        let mut stream = a.open_uni().await?;
        stream.set_path(Some(path))?;
        stream.write_all(&[1; 200_000]).await?;
        stream.finish()?;
        let data = b.accept_uni().await?.read_to_end(1 << 20).await?;
        assert_eq!(data.len(), 200_000);
        let options = DatagramOptions::default().with_path(path);
        a.send_datagram_with(Bytes::from_static(b"here"), options)?;
        assert_eq!(b.read_datagram().await?, "here");
        let bytes = sent(&pair);
        let index = index as usize;
        assert!(
            bytes[index] > 200_000 && bytes[1 - index] < 10_000,
            "{bytes:?}"
        );
    }
    let unknown = DatagramOptions::default().with_path(PathId(9));
    let result = a.send_datagram_with(Bytes::new(), unknown);
    assert_eq!(result, Err(SendDatagramError::ClosedPath));
    let stream = a.open_uni().await?;
    let result = stream.set_path(Some(PathId(9)));
    assert_eq!(result, Err(BindStreamError::ClosedPath));
    Ok(())
}

/// The writer waits for credit of a reader that does not read.
#[tokio::test(start_paused = true)]
async fn a_stream_is_reset_at_its_deadline() -> TestResult {
    let (_pair, a, b) = connected().await?;
    let mut stream = a.open_uni().await?;
    let deadline = soon(Duration::from_secs(2));
    stream.set_deadline(deadline, CODE.into())?;
    let endless = async {
        loop {
            if let Err(error) = stream.write_all(&[1; 100_000]).await {
                return error;
            }
        }
    };
    assert_eq!(endless.await, WriteError::ClosedStream);
    let late = TokioRuntime.now().saturating_duration_since(deadline);
    assert!(late <= Duration::from_millis(5), "{late:?}");
    assert_eq!(stream.stopped().await, Err(StoppedError::Expired));
    let mut incoming = b.accept_uni().await?;
    loop {
        match incoming.read_chunk(usize::MAX, true).await {
            Ok(Some(_)) => {}
            end => {
                assert_eq!(end.err(), Some(ReadError::Reset(CODE.into())));
                break;
            }
        }
    }
    assert_eq!(a.stats().streams_expired, 1);
    Ok(())
}

/// The application writes no more, and the task that waits for the end hears of the reset.
#[tokio::test(start_paused = true)]
async fn waiting_task_hears_of_an_expired_stream() -> TestResult {
    let (pair, a, _b) = connected().await?;
    let mut stream = a.open_uni().await?;
    stream.set_deadline(soon(Duration::from_secs(1)), CODE.into())?;
    for port in &pair.at_client {
        port.silence(true);
    }
    stream.write_all(&[1; 100_000]).await?;
    stream.finish()?;
    assert_eq!(stream.stopped().await, Err(StoppedError::Expired));
    Ok(())
}

/// Both paths carry the data, so the loss of a path costs no time.
#[tokio::test(start_paused = true)]
async fn redundant_data_survives_a_path_loss_without_delay() -> TestResult {
    let (pair, a, b) = connected().await?;
    let mut stream = a.open_uni().await?;
    stream.set_redundant(true)?;
    for silent in [0, 1] {
        pair.at_client[silent].silence(true);
        let start = TokioRuntime.now();
        if silent == 0 {
            stream.write_all(&[1; 10_000]).await?;
            stream.finish()?;
            let data = b.accept_uni().await?.read_to_end(1 << 20).await?;
            assert_eq!(data.len(), 10_000);
        } else {
            let options = DatagramOptions::default().with_copy();
            a.send_datagram_with(Bytes::from_static(b"once"), options)?;
            assert_eq!(b.read_datagram().await?, "once");
        }
        let took = TokioRuntime.now().saturating_duration_since(start);
        assert!(
            took <= DELAY + Duration::from_millis(5),
            "{silent}: {took:?}"
        );
        pair.at_client[silent].silence(false);
        sleep(Duration::from_secs(10)).await;
    }
    assert_eq!(a.stats().copies_refused, 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_connection_tells_its_version_and_shortest_round_trip() -> TestResult {
    let pair = Pair::with_paths(2)?;
    let (a, b) = pair.connect_over(2).await?;
    transfer(&a, &b, 1 << 20).await?;
    for connection in [&a, &b] {
        assert_eq!(connection.version(), Version::V1);
        let paths = connection.path_stats().into_iter();
        let shortest = paths.map(|path| path.rtt).min();
        let rtt = connection.rtt().ok_or("no path in use")?;
        assert!(Some(rtt) == shortest && rtt >= 2 * DELAY, "{rtt:?}");
    }
    // A path without an answer is not in use.
    for port in &pair.at_client {
        port.silence(true);
    }
    let mut stream = a.open_uni().await?;
    stream.write_all(b"x").await?;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(a.rtt(), None);
    Ok(())
}
