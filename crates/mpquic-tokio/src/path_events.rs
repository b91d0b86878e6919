//! [`PathEvents`]: a subscription to the events of paths. [`Listeners`]: all subscriptions of a
//! connection.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;
use mpquic_core::PathEvent;
use smallvec::SmallVec;

/// Events kept for a slow listener.
const CAPACITY: usize = 64;

/// A subscription to the events of a connection's paths: a [`Stream`] of events.
///
/// A listener more than 64 events behind misses the oldest events; [`Self::missed`] counts the
/// missed events, and [`Connection::paths`] shows the current state. [`PathEvent::Discarded`] has
/// the last counters of a path, and [`Connection::ended_path_stats`] shows them later.
///
/// [`Connection::paths`]: crate::Connection::paths
/// [`Connection::ended_path_stats`]: crate::Connection::ended_path_stats
///
/// # Examples
///
/// ```
/// # use mpquic_tokio::{Connection, PathEvent};
/// # async fn example(connection: Connection) {
/// let mut events = connection.path_events();
/// while let Some(event) = events.next().await {
///     match event {
///         PathEvent::Suspect(path) => println!("path {path} is silent"),
///         PathEvent::Recovered(path) => println!("path {path} answers again"),
///         PathEvent::Migrated(path, addresses) => println!("path {path} is at {addresses} now"),
///         PathEvent::Discarded(last) => println!("path {} is over: {last:?}", last.id),
///         other => println!("{other:?}"),
///     }
/// }
/// # }
/// ```
#[derive(Debug)]
pub struct PathEvents {
    queue: Arc<Queue>,
    missed: u64,
}

impl PathEvents {
    /// Waits for the next event; `None` after the end of the connection. Cancel-safe.
    pub async fn next(&mut self) -> Option<PathEvent> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// Like [`Self::next`], for hand-written futures: only the last task that polled wakes up.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<PathEvent>> {
        let mut state = self.queue.lock();
        self.missed += std::mem::take(&mut state.missed);
        if let Some(event) = state.events.pop_front() {
            return Poll::Ready(Some(event));
        }
        if state.is_over {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Number of missed events before the last read event: the listener read too slowly.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

impl Stream for PathEvents {
    type Item = PathEvent;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<PathEvent>> {
        Self::poll_next(self.get_mut(), cx)
    }
}

#[derive(Debug, Default)]
struct Queue(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    events: VecDeque<PathEvent>,
    missed: u64,
    /// No more events follow.
    is_over: bool,
    waker: Option<Waker>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The subscriptions of a connection. Without subscriptions, events cost no work.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    queues: Vec<Weak<Queue>>,
    is_over: bool,
}

impl Listeners {
    /// A further subscription, from now on.
    pub(crate) fn subscribe(&mut self) -> PathEvents {
        let queue = Arc::new(Queue::default());
        queue.lock().is_over = self.is_over;
        self.queues.retain(|queue| queue.strong_count() > 0);
        self.queues.push(Arc::downgrade(&queue));
        PathEvents { queue, missed: 0 }
    }

    /// Passes an event to all subscriptions. Returns the wakers of waiting tasks.
    pub(crate) fn tell(&mut self, event: &PathEvent) -> SmallVec<[Waker; 2]> {
        self.change(|state| {
            if state.events.len() == CAPACITY {
                state.events.pop_front();
                state.missed += 1;
            }
            state.events.push_back(event.clone());
        })
    }

    /// The connection ended. Returns the wakers of waiting tasks.
    pub(crate) fn end(&mut self) -> SmallVec<[Waker; 2]> {
        self.is_over = true;
        self.change(|state| state.is_over = true)
    }

    fn change(&mut self, change: impl Fn(&mut State)) -> SmallVec<[Waker; 2]> {
        let queues = self.queues.iter().filter_map(Weak::upgrade);
        let woken = queues.filter_map(|queue| {
            let mut state = queue.lock();
            change(&mut state);
            state.waker.take()
        });
        woken.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(events: &mut PathEvents) -> Poll<Option<PathEvent>> {
        events.poll_next(&mut Context::from_waker(Waker::noop()))
    }

    fn event(number: u32) -> PathEvent {
        PathEvent::Established(mpquic_core::PathId(number))
    }

    /// A listener that does not read keeps only the newest events, and learns the number of missing
    /// events.
    #[test]
    fn a_slow_listener_misses_the_oldest_and_is_told() {
        let mut listeners = Listeners::default();
        let mut slow = listeners.subscribe();
        let mut quick = listeners.subscribe();
        for number in 0..100 {
            listeners.tell(&event(number));
            assert_eq!(poll(&mut quick), Poll::Ready(Some(event(number))));
        }
        assert_eq!(quick.missed(), 0);
        for number in 36..100 {
            assert_eq!(poll(&mut slow), Poll::Ready(Some(event(number))));
            assert_eq!(slow.missed(), 36);
        }
        assert!(poll(&mut slow).is_pending());
        assert_eq!(
            listeners.tell(&event(7)).len(),
            1,
            "it waits, the other does not"
        );
        listeners.end();
        assert_eq!(
            poll(&mut slow),
            Poll::Ready(Some(event(7))),
            "what came before the end"
        );
        assert_eq!(poll(&mut slow), Poll::Ready(None));
        assert_eq!(poll(&mut listeners.subscribe()), Poll::Ready(None));
    }

    #[test]
    fn dropped_listeners_are_forgotten() {
        let mut listeners = Listeners::default();
        for _ in 0..100 {
            drop(listeners.subscribe());
        }
        assert_eq!(listeners.queues.len(), 1);
    }
}
