//! Streams that the peer has stopped free their place, after any last call of the application.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::testing::{DELAY, Error, Pair, TestResult, client, server};
use crate::{
    Connection, ReadError, ReadToEndError, RecvStream, SendStream, StoppedError, VarInt,
    WriteError, default_transport,
};

/// The last call of an application that learns of the stop after the peer's last packet.
#[derive(Debug, Clone, Copy)]
enum Last {
    Writes,
    WritesChunk,
    Finishes,
    Resets,
    Drops,
    AsksAndDrops,
    FinishesAndDrops,
}

impl Last {
    const ALL: [Self; 7] = [
        Self::Writes,
        Self::WritesChunk,
        Self::Finishes,
        Self::Resets,
        Self::Drops,
        Self::AsksAndDrops,
        Self::FinishesAndDrops,
    ];

    /// Performs the action. Returns a stream that stays open.
    async fn act(self, mut stream: SendStream) -> Result<Option<SendStream>, Error> {
        match self {
            Self::Writes => assert!(stream.write(b"late").await.is_err()),
            Self::WritesChunk => assert!(stream.write_chunk("late".into()).await.is_err()),
            Self::Finishes => stream.finish()?,
            Self::Resets => stream.reset(1u32.into())?,
            Self::Drops => return Ok(None),
            Self::AsksAndDrops => {
                assert_eq!(stream.stopped().await?, Some(3u32.into()));
                return Ok(None);
            }
            Self::FinishesAndDrops => {
                stream.finish()?;
                return Ok(None);
            }
        }
        Ok(Some(stream))
    }
}

/// No packet of the peer triggers sending: the connection's task has to run on its own.
#[tokio::test(start_paused = true)]
async fn a_stopped_stream_frees_its_place_at_once() -> TestResult {
    for last in Last::ALL {
        let pair = pair()?;
        let (a, b) = pair.connect().await?;
        let (mut request, mut answer) = a.open_bi().await?;
        request.write_all(b"question").await?;
        request.finish()?;
        let (send, mut receive) = b.accept_bi().await?;
        receive.read_to_end(100).await?;
        answer.stop(3u32.into())?;
        sleep(Duration::from_secs(1)).await;
        let next = timeout(Duration::from_millis(1), a.open_bi()).await;
        assert!(next.is_err(), "{last:?}: the limit is one");
        let _open = last.act(send).await?;
        let next = timeout(3 * DELAY, a.open_bi()).await;
        assert!(next.is_ok(), "{last:?}: no place");
    }
    Ok(())
}

/// Receiving streams make room as well: the end of a stream at the reader, by data or by a reset,
/// makes room for the next stream.
#[tokio::test(start_paused = true)]
async fn read_or_reset_stream_frees_its_place_at_once() -> TestResult {
    async fn reads(mut stream: RecvStream, is_reset: bool) -> TestResult {
        if is_reset {
            assert!(stream.received_reset().await?.is_some())
        } else {
            stream.read_to_end(100).await?;
        }
        Ok(())
    }
    for is_reset in [false, true] {
        let pair = pair()?;
        let (a, b) = pair.connect().await?;
        let mut stream = a.open_uni().await?;
        stream.write_all(b"something").await?;
        if is_reset {
            stream.reset(3u32.into())?
        } else {
            stream.finish()?
        }
        let receive = b.accept_uni().await?;
        sleep(Duration::from_secs(1)).await;
        reads(receive, is_reset).await?;
        let next = timeout(3 * DELAY, a.open_uni()).await;
        assert!(next.is_ok(), "no place, reset: {is_reset}");
    }
    Ok(())
}

/// A call of the application, before or after the peer's stop arrives.
#[derive(Debug, Clone, Copy)]
enum Call {
    FinishesBefore,
    Nothing,
    Writes,
    Finishes,
    Resets,
}

/// An answer of the server that its client stops before the end.
async fn stopped_answer(
    a: &Connection,
    b: &Connection,
    call: Call,
) -> Result<(SendStream, RecvStream), Error> {
    let (mut request, mut answer) = a.open_bi().await?;
    request.write_all(b"question").await?;
    request.finish()?;
    let (mut send, receive) = b.accept_bi().await?;
    send.write_all(&[0; 10_000]).await?;
    if let Call::FinishesBefore = call {
        send.finish()?;
    }
    answer.stop(3u32.into())?;
    sleep(2 * DELAY).await;
    match call {
        Call::FinishesBefore | Call::Nothing => {}
        Call::Writes => assert!(send.write(b"late").await.is_err()),
        Call::Finishes => send.finish()?,
        Call::Resets => send.reset(1u32.into())?,
    }
    // The client acknowledges the reset.
    sleep(Duration::from_secs(1)).await;
    Ok((send, receive))
}

/// A handle tells the peer's code, whatever the application called before: never that the peer has
/// all bytes.
#[tokio::test(start_paused = true)]
async fn a_stop_is_told_after_its_reset_was_acknowledged() -> TestResult {
    let code = VarInt::from_u32(3);
    for call in [
        Call::FinishesBefore,
        Call::Nothing,
        Call::Writes,
        Call::Finishes,
        Call::Resets,
    ] {
        let pair = pair()?;
        let (a, b) = pair.connect().await?;
        let (mut send, _receive) = stopped_answer(&a, &b, call).await?;
        for _ in 0..2 {
            assert_eq!(send.stopped().await?, Some(code), "{call:?}");
            let written = send.write(b"late").await;
            assert_eq!(written, Err(WriteError::Stopped(code)), "{call:?}");
            assert!(
                send.finish().is_ok() && send.reset(code).is_ok(),
                "{call:?}"
            );
            sleep(Duration::from_secs(1)).await;
        }
    }
    Ok(())
}

