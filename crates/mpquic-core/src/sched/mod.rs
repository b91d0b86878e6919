//! The [`Scheduler`] trait: which path carries which data. Algorithms live in `mpquic-sched`.
//!
//! A scheduler sees an immutable [`View`] and returns a [`Decision`]. The core then sends at most
//! what the decision allows and never more than window, pacing, validation and the
//! anti-amplification limit permit, so a wrong scheduler cannot break the protocol.
//! Acknowledgements, path validation and probes do not pass through the scheduler.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::named::Named;

mod decision;
mod event;
mod view;

pub(crate) use view::{Ranges, UnackedView};

pub use decision::{DataSelection, Decision, PathSet};
pub use event::{PacketInfo, SchedulerEvent};
pub use view::{LocalQueue, PathView, QueueView, Sendable, StreamView, UnackedRange, View};

/// Decides on which path the next bytes travel. One object per connection.
///
/// ```
/// use mpquic_core::sched::{Decision, Scheduler, View, factory};
///
/// /// Sends on the path with the most room in its congestion window.
/// #[derive(Debug)]
/// struct MostRoom;
///
/// impl Scheduler for MostRoom {
///     fn select(&mut self, view: &View<'_>) -> Decision {
///         match view.sendable().max_by_key(|path| path.available_window()) {
///             Some(path) => Decision::send_up_to(path.id, path.available_window() / 2),
///             None => Decision::Blocked,
///         }
///     }
///
///     fn name(&self) -> &'static str {
///         "most-room"
///     }
/// }
///
/// // What `TransportOptions::scheduler` takes: each connection gets a scheduler of its own.
/// let factory = factory("most-room", || Box::new(MostRoom));
/// assert_eq!(factory.build().name(), "most-room");
/// ```
///
/// [`View`] shows how to test a scheduler, [`PathMap`](crate::PathMap) how to keep state for each
/// path.
///
/// # What the core makes of wrong answers
///
/// A wrong scheduler costs speed, never correctness. The core enforces these rules:
///
/// - A decision for a path that cannot send is replaced: the fastest path that can send gets one
///   datagram with the most urgent data. Window, pacer and the anti-amplification limit bound every
///   decision, whatever its budget.
/// - Waiting ends, see [`Decision::Wait`] and [`Decision::Blocked`].
/// - Decisions may repeat at most 16 bytes per byte sent for the first time, plus 64 KiB. Beyond
///   that budget, the most urgent data replaces repetitions, and no copies are made. At most 256
///   copies wait for a path.
/// - While control frames or lost bytes wait, every 65th decision in a row for other data is
///   replaced by the most urgent data.
/// - Timers and waits of less than a millisecond last one millisecond.
/// - A scheduler that panics is not asked again: the fastest path that can send carries everything
///   from then on, unless [`TransportOptions::contain_panics`] is off or panics abort the process.
///
/// [`TransportOptions::contain_panics`]: crate::config::TransportOptions::contain_panics
pub trait Scheduler: fmt::Debug + Send {
    /// The next decision. Called whenever movable data waits and some path could send, and again
    /// until the answer is [`Decision::Wait`] or [`Decision::Blocked`], or the data runs out.
    fn select(&mut self, view: &View<'_>) -> Decision;

    /// Takes note of an event. `view` is the state after the event.
    fn on_event(&mut self, event: &SchedulerEvent, view: &View<'_>) {
        let _ = (event, view);
    }

    /// Which optional parts of the view this scheduler reads; the others stay empty.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// When to be called with [`SchedulerEvent::Timer`].
    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// The algorithm's name, for statistics and logs.
    fn name(&self) -> &'static str;
}

/// Optional parts of a [`View`] and kinds of events, shown or delivered only on request because
/// they cost time per packet. The default asks for none.
///
/// ```
/// use mpquic_core::sched::Needs;
///
/// let needs = Needs::default().with_streams().with_packet_events();
/// assert!(needs.streams && needs.packet_events && !needs.unacked);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Needs {
    /// Fill [`View::streams`].
    pub streams: bool,
    /// Show [`View::unacked`], and ask even when nothing new can be sent ([`QueueView::idle`]).
    pub unacked: bool,
    /// Deliver [`SchedulerEvent::Sent`], [`SchedulerEvent::Acked`], [`SchedulerEvent::Lost`] and
    /// [`SchedulerEvent::RttUpdated`].
    pub packet_events: bool,
    /// Let the driver report the length of local queues ([`PathView::local_queue`]).
    pub local_queue: bool,
    /// [`Self::streams`] and [`Self::unacked`] only while there are several paths: with one the
    /// scheduler sends whatever is next.
    pub choices_only: bool,
}

impl Needs {
    /// With [`Self::streams`] as well.
    #[must_use]
    pub const fn with_streams(mut self) -> Self {
        self.streams = true;
        self
    }

    /// With [`Self::unacked`] as well.
    #[must_use]
    pub const fn with_unacked(mut self) -> Self {
        self.unacked = true;
        self
    }

    /// With [`Self::packet_events`] as well.
    #[must_use]
    pub const fn with_packet_events(mut self) -> Self {
        self.packet_events = true;
        self
    }

    /// With [`Self::local_queue`] as well.
    #[must_use]
    pub const fn with_local_queue(mut self) -> Self {
        self.local_queue = true;
        self
    }

    /// With [`Self::choices_only`] as well.
    #[must_use]
    pub const fn with_choices_only(mut self) -> Self {
        self.choices_only = true;
        self
    }

    /// The needs that count with this many paths.
    pub(crate) fn with_paths(mut self, count: usize) -> Self {
        let has_choice = count > 1 || !self.choices_only;
        self.streams &= has_choice;
        self.unacked &= has_choice;
        self
    }
}

/// Makes one scheduler per connection.
pub trait SchedulerFactory: fmt::Debug + Send + Sync {
    /// A scheduler that knows no path yet.
    fn build(&self) -> Box<dyn Scheduler>;
}

impl<F> SchedulerFactory for Named<F>
where
    F: Fn() -> Box<dyn Scheduler> + Send + Sync,
{
    fn build(&self) -> Box<dyn Scheduler> {
        (self.make)()
    }
}

/// Wraps a closure as a [`SchedulerFactory`].
pub fn factory<F>(name: &'static str, make: F) -> Arc<dyn SchedulerFactory>
where
    F: Fn() -> Box<dyn Scheduler> + Send + Sync + 'static,
{
    Arc::new(Named { name, make })
}
