//! [`Validation`]: proves that a four-tuple works. [`Responses`]: answers the peer's challenges.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use smallvec::SmallVec;

use crate::ids::FourTuple;
use crate::packet::delivery::Delivery;
use crate::packet::writer::FrameWriter;
use crate::rate::TokenBucket;
use crate::recovery::pto::MAX_BACKOFF;
use crate::recovery::rtt::GRANULARITY;
use crate::wire::frame::Frame;

/// Limit for challenges that a response may still answer. As the interval between challenges
/// doubles, there are far fewer in practice.
const MAX_OUTSTANDING: usize = 16;

/// PATH_RESPONSEs kept for one four-tuple.
const MAX_RESPONSES_PER_FOUR_TUPLE: usize = 4;

/// PATH_RESPONSEs kept in all.
const MAX_RESPONSES: usize = 16;

/// Datagrams with PATH_RESPONSEs that may be sent in a burst beyond a full congestion window. A
/// path that lost everything keeps its window full, and must answer all the same.
const SPARE_RESPONSES: u32 = 16;

/// Time until one more datagram than [`SPARE_RESPONSES`] is allowed: the limit for a peer that
/// challenges with every small packet.
const SPARE_RESPONSE_INTERVAL: Duration = Duration::from_millis(100);

/// Rounds of validation in which the peer is heard without an answer to a challenge, until its last
/// path is given up.
const PATIENCE: u32 = 3;

/// The result of a PATH_RESPONSE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Validated {
    /// The peer owns its address, and datagrams of 1200 bytes pass. Validation is over.
    Path,
    /// The peer owns its address, but the challenge travelled in a smaller datagram: validation
    /// goes on with a full-sized one (MP-079).
    AddressOnly,
}

#[derive(Debug, Clone, Copy)]
struct Challenge {
    data: [u8; 8],
    full_size: bool,
}

#[derive(Debug)]
struct Round {
    pto: Duration,
    timeout: Duration,
    /// When validation has failed.
    deadline: Instant,
    /// Time until the next challenge; doubles with each.
    interval: Duration,
    /// When the next challenge is due; `None` while one waits to be sent.
    resend_at: Option<Instant>,
    /// The challenges that a response may answer, oldest first.
    outstanding: SmallVec<[Challenge; 4]>,
    /// The peer was heard on the four-tuple since the round began.
    heard: bool,
    /// Rounds that failed although the peer was heard, and later rounds.
    failed: u32,
    silent: u32,
}

impl Round {
    /// A round has failed on the only path: begins another one. False if the path does not carry
    /// the challenges.
    fn begin_again(&mut self, now: Instant) -> bool {
        if std::mem::take(&mut self.heard) {
            self.failed += 1;
            self.silent = 0;
        } else {
            self.silent = self.silent.saturating_add(1);
        }
        let factor = 1u32.checked_shl(self.silent).unwrap_or(u32::MAX);
        let timeout = self.timeout.saturating_mul(factor);
        self.deadline = now + timeout.min(MAX_BACKOFF.max(self.timeout));
        self.resend_at = None;
        self.interval = self.pto;
        self.failed < PATIENCE
    }
}

/// Path validation of one four-tuple (RFC 9000 section 8.2, MP-085).
#[derive(Debug, Default)]
pub(crate) struct Validation {
    round: Option<Box<Round>>,
}

impl Validation {
    /// No validation is needed.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Starts validation, or restarts it. `pto` is the path's probe timeout, `initial_pto` the one
    /// that follows from the initial RTT.
    pub(crate) fn start(&mut self, now: Instant, pto: Duration, initial_pto: Duration) {
        let pto = pto.max(GRANULARITY);
        // RFC 9000 section 8.2.4
        let timeout = pto.max(initial_pto).saturating_mul(3);
        self.round = Some(Box::new(Round {
            pto,
            timeout,
            deadline: now + timeout,
            interval: pto,
            resend_at: None,
            outstanding: SmallVec::new(),
            heard: false,
            failed: 0,
            silent: 0,
        }));
    }

    /// True until a response, failure or [`Self::stop`].
    #[cfg(test)]
    pub(crate) fn is_running(&self) -> bool {
        self.round.is_some()
    }

    /// True if a challenge is due.
    pub(crate) fn wants_to_send(&self) -> bool {
        self.round
            .as_ref()
            .is_some_and(|round| round.resend_at.is_none())
    }

    /// The peer was heard on the four-tuple and will be answered: a challenge goes along, because
    /// earlier challenges or their responses may be lost.
    pub(crate) fn on_heard(&mut self) {
        if let Some(round) = &mut self.round {
            round.resend_at = None;
            round.interval = round.pto;
        }
    }

    /// A datagram arrived on the four-tuple. After silent rounds, the link is back: a challenge is
    /// due now.
    #[inline]
    pub(crate) fn on_datagram(&mut self) {
        if let Some(round) = &mut self.round
            && !std::mem::replace(&mut round.heard, true)
            && round.silent > 0
        {
            round.resend_at = None;
            round.interval = round.pto;
        }
    }

