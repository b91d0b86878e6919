//! [`PathSpans`]: the spans of paths in `tracing`.

use mpquic_core::{Connection, PathEvent, PathId};
use smallvec::SmallVec;
use tracing::Span;

/// A span for each path, from its first event until the path is discarded. Packets cause no work.
#[derive(Debug, Default)]
pub(crate) struct PathSpans(SmallVec<[(PathId, Span); 2]>);

impl PathSpans {
    /// Logs the event in the span of the path. The caller has entered the connection's span.
    pub(crate) fn show(&mut self, event: &PathEvent, core: &Connection) {
        let Some(path) = event.path() else {
            tracing::debug!(?event, "path");
            return;
        };
        let known = self.0.iter().position(|(id, _)| *id == path);
        let index = known.unwrap_or_else(|| {
            self.0.push((path, span(path, core)));
            self.0.len() - 1
        });
        if let Some((_, span)) = self.0.get(index) {
            tracing::debug!(parent: span, path = path.0, ?event, "path");
        }
        if let PathEvent::Discarded(_) = event {
            self.0.remove(index);
        }
    }
}

/// The span `path` at the level of debug messages.
fn span(path: PathId, core: &Connection) -> Span {
    let span = tracing::debug_span!(
        "path",
        id = path.0,
        local = tracing::field::Empty,
        remote = tracing::field::Empty
    );
    if !span.is_disabled()
        && let Some(stats) = core.path_stats(path)
    {
        span.record("local", tracing::field::display(stats.four_tuple.local));
        span.record("remote", tracing::field::display(stats.four_tuple.remote));
    }
    span
}
