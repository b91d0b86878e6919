//! What hand-written futures use.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use mpquic_tokio::{ConnectionError, ReadError, WriteError, default_transport};

use crate::harness::{Net, TestResult, client, pattern, within};

/// Counts how often it is woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl Count {
    fn new() -> (Arc<Self>, Waker) {
        let count = Arc::new(Self::default());
        (count.clone(), count.into())
    }

    async fn until_woken(&self) -> TestResult {
        let woken = async {
            while self.0.load(Ordering::SeqCst) == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        within("a wake-up", woken).await
    }
}

#[tokio::test]
async fn streams_are_opened_and_accepted() -> TestResult {
    let net = Net::two_paths()?;
    let (mut a, mut b) = net.connect().await?;
    let exchange = async {
        let accept = poll_fn(|cx| b.poll_accept_bi(cx));
        let open = async {
            let (mut send, recv) = poll_fn(|cx| a.poll_open_bi(cx)).await?;
            send.write_all(b"both ways").await.map(|()| (send, recv))
        };
        let ((_send, _), (_, mut recv)) = tokio::try_join!(open, async { Ok(accept.await?) })?;
        let mut text = [0; 9];
        assert!(recv.read_exact(&mut text).await.is_ok() && &text == b"both ways");
        let accept = poll_fn(|cx| b.poll_accept_uni(cx));
        let open = async {
            let mut send = poll_fn(|cx| a.poll_open_uni(cx)).await?;
            send.write_all(b"one way").await
        };
        let ((), mut recv) = tokio::try_join!(open, async { Ok(accept.await?) })?;
        assert_eq!(recv.read_to_end(10).await.as_deref(), Ok(&b"one way"[..]));
        Ok::<_, WriteError>(())
    };
    Ok(within("exchange", exchange).await??)
}

/// A clone of a handle waits for itself, and the last task that polled a handle is the one woken.
#[tokio::test]
async fn each_handle_wakes_the_task_that_polled_it_last() -> TestResult {
    let net = Net::two_paths()?;
    let (mut a, b) = net.connect().await?;
    let mut other = a.clone();
    let [(early, first), (late, second), (third, of_other)] = [(); 3].map(|()| Count::new());
    for waker in [&first, &second] {
        let mut cx = Context::from_waker(waker);
        assert!(a.poll_accept_uni(&mut cx).is_pending());
        assert!(a.poll_read_datagram(&mut cx).is_pending());
    }
    let mut cx = Context::from_waker(&of_other);
    assert!(other.poll_accept_uni(&mut cx).is_pending());

    b.open_uni().await?.write_all(b"x").await?;
    late.until_woken().await?;
    third.until_woken().await?;
    assert_eq!(early.0.load(Ordering::SeqCst), 0);
    // One of them gets it.
    let taken = [&mut a, &mut other].map(|handle| handle.poll_accept_uni(&mut cx).is_ready());
    assert_eq!(taken, [true, false]);

    late.0.store(0, Ordering::SeqCst);
    b.send_datagram(Bytes::from_static(b"datagram"))?;
    late.until_woken().await?;
    let mut cx = Context::from_waker(&second);
    let Poll::Ready(datagram) = a.poll_read_datagram(&mut cx) else {
        return Err("woken for nothing".into());
    };
    assert_eq!(datagram?, "datagram");
    Ok(())
}

#[tokio::test]
async fn tasks_that_wait_to_open_wake_when_the_limit_rises() -> TestResult {
    let mut transport = default_transport();
    transport.max_concurrent_bidi_streams = 1;
    let config = client(default_transport())?;
    let net = Net::with_server(transport, &["127.0.0.1"], &["127.0.0.1"], config)?;
    let (mut a, b) = net.connect().await?;
    let (mut send, mut recv) = a.open_bi().await?;
    send.write_all(b"x").await?;
    let mut other = a.clone();
    let counts = [&mut a, &mut other].map(|handle| {
        let (count, waker) = Count::new();
        let mut cx = Context::from_waker(&waker);
        assert!(handle.poll_open_bi(&mut cx).is_pending());
        count
    });
    // The only stream ends on both sides.
    send.finish()?;
    let (mut their_send, mut their_recv) = within("accept", b.accept_bi()).await??;
    their_send.finish()?;
    within("read", their_recv.read_to_end(10)).await??;
    within("read", recv.read_to_end(10)).await??;
    for count in counts {
        count.until_woken().await?;
    }
    within("open", poll_fn(|cx| other.poll_open_bi(cx))).await??;
    Ok(())
}

#[tokio::test]
async fn the_end_of_the_connection_wakes_all() -> TestResult {
    let net = Net::two_paths()?;
    let (mut a, b) = net.connect().await?;
    let mut other = a.clone();
    let (one, first) = Count::new();
    let (two, second) = Count::new();
    assert!(
        a.poll_accept_bi(&mut Context::from_waker(&first))
            .is_pending()
    );
    let mut cx = Context::from_waker(&second);
    assert!(other.poll_read_datagram(&mut cx).is_pending());
    b.close(7u32.into(), b"enough");
    one.until_woken().await?;
    two.until_woken().await?;
    for ended in [
        a.poll_accept_bi(&mut cx).map_ok(|_| ()),
        a.poll_accept_uni(&mut cx).map_ok(|_| ()),
        a.poll_open_bi(&mut cx).map_ok(|_| ()),
        a.poll_open_uni(&mut cx).map_ok(|_| ()),
        other.poll_read_datagram(&mut cx).map_ok(|_| ()),
    ] {
        let Poll::Ready(Err(ConnectionError::ApplicationClosed(close))) = ended else {
            return Err(format!("{ended:?}").into());
        };
        assert_eq!(close.error_code, 7u32.into());
    }
    Ok(())
}

