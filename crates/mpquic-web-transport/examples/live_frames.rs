//! Live frames, published and subscribed to by code that knows of no paths: it is written for the
//! crate `web-transport-trait`, as media over QUIC is. The publisher's first link goes away in
//! mid-broadcast.
//!
//! ```text
//! cargo run -p mpquic-web-transport --example live_frames
//! ```
//!
//! The network is in memory, and the clock is tokio's, paused. `live_media` of `mpquic-tokio` shows
//! what deadlines and copies do on links that lose packets.

use std::error::Error;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use mpquic_tokio::{
    ClientConfig, Connection, Endpoint, MemoryNetwork, ServerConfig, certificate_fingerprint,
};
use mpquic_web_transport::Session;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use web_transport_trait::{RecvStream, SendStream, Session as AnySession};

type Failure = Box<dyn Error + Send + Sync>;

const ALPN: &[&[u8]] = &[b"live-frames"];
const TRACK: &str = "camera";
/// 50 frames in a second, 4 Mbit/s.
const FRAME_TIME: Duration = Duration::from_millis(20);
const FRAME: usize = 10_000;
const FRAMES: u32 = 200;
/// One way.
const DELAY: Duration = Duration::from_millis(15);
/// The code of a subscriber that wants something else.
const NO_SUCH_TRACK: u32 = 404;

/// Sends each frame on a stream of its own when it is made, to whoever asks for the track. A newer
/// frame goes first: an old one makes no other late.
async fn publish<S: AnySession>(session: S, frames: u32) -> Result<(), Failure> {
    let (mut answer, mut asked) = session.accept_bi().await?;
    if asked.read_all().await? != TRACK.as_bytes() {
        answer.reset(NO_SUCH_TRACK);
        return Err("the subscriber wants another track".into());
    }
    answer.finish()?;
    let picture = Bytes::from(vec![7; FRAME]);
    let start = Instant::now();
    for number in 0..frames {
        sleep_until(start + number * FRAME_TIME).await;
        let mut stream = session.open_uni().await?;
        stream.set_priority(number as i32);
        let mut frame = BytesMut::with_capacity(8);
        frame.put_u32(number);
        frame.put_u32((number * FRAME_TIME).as_millis() as u32);
        stream.write_all_buf(&mut frame).await?;
        stream.write_chunk(picture.clone()).await?;
        stream.finish()?;
    }
    session.closed().await;
    Ok(())
}

/// The largest time that a frame took from when it was made, of so many.
async fn subscribe<S: AnySession>(session: S, frames: u32) -> Result<Duration, Failure> {
    let (mut ask, mut answer) = session.open_bi().await?;
    let start = Instant::now() + DELAY;
    ask.write_all(TRACK.as_bytes()).await?;
    ask.finish()?;
    answer.closed().await?;
    let mut arriving = JoinSet::new();
    for _ in 0..frames {
        let mut stream = session.accept_uni().await?;
        arriving.spawn(async move {
            let mut frame = stream.read_all().await?;
            let (number, made) = (frame.get_u32(), frame.get_u32());
            let took = start.elapsed() - Duration::from_millis(made.into());
            if frame.len() == FRAME {
                Ok((number, took))
            } else {
                Err(Failure::from("a part of a frame"))
            }
        });
    }
    let mut numbers = Vec::new();
    let mut longest = Duration::ZERO;
    while let Some(frame) = arriving.join_next().await {
        let (number, took) = frame??;
        numbers.push(number);
        longest = longest.max(took);
    }
    numbers.sort_unstable();
    if !numbers.into_iter().eq(0..frames) {
        return Err("a frame came twice".into());
    }
    session.close(0, "the end");
    Ok(longest)
}

/// What a broadcast came to.
struct Seen {
    longest: Duration,
    /// Bytes that the publisher has sent on each path.
    sent: Vec<u64>,
}

/// A broadcast from a client with two links.
async fn broadcast() -> Result<Seen, Failure> {
    let network = MemoryNetwork::new(DELAY);
    let (config, certificate) = ServerConfig::self_signed(&["localhost"], ALPN)?;
    let viewer = Endpoint::builder()
        .abstract_socket(network.bind("10.0.0.1:443".parse()?)?)
        .server(config)
        .build()?;
    let sender = Endpoint::builder()
        .abstract_socket(network.bind("10.1.0.1:1".parse()?)?)
        .abstract_socket(network.bind("10.2.0.1:1".parse()?)?)
        .client(ClientConfig::with_pin(
            certificate_fingerprint(&certificate),
            ALPN,
        )?)
        .build()?;
    let connecting = sender.connect(viewer.local_addr()?, "localhost")?;
    let incoming = viewer.accept().await.ok_or("closed")?;
    let (at_sender, at_viewer): (Connection, Connection) =
        tokio::try_join!(connecting, async { incoming.await })?;
    at_sender.wait_for_paths(2).await?;

    let watching = at_sender.clone();
    let publishing = tokio::spawn(publish(Session::new(at_sender), FRAMES));
    let subscribing = tokio::spawn(subscribe(Session::new(at_viewer), FRAMES));
    tokio::time::sleep(FRAMES / 2 * FRAME_TIME).await;
    let before = watching.path_stats();
    sender.remove_local("10.1.0.1:1".parse()?);
    let longest = subscribing.await??;
    let after = watching.path_stats();
    publishing.await??;
    let sent = before.iter().map(|before| {
        let after = after.iter().find(|after| after.id == before.id);
        after.unwrap_or(before).bytes_sent
    });
    let sent = sent.collect();
    Ok(Seen { longest, sent })
}

fn main() -> Result<(), Failure> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()?;
    let seen = runtime.block_on(broadcast())?;
    println!(
        "{FRAMES} frames, each whole; the one that took longest: {:?}",
        seen.longest
    );
    println!("bytes sent on each path: {:?}", seen.sent);
    Ok(())
}

/// Each link has carried frames, and the end of the first has made none later than a probe of the
/// path needs.
#[tokio::test(start_paused = true)]
async fn frames_arrive_when_a_link_goes_away() -> Result<(), Failure> {
    let seen = broadcast().await?;
    assert_eq!(seen.sent.len(), 2);
    assert!(
        seen.sent.iter().all(|sent| *sent > 100_000),
        "{:?}",
        seen.sent
    );
    assert!(seen.longest < 10 * DELAY, "{:?}", seen.longest);
    Ok(())
}
