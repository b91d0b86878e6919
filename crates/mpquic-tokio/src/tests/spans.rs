//! The spans and events of connections and paths in tracing: `docs/observability.md` lists them.

use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use mpquic_core::{FourTuple, PathId};

use crate::testing::{Pair, TestResult};

/// Writes down spans, and events with the spans they are in.
#[derive(Default, Clone)]
struct Notes(Arc<Written>);

#[derive(Default)]
struct Written {
    next: AtomicU64,
    spans: Mutex<Vec<String>>,
    entered: Mutex<Vec<u64>>,
    events: Mutex<Vec<String>>,
}

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Notes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("mpquic")
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        let parent = attributes.parent().map(Id::into_u64);
        let parent = parent.or_else(|| self.current());
        let mut span = format!("{} in {parent:?}:", attributes.metadata().name());
        attributes.record(&mut Fields(&mut span));
        self.0.spans.lock().unwrap().push(span);
        Id::from_u64(1 + self.0.next.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, span: &Id, values: &Record<'_>) {
        let mut spans = self.0.spans.lock().unwrap();
        values.record(&mut Fields(&mut spans[span.into_u64() as usize - 1]));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let parent = event.parent().map(Id::into_u64);
        let span = parent.or_else(|| self.current());
        let mut text = format!("in {span:?}:");
        event.record(&mut Fields(&mut text));
        self.0.events.lock().unwrap().push(text);
    }

    fn enter(&self, span: &Id) {
        self.0.entered.lock().unwrap().push(span.into_u64());
    }

    fn exit(&self, _: &Id) {
        self.0.entered.lock().unwrap().pop();
    }
}

impl Notes {
    /// The entered span.
    fn current(&self) -> Option<u64> {
        self.0.entered.lock().unwrap().last().copied()
    }
}

#[tokio::test(start_paused = true)]
async fn connections_and_paths_have_spans() -> TestResult {
    let notes = Notes::default();
    // With a single subscriber, tracing may ask the thread of another test whether the thread wants
    // a new span, and then no thread gets the span. With two subscribers, tracing asks the
    // subscribers.
    let _other = tracing::Dispatch::new(Notes::default());
    let _guard = tracing::subscriber::set_default(notes.clone());
    let pair = Pair::with_paths(2)?;
    let (a, _b) = pair.connect_over(2).await?;
    let path = a.path(PathId(1)).and_then(|path| path.four_tuple());
    let FourTuple { local, remote } = path.ok_or("no path")?;
    a.close(0u32.into(), b"");
    let spans = notes.0.spans.lock().unwrap();
    assert_eq!(spans[0], "connection in None: id=0 side=Client");
    assert_eq!(spans[1], "connection in None: id=0 side=Server");
    let events = notes.0.events.lock().unwrap();
    for (connection, local, remote) in [(1, local, remote), (2, remote, local)] {
        let path = format!("path in Some({connection}): id=1 local={local} remote={remote}");
        let span = spans.iter().position(|span| *span == path);
        let span = 1 + span.ok_or_else(|| format!("{path}: {spans:#?}"))?;
        let told = format!("in Some({span}): message=path path=1 event=Established(PathId(1))");
        assert!(events.contains(&told), "{told}: {events:#?}");
    }
    Ok(())
}
