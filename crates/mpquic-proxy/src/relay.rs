//! A TCP connection joined to the stream of a CONNECT request (RFC 9114 section 4.4).

use std::io::{self, IoSlice};
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures_util::FutureExt;
use mpquic_h3::h3::error::{Code, StreamError};
use mpquic_tokio::{StreamWatch, WriteError};
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::Instant;

use crate::flow_table::{Carried, Flow};
use crate::kernel_queue::KernelQueue;
use crate::streams::{Gathered, Incoming, Outgoing};

/// Most bytes of one read from TCP, and so most bytes that wait for the stream.
const PIECE: usize = 64 << 10;
/// Least room for a read from TCP: a packet's data. A shorter rest waits for the stream.
const LEAST: usize = 1200;
/// Bytes before the data in a DATA frame (RFC 9114 section 7.2.1).
const FRAME: usize = 9;
/// Most pieces of the stream in one write to TCP. Each piece comes from one packet.
const PIECES: usize = 64;
/// Pieces of all flows together whose TCP connections are full, besides [`LEAST_PIECES`] of each
/// flow.
const HELD_PIECES: usize = 4096;
/// Least pieces of the stream in one write to TCP.
const LEAST_PIECES: usize = 2;

/// Why a relay ended early.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The TCP connection failed.
    Tcp,
    /// The stream was reset or stopped, or its connection ended.
    Stream,
    /// Nothing was carried for the idle time.
    Idle,
}

/// May change or remove the bytes of a flow on their way. Both directions run at the same time.
pub(crate) trait Passing: Sync {
    /// Bytes from TCP. The stream gets the bytes that this call leaves in the buffer.
    ///
    /// # Errors
    ///
    /// If the flow must end.
    fn on_sent(&self, bytes: &mut BytesMut) -> Result<(), Broken>;

    /// Pieces from the stream, without the stream's end. TCP gets the pieces that this call leaves
    /// in the list. After an answer of true, TCP ends behind these pieces.
    ///
    /// # Errors
    ///
    /// If the flow must end.
    fn on_received(&self, pieces: &mut Vec<Bytes>) -> Result<bool, Broken>;
}

/// Leaves all bytes as they are.
pub(crate) struct Unchanged;

impl Passing for Unchanged {
    fn on_sent(&self, _: &mut BytesMut) -> Result<(), Broken> {
        Ok(())
    }

    fn on_received(&self, pieces: &mut Vec<Bytes>) -> Result<bool, Broken> {
        Ok(pieces.is_empty())
    }
}

impl From<StreamError> for Broken {
    fn from(_: StreamError) -> Self {
        Self::Stream
    }
}

impl From<WriteError> for Broken {
    fn from(_: WriteError) -> Self {
        Self::Stream
    }
}

/// Carries bytes both ways until both sides have ended. The end of one direction reaches the other
/// side and leaves the other direction open. A failure resets both directions.
///
/// The memory is bounded, so a side that reads slowly stops the writes of the other side. With a
/// `queue`, so is the memory of the kernel for bytes from TCP.
pub(crate) async fn relay<S: Outgoing, R: Incoming>(
    (tcp, queue): (TcpStream, Option<KernelQueue>),
    (mut send, recv): (S, R),
    watch: &StreamWatch,
    idle: Duration,
    (flow, passing): (&Flow, &impl Passing),
) -> Result<(), Broken> {
    let carried = &flow.carried;
    let _ = watch.set_priority(flow.class().priority());
    // The sender of a small message mostly waits for the answer, and Nagle's algorithm would delay
    // the message.
    let _ = tcp.set_nodelay(true);
    // The kernel closes the connections of a killed process. With this setting it resets them, and
    // nobody takes half a download for the whole.
    let _ = tcp.set_zero_linger();
    if let Some(queue) = &queue {
        resize(&tcp, queue.size());
    }
    let mut recv = Gathered::new(recv);
    let mut tcp = Unfinished {
        tcp,
        is_finished: false,
    };
    let (read, write) = tcp.tcp.split();
    let both = async {
        tokio::try_join!(
            to_stream((read, queue), &mut send, watch, (flow, passing)),
            from_stream(&mut recv, write, (flow, passing))
        )
    };
    let ended = tokio::select! {
        ended = both => ended.map(|_| ()),
        () = until_idle(idle, carried) => Err(Broken::Idle),
    };
    tcp.is_finished = ended.is_ok();
    if ended.is_err() {
        send.reset(Code::H3_CONNECT_ERROR);
        recv.recv.stop(Code::H3_CONNECT_ERROR);
    }
    ended
}