#[tokio::test]
async fn buffers_are_written_piece_by_piece_and_as_far_as_there_is_room() -> TestResult {
    let mut transport = default_transport();
    transport.send_window = 100_000;
    let config = client(transport)?;
    let net = Net::new(&["127.0.0.1"], &["127.0.0.1", "127.0.0.2"], config)?;
    let (a, b) = net.connect().await?;
    let mut send = a.open_uni().await?;
    let data = pattern(1_000_000, 9);
    let (head, tail) = (data.slice(..10), data.slice(10..));
    let mut buf = head.chain(BytesMut::from(&tail[..]));
    let writer = async {
        let mut lengths = Vec::new();
        while buf.has_remaining() {
            lengths.push(poll_fn(|cx| send.poll_write_buf(cx, &mut buf)).await?);
        }
        assert_eq!(poll_fn(|cx| send.poll_write_buf(cx, &mut buf)).await?, 0);
        assert_eq!(lengths[0], 10, "the first piece");
        assert!(lengths.iter().all(|length| (1..=100_000).contains(length)));
        send.finish()?;
        Ok::<_, crate::harness::Error>(())
    };
    let reader = async { Ok(b.accept_uni().await?.read_to_end(2_000_000).await?) };
    let ((), received) = within("transfer", async { tokio::try_join!(writer, reader) }).await??;
    assert!(received == data);

    let mut send = a.open_uni().await?;
    send.write_all(b"x").await?;
    within("accept", b.accept_uni()).await??.stop(5u32.into())?;
    within("stopped", send.stopped()).await??;
    let refused = poll_fn(|cx| send.poll_write_buf(cx, &mut &b"more"[..])).await;
    assert_eq!(refused, Err(WriteError::Stopped(5u32.into())));
    Ok(())
}

#[tokio::test]
async fn all_pieces_of_a_buffer_are_copied_at_once_as_far_as_there_is_room() -> TestResult {
    let mut transport = default_transport();
    transport.send_window = 100_000;
    let config = client(transport)?;
    let net = Net::new(&["127.0.0.1"], &["127.0.0.1", "127.0.0.2"], config)?;
    let (a, b) = net.connect().await?;
    let mut send = a.open_uni().await?;
    let data = pattern(300_000, 9);
    let mut buf = data.slice(..10).chain(data.slice(10..));
    let writer = async {
        let mut lengths = Vec::new();
        while buf.has_remaining() {
            lengths.push(poll_fn(|cx| send.poll_copy_buf(cx, &mut buf)).await?);
        }
        assert_eq!(poll_fn(|cx| send.poll_copy_buf(cx, &mut buf)).await?, 0);
        assert_eq!(lengths[0], 100_000, "both pieces");
        assert!(lengths.iter().all(|length| (1..=100_000).contains(length)));
        send.finish()?;
        Ok::<_, crate::harness::Error>(())
    };
    let reader = async { Ok(b.accept_uni().await?.read_to_end(2_000_000).await?) };
    let ((), received) = within("transfer", async { tokio::try_join!(writer, reader) }).await??;
    assert!(received == data);

    let mut send = a.open_uni().await?;
    send.write_all(b"x").await?;
    within("accept", b.accept_uni()).await??.stop(5u32.into())?;
    within("stopped", send.stopped()).await??;
    let refused = poll_fn(|cx| send.poll_copy_buf(cx, &mut &b"more"[..])).await;
    assert_eq!(refused, Err(WriteError::Stopped(5u32.into())));
    Ok(())
}

#[tokio::test]
async fn the_end_is_seen_with_the_last_piece() -> TestResult {
    let net = Net::two_paths()?;
    let (a, b) = net.connect().await?;
    let mut send = a.open_uni().await?;
    send.write_all(b"all of it").await?;
    send.finish()?;
    within("its arrival", send.stopped()).await??;
    let mut recv = within("accept", b.accept_uni()).await??;
    let (count, waker) = Count::new();
    let mut cx = Context::from_waker(&waker);
    let mut pieces = [const { Bytes::new() }; 2];
    assert_eq!(
        recv.poll_read_chunks(&mut cx, &mut []),
        Poll::Ready(Ok(Some(0)))
    );
    let read = recv.poll_read_chunks(&mut cx, &mut pieces);
    assert_eq!(read, Poll::Ready(Ok(Some(1))));
    assert_eq!(pieces[0], "all of it");
    // Nothing has to be asked of the connection for that.
    b.close(7u32.into(), b"");
    assert_eq!(
        recv.poll_read_chunks(&mut cx, &mut pieces),
        Poll::Ready(Ok(None))
    );
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    Ok(())
}

/// The connection tells of the end once, when what arrived before it was read.
#[tokio::test]
async fn a_reset_behind_data_is_told_after_it() -> TestResult {
    let net = Net::two_paths()?;
    let (a, b) = net.connect().await?;
    let mut send = a.open_uni().await?;
    send.write_all(b"this much").await?;
    send.reset_at(7u32.into(), 9)?;
    let mut recv = within("accept", b.accept_uni()).await??;
    within("its arrival", send.stopped()).await??;
    let mut pieces = [const { Bytes::new() }; 4];
    let read = poll_fn(|cx| recv.poll_read_chunks(cx, &mut pieces)).await?;
    assert_eq!((read, &pieces[0][..]), (Some(1), &b"this much"[..]));
    for _ in 0..2 {
        let end = poll_fn(|cx| recv.poll_read_chunks(cx, &mut pieces)).await;
        assert_eq!(end, Err(ReadError::Reset(7u32.into())));
    }
    Ok(())
}
