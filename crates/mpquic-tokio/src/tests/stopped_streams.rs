//! Streams that the peer has stopped free their place, after any last call of the application.

use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::testing::{DELAY, Error, Pair, TestResult, client, server};
use crate::{RecvStream, SendStream, default_transport};

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

/// Receiving streams make room as well: the end of a stream at the reader, by data or by a reset, makes room for the
/// next stream.
#[tokio::test(start_paused = true)]
async fn read_or_reset_stream_frees_its_place_at_once() -> TestResult {
    async fn reads(mut stream: RecvStream, is_reset: bool) -> TestResult {
        match is_reset {
            true => assert!(stream.received_reset().await?.is_some()),
            false => drop(stream.read_to_end(100).await?),
        }
        Ok(())
    }
    for is_reset in [false, true] {
        let pair = pair()?;
        let (a, b) = pair.connect().await?;
        let mut stream = a.open_uni().await?;
        stream.write_all(b"something").await?;
        match is_reset {
            true => stream.reset(3u32.into())?,
            false => stream.finish()?,
        }
        let receive = b.accept_uni().await?;
        sleep(Duration::from_secs(1)).await;
        reads(receive, is_reset).await?;
        let next = timeout(3 * DELAY, a.open_uni()).await;
        assert!(next.is_ok(), "no place, reset: {is_reset}");
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
