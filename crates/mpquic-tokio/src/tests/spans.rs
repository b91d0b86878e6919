//! What tracing shows of connections and paths: `docs/embedding.md` lists it.

use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

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
        let mut span = attributes.metadata().name().to_owned();
        attributes.record(&mut Fields(&mut span));
        self.0.spans.lock().unwrap().push(span);
        Id::from_u64(1 + self.0.next.fetch_add(1, Ordering::Relaxed))
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let span = self.0.entered.lock().unwrap().last().copied();
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

#[tokio::test(start_paused = true)]
async fn each_connection_has_a_span_and_its_paths_are_named() -> TestResult {
    let notes = Notes::default();
    let _guard = tracing::subscriber::set_default(notes.clone());
    let pair = Pair::with_paths(2)?;
    let (a, _b) = pair.connect_over(2).await?;
    a.close(0u32.into(), b"");
    let spans = notes.0.spans.lock().unwrap();
    assert_eq!(
        spans[..],
        ["connection id=0 side=Client", "connection id=0 side=Server"]
    );
    let events = notes.0.events.lock().unwrap();
    for span in [1, 2] {
        let told = format!("in Some({span}): message=path path=1 event=Established(PathId(1))");
        assert!(events.contains(&told), "{told}: {events:#?}");
    }
    Ok(())
}
