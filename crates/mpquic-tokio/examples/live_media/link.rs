//! [`Link`]: a socket in memory behind a link that is not perfect.

use std::future::Future;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use mpquic_tokio::{DatagramSocket, MemorySocket, ReceivedBatch, SentBatch};
use tokio::time::{Instant, sleep_until};

/// How much waits in the link before its socket takes no more.
const QUEUE: Duration = Duration::from_millis(10);

/// What a link is like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Conditions {
    pub(crate) bits_per_second: u64,
    /// The share of the time in which all packets are lost, for each direction.
    pub(crate) loss: f64,
    /// How long that lasts each time, on average.
    pub(crate) burst: Duration,
    /// When nothing passes, from the start of the link.
    pub(crate) outage: Option<(Duration, Duration)>,
}

/// A socket whose datagrams are lost in bursts (the model of Gilbert, in time, so that bursts also
/// end where little is sent), and that sends no faster than its rate.
#[derive(Debug)]
pub(crate) struct Link {
    socket: Arc<MemorySocket>,
    conditions: Conditions,
    start: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: u64,
    /// Whether packets are being lost, and until when that is so, by direction: out, in.
    is_bad: [(bool, Instant); 2],
    /// What was sent has left by then.
    busy_until: Instant,
}

impl Link {
    pub(crate) fn new(socket: Arc<MemorySocket>, conditions: Conditions, seed: u64) -> Self {
        let now = Instant::now();
        let state = State {
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            is_bad: [(false, now); 2],
            busy_until: now,
        };
        Self {
            socket,
            conditions,
            start: now,
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the next packet in this direction is lost.
    fn loses(&self, direction: usize) -> bool {
        let Conditions { loss, burst, .. } = self.conditions;
        let mut state = self.lock();
        let (mut is_bad, mut until) = state.is_bad[direction];
        while until <= Instant::now() {
            is_bad = !is_bad;
            let mean = if is_bad { 1.0 } else { (1.0 - loss) / loss };
            until += burst.mul_f64(-mean * (1.0 - state.chance()).ln());
        }
        state.is_bad[direction] = (is_bad, until);
        let age = self.start.elapsed();
        let outage = self.conditions.outage;
        is_bad || outage.is_some_and(|(from, to)| (from..to).contains(&age))
    }
}

impl State {
    /// From 0 to 1 (xorshift64*).
    fn chance(&mut self) -> f64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let bits = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11;
        bits as f64 / (1_u64 << 53) as f64
    }
}

impl DatagramSocket for Link {
    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    fn try_send(&self, batch: &SentBatch<'_>) -> io::Result<()> {
        {
            let mut state = self.lock();
            let now = Instant::now();
            if state.busy_until > now + QUEUE {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let bits = 8 * batch.contents.len() as u64;
            let takes = bits as f64 / self.conditions.bits_per_second as f64;
            state.busy_until = state.busy_until.max(now) + Duration::from_secs_f64(takes);
        }
        if self.loses(0) {
            Ok(())
        } else {
            self.socket.try_send(batch)
        }
    }

    fn writable(&self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>> {
        let room = self.lock().busy_until - QUEUE;
        Box::pin(async move {
            sleep_until(room).await;
            Ok(())
        })
    }

    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_readable(cx)
    }

    /// What is lost on the way in was received by nobody.
    fn try_receive(
        &self,
        buffers: &mut [IoSliceMut<'_>],
        batches: &mut [ReceivedBatch],
    ) -> io::Result<usize> {
        loop {
            let buffer = buffers.get_mut(..1).unwrap_or_default();
            let batch = batches.get_mut(..1).unwrap_or_default();
            let count = self.socket.try_receive(buffer, batch)?;
            if !self.loses(1) {
                return Ok(count);
            }
        }
    }
}