/// The handle of a finished stream keeps the peer's code, and the stream's place, until the drop.
#[tokio::test(start_paused = true)]
async fn the_drop_of_a_finished_stream_frees_its_place() -> TestResult {
    let pair = pair()?;
    let (a, b) = pair.connect().await?;
    let (send, receive) = stopped_answer(&a, &b, Call::FinishesBefore).await?;
    drop(receive);
    let next = timeout(Duration::from_secs(1), a.open_bi()).await;
    assert!(next.is_err(), "the handle may still ask for the code");
    drop(send);
    let next = timeout(3 * DELAY, a.open_bi()).await;
    assert!(next.is_ok(), "no place");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_acknowledged_reset_wakes_who_waits_for_the_end() -> TestResult {
    let pair = pair()?;
    let (a, b) = pair.connect().await?;
    let mut stream = a.open_uni().await?;
    stream.write_all(b"something").await?;
    let mut receive = b.accept_uni().await?;
    stream.reset(4u32.into())?;
    let end = timeout(10 * DELAY, stream.stopped()).await;
    assert_eq!(end, Ok(Ok(None)));
    assert_eq!(receive.received_reset().await?, Some(4u32.into()));
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn an_expired_stream_was_not_delivered() -> TestResult {
    let pair = pair()?;
    let (a, b) = pair.connect().await?;
    let mut stream = a.open_uni().await?;
    let deadline = tokio::time::Instant::now() + DELAY / 2;
    stream.set_deadline(deadline.into_std(), 5u32.into())?;
    stream.write_all(&[0; 1 << 20]).await?;
    let _receive = b.accept_uni().await?;
    // The server acknowledges the reset.
    sleep(Duration::from_secs(5)).await;
    for _ in 0..2 {
        assert_eq!(stream.stopped().await, Err(StoppedError::Expired));
    }
    Ok(())
}

/// A task of its own runs again only if somebody wakes it. Nothing else happens to the connection.
#[tokio::test(start_paused = true)]
async fn a_task_that_waits_for_the_end_hears_of_a_stop_and_of_expired_data() -> TestResult {
    for is_stop in [true, false] {
        let pair = pair()?;
        let (a, b) = pair.connect().await?;
        let mut stream = a.open_uni().await?;
        stream.write_all(b"something").await?;
        let mut receive = b.accept_uni().await?;
        sleep(Duration::from_secs(1)).await;
        if !is_stop {
            // The server gets none of the further data.
            pair.at_server[0].silence(true);
            let deadline = tokio::time::Instant::now() + DELAY;
            stream.set_deadline(deadline.into_std(), 5u32.into())?;
            stream.write_all(b"more").await?;
        }
        let waiting = tokio::spawn(async move { stream.stopped().await });
        sleep(DELAY / 2).await;
        let expected = match is_stop {
            true => {
                receive.stop(3u32.into())?;
                Ok(Some(3u32.into()))
            }
            false => Err(StoppedError::Expired),
        };
        let told = timeout(3 * DELAY, waiting)
            .await
            .map_err(|_| "the task sleeps")?;
        assert_eq!(told?, expected);
    }
    Ok(())
}

/// Watches of a stream learn of its end, although the handle is dropped meanwhile.
#[tokio::test(start_paused = true)]
async fn a_dropped_handle_leaves_no_watch_behind() -> TestResult {
    let pair = pair()?;
    let (a, b) = pair.connect().await?;
    let mut stream = a.open_uni().await?;
    stream.write_all(b"something").await?;
    let watch = a.watch_stream(stream.id());
    let delivered = tokio::spawn(async move { watch.stopped().await });
    sleep(DELAY).await;
    drop(stream);
    b.accept_uni().await?.read_to_end(100).await?;
    assert_eq!(timeout(10 * DELAY, delivered).await??, Ok(None));
    let mut stream = a.open_uni().await?;
    while let Ok(written) = timeout(DELAY, stream.write(&[0; 1 << 16])).await {
        written?;
    }
    let watch = a.watch_stream(stream.id());
    let writable = tokio::spawn(async move { watch.writable().await });
    sleep(DELAY).await;
    drop(stream);
    let writable = timeout(DELAY, writable).await??;
    assert_eq!(writable, Err(WriteError::ClosedStream));
    Ok(())
}

/// Bytes that `read_to_end` has dropped do not turn into a clean end.
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_too_long_has_no_end_to_read() -> TestResult {
    for length in [100, 100_000] {
        let pair = pair()?;
        let (a, b) = pair.connect().await?;
        let mut stream = a.open_uni().await?;
        stream.write_all(&vec![0; length]).await?;
        stream.finish()?;
        let mut receive = b.accept_uni().await?;
        sleep(Duration::from_secs(1)).await;
        let whole = receive.read_to_end(10).await;
        assert_eq!(whole, Err(ReadToEndError::TooLong));
        let read = receive.read(&mut [0; 100]).await;
        assert_eq!(read, Err(ReadError::IllegalOrderedRead));
        drop(receive);
        let next = timeout(10 * DELAY, a.open_uni()).await;
        assert!(next.is_ok(), "no place");
    }
    Ok(())
}

/// One stream of each kind at a time.
fn pair() -> Result<Pair, Error> {
    let mut transport = default_transport();
    transport.max_concurrent_bidi_streams = 1;
    transport.max_concurrent_uni_streams = 1;
    Pair::new(
        (server(transport)?, &["10.0.0.1:443"]),
        (client(default_transport())?, &["10.0.1.1:1"]),
    )
}
