//! The live view: one bar for the transfer and a row per path, on stderr.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use mpquic_core::{PathId, PathStats};

use crate::report::{rate, size, state_name};

/// How often the view is refreshed.
pub(crate) const REFRESH: Duration = Duration::from_millis(100);
/// Weight of the newest sample in a path's displayed rate.
const NEW_SAMPLE_WEIGHT: f64 = 0.3;
/// A path's bar shows its share of all bytes, in thousandths.
const FULL: u64 = 1000;

/// Draws nothing if stderr is not a terminal.
pub(crate) struct Progress {
    multi: MultiProgress,
    total: ProgressBar,
    rows: BTreeMap<PathId, Row>,
    started: Instant,
    updated: Instant,
}

struct Row {
    bar: ProgressBar,
    /// Counter when the transfer began, and at the last update.
    first: u64,
    last: u64,
    bytes_per_second: f64,
}

impl Progress {
    /// For a transfer of `length` bytes, if that is known, over paths with these counters.
    pub(crate) fn new(
        title: String,
        length: Option<u64>,
        now: Instant,
        quiet: bool,
        paths: &[PathStats],
    ) -> Self {
        let target = if quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr()
        };
        let multi = MultiProgress::with_draw_target(target);
        let (bar, template) = match length {
            Some(length) => (ProgressBar::new(length), "{prefix}  {bar:30}  {msg}"),
            None => (ProgressBar::no_length(), "{prefix}  {spinner}  {msg}"),
        };
        let total = multi.add(bar.with_prefix(title).with_style(style(template)));
        let mut progress = Self {
            multi,
            total,
            rows: BTreeMap::new(),
            started: now,
            updated: now,
        };
        for path in paths {
            progress.row(path).first = path.bytes_received;
        }
        progress
    }

    fn row(&mut self, path: &PathStats) -> &mut Row {
        self.rows.entry(path.id).or_insert_with(|| {
            let bar = ProgressBar::new(FULL).with_style(style("  {prefix}  {bar:20}  {msg}"));
            Row {
                bar: self.multi.add(bar),
                first: 0,
                last: path.bytes_received,
                bytes_per_second: 0.0,
            }
        })
    }

    /// Shows the present state: `received` bytes of the file, and the paths.
    pub(crate) fn update(&mut self, now: Instant, received: u64, paths: &[PathStats]) {
        let elapsed = (now - self.started).as_secs_f64().max(1e-3);
        let since = (now - self.updated).as_secs_f64().max(1e-3);
        self.updated = now;
        self.total.set_position(received);
        let speed = rate(received as f64 / elapsed);
        self.total
            .set_message(format!("{}  {speed}", size(received)));
        let mut all = 0;
        for path in paths {
            let row = self.row(path);
            let sample = path.bytes_received.saturating_sub(row.last) as f64 / since;
            row.last = path.bytes_received;
            row.bytes_per_second += NEW_SAMPLE_WEIGHT * (sample - row.bytes_per_second);
            all += row.last.saturating_sub(row.first);
        }
        self.rows.retain(|id, row| {
            let open = paths.iter().any(|path| path.id == *id);
            if !open {
                row.bar.finish_and_clear();
            }
            open
        });
        for path in paths {
            let row = self.row(path);
            let bytes = row.last.saturating_sub(row.first);
            row.bar.set_position(FULL * bytes / all.max(1));
            row.bar.set_prefix(format!(
                "path {} from {}",
                path.id,
                path.four_tuple.local.ip()
            ));
            row.bar.set_message(format!(
                "{}  {}  rtt {:.1} ms  {}",
                size(bytes),
                rate(row.bytes_per_second),
                path.rtt.as_secs_f64() * 1e3,
                state_name(path.state)
            ));
        }
    }

    /// Removes the view.
    pub(crate) fn clear(&mut self) {
        for row in self.rows.values() {
            row.bar.finish_and_clear();
        }
        self.total.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants of this file, and its tests draw them.
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}