/// A TCP connection. Dropping this before both directions have ended resets the connection: after
/// an orderly end, the other side could take half a message for the whole. The end of a direction
/// to TCP turns the setting for resets off, so a failure of the other direction turns it on again.
struct Unfinished {
    tcp: TcpStream,
    is_finished: bool,
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = self.tcp.set_zero_linger();
        }
    }
}

async fn to_stream(
    (mut tcp, mut queue): (ReadHalf<'_>, Option<KernelQueue>),
    send: &mut impl Outgoing,
    watch: &StreamWatch,
    (flow, passing): (&Flow, &impl Passing),
) -> Result<(), Broken> {
    let prioritize = |priority| {
        let _ = watch.set_priority(priority);
    };
    let mut buffer = BytesMut::new();
    loop {
        // The stream's room comes first: bytes that TCP keeps hold the sender back.
        let room = counted(flow, &mut queue, watch.writable()).await?;
        let most = room.saturating_sub(FRAME).clamp(LEAST, PIECE);
        let count = tokio::select! {
            count = read(&mut tcp, &mut buffer, most) => count.map_err(|_| Broken::Tcp)?,
            // A client that stops the stream wants the TCP connection closed.
            _ = watch.stopped() => return Err(Broken::Stream),
        };
        if count == 0 {
            return Ok(send.finish().await?);
        }
        let now = Instant::now();
        if let Some(size) = (queue.as_mut()).and_then(|queue| queue.on_read(count, now)) {
            resize(tcp.as_ref(), size);
        }
        passing.on_sent(&mut buffer)?;
        let count = buffer.len();
        if count == 0 {
            continue;
        }
        if let Some(class) = flow.on_payload(count, now) {
            prioritize(class.priority());
        }
        // The stream's room may be less than the piece.
        let piece = buffer.split().freeze();
        counted(flow, &mut queue, send.send(piece)).await?;
        (flow.carried.to_stream).fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// Waits for room to send, and reports the time to the flow and the queue.
async fn counted<T>(
    flow: &Flow,
    queue: &mut Option<KernelQueue>,
    room: impl Future<Output = T>,
) -> T {
    let began = Instant::now();
    let told = room.await;
    let waited = began.elapsed();
    flow.on_waited(waited);
    if let Some(queue) = queue {
        queue.on_waited(waited);
    }
    told
}

/// Sets the size of the kernel's queue of received bytes.
fn resize(tcp: &TcpStream, size: usize) {
    let _ = SockRef::from(tcp).set_recv_buffer_size(size);
}

/// Reads the available bytes, up to `most`, 0 at the end. A flow that waits holds no buffer:
/// otherwise each of thousands of idle flows would hold 64 KiB.
async fn read(tcp: &mut ReadHalf<'_>, buffer: &mut BytesMut, most: usize) -> io::Result<usize> {
    std::future::poll_fn(|cx| {
        buffer.reserve(most);
        let mut limited = (&mut *buffer).limit(most);
        let read = pin!(tcp.read_buf(&mut limited)).poll(cx);
        if read.is_pending() {
            *buffer = BytesMut::new();
        }
        read
    })
    .await
}

async fn from_stream<R: Incoming>(
    recv: &mut Gathered<R>,
    mut tcp: WriteHalf<'_>,
    (flow, passing): (&Flow, &impl Passing),
) -> Result<(), Broken> {
    let mut pieces = Vec::new();
    loop {
        recv.read(&mut pieces, pieces_beside(flow.stalled()))
            .await?;
        let is_last = passing.on_received(&mut pieces)?;
        let count: usize = pieces.iter().map(Bytes::len).sum();
        {
            let mut writing = pin!(write_all(&mut tcp, &mut pieces));
            let written = match writing.as_mut().now_or_never() {
                Some(written) => written,
                None => {
                    let _stalled = flow.stall();
                    writing.await
                }
            };
            written.map_err(|_| Broken::Tcp)?;
        }
        flow.on_used(Instant::now());
        (flow.carried.from_stream).fetch_add(count as u64, Ordering::Relaxed);
        if is_last {
            let _ = SockRef::from(tcp.as_ref()).set_linger(None);
            return tcp.shutdown().await.map_err(|_| Broken::Tcp);
        }
    }
}

/// Most pieces that a flow reads while `stalled` flows wait for their TCP connections. Windows do
/// not limit pieces that a flow has read: thousands of flows to silent targets would hold 64
/// packets each.
fn pieces_beside(stalled: usize) -> usize {
    (HELD_PIECES / (stalled + 1)).clamp(LEAST_PIECES, PIECES)
}

/// Writes all pieces with few system calls, and empties the list.
async fn write_all(tcp: &mut WriteHalf<'_>, pieces: &mut Vec<Bytes>) -> io::Result<()> {
    let mut first = 0;
    while first < pieces.len() {
        let mut written = {
            let mut slices = [IoSlice::new(&[]); PIECES];
            let waiting = &pieces[first..];
            for (slice, piece) in slices.iter_mut().zip(waiting) {
                *slice = IoSlice::new(piece);
            }
            tcp.write_vectored(&slices[..waiting.len()]).await?
        };
        let is_empty = pieces[first..].iter().all(Bytes::is_empty);
        if written == 0 && !is_empty {
            return Err(io::ErrorKind::WriteZero.into());
        }
        while let Some(piece) = pieces.get_mut(first) {
            let here = written.min(piece.len());
            piece.advance(here);
            written -= here;
            if !piece.is_empty() {
                break;
            }
            first += 1;
        }
    }
    pieces.clear();
    Ok(())
}

/// Waits until the flow has carried no byte for this time. The wait takes up to twice as long.
pub(crate) async fn until_idle(idle: Duration, carried: &Carried) {
    let mut seen = carried.total();
    let mut since = Instant::now();
    loop {
        tokio::time::sleep_until(since + idle).await;
        // The time of the last byte is unknown, so the next wait starts now.
        let now = carried.total();
        if now == seen {
            return;
        }
        seen = now;
        since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use tokio::net::TcpListener;

    use super::*;

    /// Bytes in either direction keep a flow: an upload may get no answer for hours.
    #[tokio::test(start_paused = true)]
    async fn a_flow_that_carries_nothing_ends() {
        let idle = Duration::from_secs(10);
        for is_upload in [true, false] {
            let carried = Carried::default();
            let carrier = match is_upload {
                true => &carried.to_stream,
                false => &carried.from_stream,
            };
            let begin = Instant::now();
            let carrying = async {
                for _ in 0..3 {
                    tokio::time::sleep(Duration::from_secs(9)).await;
                    carrier.fetch_add(1, Ordering::Relaxed);
                }
                std::future::pending().await
            };
            let ended = tokio::time::timeout(Duration::from_secs(100), async {
                tokio::select! {
                    () = until_idle(idle, &carried) => {}
                    () = carrying => {}
                }
            });
            ended.await.expect("it ends");
            let lasted = begin.elapsed();
            let last_byte = Duration::from_secs(27);
            assert!(lasted >= last_byte + idle, "{is_upload}: {lasted:?}");
            assert!(lasted <= last_byte + 2 * idle, "{is_upload}: {lasted:?}");
        }
    }

    #[test]
    fn many_flows_to_silent_targets_hold_few_pieces() {
        assert_eq!(pieces_beside(0), PIECES);
        assert_eq!(pieces_beside(63), PIECES);
        assert_eq!(pieces_beside(usize::MAX - 1), LEAST_PIECES);
        // Each of them reads most pieces before it stalls.
        let held: usize = (0..16_384).map(pieces_beside).sum();
        assert!(held < 16_384 * 3, "{held}");
    }

    #[tokio::test]
    async fn waiting_read_keeps_no_memory() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connecting = TcpStream::connect(listener.local_addr().unwrap());
        let (near, far) = tokio::join!(connecting, listener.accept());
        let (mut near, mut far) = (near.unwrap(), far.unwrap().0);
        let (mut tcp, _) = near.split();
        let mut buffer = BytesMut::new();
        for _ in 0..2 {
            {
                let mut waiting = pin!(read(&mut tcp, &mut buffer, PIECE));
                let mut cx = Context::from_waker(Waker::noop());
                assert!(waiting.as_mut().poll(&mut cx).is_pending());
            }
            assert_eq!(buffer.capacity(), 0);
            far.write_all(b"some").await.unwrap();
            assert_eq!(read(&mut tcp, &mut buffer, 3).await.unwrap(), 3);
            assert_eq!(read(&mut tcp, &mut buffer, PIECE).await.unwrap(), 1);
            assert_eq!(buffer.split().freeze(), b"some"[..]);
        }
    }
}
