//! Streams and datagrams.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use mpquic_tokio::sched::{Decision, Needs, Scheduler, View, factory};
use mpquic_tokio::{ReadError, ReadToEndError, SendDatagramError, WriteError, default_transport};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{Error, Net, TestResult, client, pattern, within};

#[tokio::test]
async fn datagrams_go_both_ways() -> TestResult {
    let net = Net::two_paths()?;
    let (a, b) = net.connect().await?;
    for round in 0..100u32 {
        a.send_datagram_wait(Bytes::copy_from_slice(&round.to_be_bytes()))
            .await?;
        let received = within("datagram", b.read_datagram()).await??;
        b.send_datagram(received)?;
        let echoed = within("datagram", a.read_datagram()).await??;
        assert_eq!(&echoed[..], round.to_be_bytes());
    }
    let largest = a.max_datagram_size().ok_or("no datagrams")?;
    a.send_datagram(pattern(largest, 3))?;
    assert_eq!(
        within("datagram", b.read_datagram()).await??,
        pattern(largest, 3)
    );
    let too_large = a.send_datagram(pattern(1 << 16, 3));
    assert_eq!(too_large, Err(SendDatagramError::TooLarge));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_streams_share_a_connection() -> TestResult {
    const STREAMS: u32 = 1000;
    let net = Net::two_paths()?;
    let (a, b) = net.connect().await?;
    let open = async {
        for number in 0..STREAMS {
            let mut stream = a.open_uni().await?;
            stream.write_all(&pattern(5000, number)).await?;
            stream.write_all(&number.to_be_bytes()).await?;
            stream.finish()?;
        }
        Ok(())
    };
    let accept = async {
        let mut seen = vec![false; STREAMS as usize];
        for _ in 0..STREAMS {
            let data = b.accept_uni().await?.read_to_end(1 << 16).await?;
            let (body, number) = data.split_last_chunk::<4>().ok_or("short")?;
            let number = u32::from_be_bytes(*number);
            assert_eq!(body, pattern(5000, number));
            assert!(!std::mem::replace(&mut seen[number as usize], true));
        }
        Ok::<_, Error>(())
    };
    within("streams", async { tokio::try_join!(open, accept) }).await??;
    Ok(())
}

#[tokio::test]
async fn streams_end_as_the_application_says() -> TestResult {
    let net = Net::two_paths()?;
    let (a, b) = net.connect().await?;
    let (mut send, mut recv) = a.open_bi().await?;
    send.write_all(b"hello").await?;
    let (mut other_send, mut other_recv) = within("accept", b.accept_bi()).await??;
    let mut hello = [0; 5];
    other_recv.read_exact(&mut hello).await?;
    other_recv.stop(7u32.into())?;
    assert_eq!(
        within("stopped", send.stopped())
            .await??
            .map(|c| c.into_inner()),
        Some(7)
    );
    let blocked = within("write", send.write_all(&[0; 100])).await?;
    assert_eq!(blocked, Err(WriteError::Stopped(7u32.into())));
    other_send.reset(9u32.into())?;
    let reset = within("read", recv.read(&mut hello)).await?;
    assert_eq!(reset, Err(ReadError::Reset(9u32.into())));
    let mut stream = b.open_uni().await?;
    AsyncWriteExt::write_all(&mut stream, &pattern(100_000, 4)).await?;
    AsyncWriteExt::shutdown(&mut stream).await?;
    let mut accepted = within("accept", a.accept_uni()).await??;
    let mut data = Vec::new();
    within("read", AsyncReadExt::read_to_end(&mut accepted, &mut data)).await??;
    assert_eq!(data, pattern(100_000, 4));
    assert_eq!(within("acknowledged", stream.stopped()).await??, None);
    let mut stream = b.open_uni().await?;
    stream.write_all(&pattern(5000, 5)).await?;
    let long = within("read", a.accept_uni())
        .await??
        .read_to_end(1000)
        .await;
    assert_eq!(long, Err(ReadToEndError::TooLong));
    Ok(())
}

/// Libraries keep the streams they open, and tell only their IDs.
#[tokio::test]
async fn a_stream_is_watched_by_its_id() -> TestResult {
    let mut transport = default_transport();
    transport.send_window = 10_000;
    let config = client(transport)?;
    let net = Net::new(&["127.0.0.1"], &["127.0.0.1", "127.0.0.2"], config)?;
    let (a, b) = net.connect().await?;
    let mut stream = a.open_uni().await?;
    let watch = a.watch_stream(stream.id());
    assert_eq!(within("writable", watch.writable()).await??, 10_000);
    watch.set_priority(3)?;
    assert_eq!((stream.priority(), watch.priority()), (Ok(3), Ok(3)));
    assert_eq!(
        (stream.incremental(), watch.incremental()),
        (Ok(true), Ok(true))
    );
    watch.set_incremental(false)?;
    assert_eq!(
        (stream.incremental(), watch.incremental()),
        (Ok(false), Ok(false))
    );
    stream.set_incremental(true)?;
    assert_eq!(watch.incremental(), Ok(true));
    stream.write_all(&pattern(10_000, 1)).await?;
    stream.finish()?;
    // It goes on without the handle.
    drop(stream);
    let mut first = within("accept", b.accept_uni()).await??;
    assert_eq!(within("acknowledged", watch.stopped()).await?, Ok(None));
    assert_eq!(first.read_to_end(20_000).await?.len(), 10_000);
    assert_eq!(watch.writable().await, Err(WriteError::ClosedStream));
    assert!(watch.set_incremental(false).is_err() && watch.incremental().is_err());

    let mut stream = a.open_uni().await?;
    stream.write_all(&pattern(5_000, 1)).await?;
    let watch = a.watch_stream(stream.id());
    within("accept", b.accept_uni()).await??.stop(7u32.into())?;
    let code = within("stopped", watch.stopped()).await??;
    assert_eq!(code, Some(7u32.into()));
    Ok(())
}

/// Writes down the sizes of the unfinished streams that it is shown.
#[derive(Debug)]
struct Sizes(Arc<Mutex<Vec<Option<u64>>>>);

impl Scheduler for Sizes {
    fn select(&mut self, view: &View<'_>) -> Decision {
        let open = view.streams.iter().filter(|stream| !stream.finished);
        let sizes = open.map(|stream| stream.size);
        self.0.lock().unwrap().extend(sizes);
        match view.sendable().next() {
            Some(path) => Decision::send(path.id),
            None => Decision::Blocked,
        }
    }

    fn needs(&self) -> Needs {
        Needs::default().with_streams()
    }

    fn name(&self) -> &'static str {
        "sizes"
    }
}