    /// Writes a due challenge if it fits. `data` are fresh unpredictable bytes, new for each call;
    /// `full_size` promises a datagram of at least [`MIN_DATAGRAM`](crate::wire::buf::MIN_DATAGRAM)
    /// bytes. Returns whether `data` was used.
    pub(crate) fn write_frames(
        &mut self,
        w: &mut FrameWriter<'_>,
        now: Instant,
        data: [u8; 8],
        full_size: bool,
    ) -> bool {
        let Some(round) = self
            .round
            .as_mut()
            .filter(|round| round.resend_at.is_none())
        else {
            return false;
        };
        if !w.try_write(&Frame::PathChallenge(data), Delivery::Nothing) {
            return false;
        }
        if round.outstanding.len() == MAX_OUTSTANDING {
            round.outstanding.remove(0);
        }
        round.outstanding.push(Challenge { data, full_size });
        round.resend_at = Some(now + round.interval);
        round.interval = round.interval.saturating_mul(2);
        true
    }

    /// PATH_RESPONSE, received on any four-tuple (RFC 9000 section 8.2.3). `None` if it answers no
    /// challenge of ours.
    pub(crate) fn on_path_response(&mut self, now: Instant, data: [u8; 8]) -> Option<Validated> {
        let round = self.round.as_mut()?;
        let challenge = *round.outstanding.iter().find(|c| c.data == data)?;
        if challenge.full_size {
            self.round = None;
            return Some(Validated::Path);
        }
        // RFC 9000 section 8.2.1, MP-079: a second validation, with full-sized datagrams. The
        // response to such a challenge already in flight counts for it.
        round.outstanding.retain(|c| c.full_size);
        if round.outstanding.is_empty() {
            round.resend_at = None;
        }
        round.interval = round.pto;
        round.deadline = now + round.timeout;
        Some(Validated::AddressOnly)
    }

    /// When [`Self::on_timeout`] is to be called.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.round.as_ref().map(|round| {
            round
                .resend_at
                .map_or(round.deadline, |at| at.min(round.deadline))
        })
    }

    /// The timer has expired. True if validation failed because no response came (MP-084 says what
    /// follows).
    pub(crate) fn on_timeout(&mut self, now: Instant) -> bool {
        let Some(round) = &mut self.round else {
            return false;
        };
        if now >= round.deadline {
            self.round = None;
            return true;
        }
        if round.resend_at.is_some_and(|at| now >= at) {
            round.resend_at = None;
        }
        false
    }

    /// Like [`Self::on_timeout`], for the only path to the peer. RFC 9000 section 8.2.4 leaves the
    /// wait for another path to us: as long as nothing is heard, the link may come back, and
    /// validation goes on in longer and longer rounds. True only if the peer is heard, but
    /// challenges do not pass.
    pub(crate) fn on_timeout_of_the_last(&mut self, now: Instant) -> bool {
        let over = self.round.as_mut().filter(|round| now >= round.deadline);
        match over.map(|round| round.begin_again(now)) {
            Some(true) => false,
            Some(false) => {
                self.round = None;
                true
            }
            None => self.on_timeout(now),
        }
    }
}

/// The PATH_RESPONSEs that a path has to send, each bound to the four-tuple its challenge came on
/// (MP-077).
#[derive(Debug)]
pub(crate) struct Responses {
    /// Oldest first.
    queue: VecDeque<(FourTuple, [u8; 8])>,
    spare: TokenBucket,
}

impl Responses {
    /// Bytes of memory besides itself.
    pub(super) fn memory(&self) -> usize {
        self.queue.capacity() * size_of::<(FourTuple, [u8; 8])>()
    }

    /// No responses to send.
    pub(crate) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            spare: TokenBucket::new(SPARE_RESPONSES, SPARE_RESPONSE_INTERVAL),
        }
    }

    /// PATH_CHALLENGE. If there are too many, the oldest is dropped: the peer repeats a challenge
    /// that it still needs.
    pub(crate) fn on_path_challenge(&mut self, four_tuple: FourTuple, data: [u8; 8]) {
        let same = |owed: &&(FourTuple, [u8; 8])| owed.0 == four_tuple;
        if self.queue.iter().filter(same).count() >= MAX_RESPONSES_PER_FOUR_TUPLE {
            let oldest = self.queue.iter().position(|owed| owed.0 == four_tuple);
            self.queue.remove(oldest.unwrap_or(0));
        } else if self.queue.len() >= MAX_RESPONSES {
            self.queue.pop_front();
        }
        self.queue.push_back((four_tuple, data));
    }

    /// The four-tuples to answer on, longest-waiting first.
    pub(crate) fn four_tuples(&self) -> impl Iterator<Item = FourTuple> {
        self.queue.iter().map(|owed| owed.0)
    }

    /// True if a datagram with responses may exceed the congestion window. Each call with this
    /// result is one such datagram.
    pub(crate) fn may_exceed_window(&mut self, now: Instant) -> bool {
        self.spare.take(now)
    }

    /// Writes the responses for `four_tuple`, each once (RFC 9000 section 8.2.2). A lost response
    /// is not repeated, because the peer sends another challenge.
    pub(crate) fn write_frames(&mut self, w: &mut FrameWriter<'_>, four_tuple: &FourTuple) {
        self.queue.retain(|(owed, data)| {
            owed != four_tuple || !w.try_write(&Frame::PathResponse(*data), Delivery::Nothing)
        });
    }

    /// True if there are responses to send.
    #[cfg(test)]
    pub(crate) fn wants_to_send(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Number of responses for which memory is allocated.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.queue.capacity()
    }

    /// Frees memory that is kept for reuse.
    pub(crate) fn trim(&mut self) {
        self.queue.shrink_to_fit();
    }

    /// Forgets everything: the path is abandoned.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }
}

#[cfg(test)]
mod tests;
