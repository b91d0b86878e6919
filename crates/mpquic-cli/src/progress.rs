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
    /// Bytes of the file that were there before.
    first: u64,
    length: Option<u64>,
    /// The bytes of a path that are shown.
    counter: fn(&PathStats) -> u64,
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
            first: 0,
            length,
            counter: |path| path.bytes_received,
        };
        for path in paths {
            progress.row(path).first = path.bytes_received;
        }
        progress
    }

    /// So many bytes of the file were there already.
    pub(crate) fn begin_at(&mut self, have: u64) {
        self.first = have;
    }

    /// Shows what paths send, not what they receive.
    pub(crate) fn of_sending(self) -> Self {
        Self {
            counter: |path| path.bytes_sent,
            ..self
        }
    }

    fn row(&mut self, path: &PathStats) -> &mut Row {
        let carried = (self.counter)(path);
        self.rows.entry(path.id).or_insert_with(|| {
            let bar = ProgressBar::new(FULL).with_style(style("  {prefix}  {bar:20}  {msg}"));
            Row {
                bar: self.multi.add(bar),
                first: 0,
                last: carried,
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
        let speed = received.saturating_sub(self.first) as f64 / elapsed;
        let mut message = format!("{}  {}", size(received), rate(speed));
        if let Some(length) = self.length {
            message += &remaining(received, length, speed);
        }
        self.total.set_message(message);
        let mut all = 0;
        for path in paths {
            let carried = (self.counter)(path);
            let row = self.row(path);
            let sample = carried.saturating_sub(row.last) as f64 / since;
            row.last = carried;
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

/// "  40 %, 12 s left"
fn remaining(received: u64, length: u64, bytes_per_second: f64) -> String {
    let percent = 100.0 * received as f64 / length.max(1) as f64;
    let seconds = length.saturating_sub(received) as f64 / bytes_per_second;
    let left = match seconds {
        ..60.0 => format!(", {seconds:.0} s left"),
        60.0..3600.0 => format!(", {:.0} min left", seconds / 60.0),
        3600.0..360_000.0 => format!(", {:.1} h left", seconds / 3600.0),
        _ => String::new(),
    };
    format!("  {percent:.0} %{left}")
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants of this file, and its tests draw them.
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn how_much_is_left() {
        assert_eq!(remaining(40, 100, 5.0), "  40 %, 12 s left");
        assert_eq!(remaining(0, 600, 1.0), "  0 %, 10 min left");
        assert_eq!(remaining(0, 9000, 1.0), "  0 %, 2.5 h left");
        assert_eq!(remaining(0, 100, 0.0), "  0 %");
        assert_eq!(remaining(0, 0, 0.0), "  0 %");
    }
}