/// Schedulers know how long a stream will be before all of it is written.
#[tokio::test]
async fn the_size_of_a_stream_can_be_announced() -> TestResult {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut transport = default_transport();
    let shared = seen.clone();
    transport.scheduler = factory("sizes", move || Box::new(Sizes(shared.clone())));
    let config = client(transport)?;
    let net = Net::new(&["127.0.0.1"], &["127.0.0.1", "127.0.0.2"], config)?;
    let (a, b) = net.connect().await?;
    for by_id in [false, true] {
        let mut stream = a.open_uni().await?;
        if by_id {
            a.watch_stream(stream.id()).set_expected_size(5_000)?
        } else {
            stream.set_expected_size(5_000)?
        }
        stream.write_all(&pattern(2_000, 1)).await?;
        let mut received = within("accept", b.accept_uni()).await??;
        within("the beginning", received.read_exact(&mut [0; 2_000])).await??;
        let sizes = std::mem::take(&mut *seen.lock().unwrap());
        assert!(!sizes.is_empty());
        assert!(sizes.iter().all(|size| *size == Some(5_000)), "{sizes:?}");
        stream.finish()?;
        // It was announced as longer, which does no harm.
        assert_eq!(received.read_to_end(1).await?.len(), 0);
    }
    Ok(())
}
