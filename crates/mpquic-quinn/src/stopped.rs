//! The futures of `SendStream::stopped`: any number of them, in several tasks.

use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use mpquic_tokio::StreamWatch;
use quinn_proto::VarInt;

use crate::errors::{self, StoppedError};

/// The answer of the peer.
type Answer = Result<Option<VarInt>, StoppedError>;

/// The end of one stream. mpquic wakes one task for each stream, and this type wakes all that wait.
pub(crate) struct Stopped {
    state: Mutex<State>,
    waiting: Arc<Waiting>,
}

enum State {
    Open(Pin<Box<dyn Future<Output = Answer> + Send>>),
    Ended(Answer),
}

/// The tasks that wait.
#[derive(Default)]
struct Waiting(Mutex<Vec<Waker>>);

impl Waiting {
    fn tasks(&self) -> MutexGuard<'_, Vec<Waker>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, waker: &Waker) {
        let mut tasks = self.tasks();
        if !tasks.iter().any(|task| task.will_wake(waker)) {
            tasks.push(waker.clone());
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let tasks = mem::take(&mut *self.tasks());
        for task in tasks {
            task.wake();
        }
    }
}

impl Stopped {
    pub(crate) fn new(stream: StreamWatch) -> Self {
        let end = async move { errors::stopped(stream.stopped().await) };
        Self {
            state: Mutex::new(State::Open(Box::pin(end))),
            waiting: Arc::default(),
        }
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Answer> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match &mut *state {
            State::Ended(answer) => return Poll::Ready(answer.clone()),
            State::Open(end) => {
                self.waiting.add(cx.waker());
                let all = Waker::from(self.waiting.clone());
                match end.as_mut().poll(&mut Context::from_waker(&all)) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(answer) => answer,
                }
            }
        };
        *state = State::Ended(answer.clone());
        drop(state);
        self.waiting.wake_by_ref();
        Poll::Ready(answer)
    }
}
