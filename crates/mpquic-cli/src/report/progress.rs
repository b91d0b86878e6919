//! The progress view: one bar for the transfer and a row per path, on standard error.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use mpquic_core::{PathId, PathStats};

use crate::report::{rate, size, state_name};

/// Interval of the updates.
pub(crate) const REFRESH: Duration = Duration::from_millis(100);
/// Weight of the newest sample in a path's displayed rate.
const NEW_SAMPLE_WEIGHT: f64 = 0.3;
/// A path's bar shows its share of all bytes, in thousandths.
const FULL: u64 = 1000;

/// The progress view. Without a terminal on standard error, the view draws nothing.
pub(crate) struct Progress {
    multi: MultiProgress,
    total: ProgressBar,
    rows: BTreeMap<PathId, Row>,
    started: Instant,
    updated: Instant,
    /// Bytes of the file from an earlier transfer.
    first: u64,
    length: Option<u64>,
    /// The displayed counter of a path.
    counter: fn(&PathStats) -> u64,
}

struct Row {
    bar: ProgressBar,
    /// Value of the counter when the transfer began, and at the last update.
    first: u64,
    last: u64,
    bytes_per_second: f64,
}

impl Progress {
    /// A view for a transfer of `length` bytes, if known, over paths with these counters.
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

    /// Sets the number of bytes of the file from an earlier transfer.
    pub(crate) fn begin_at(&mut self, have: u64) {
        self.first = have;
    }

    /// Shows the bytes that paths send, instead of received ones.
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

    /// Shows the current state: `received` bytes of the file, and the paths.
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

    /// Title, text and bytes of the bar for the whole transfer.
    #[cfg(test)]
    pub(crate) fn told(&self) -> (String, String, u64) {
        (
            self.total.prefix(),
            self.total.message(),
            self.total.position(),
        )
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
    // The templates are constants of this file, and tests draw them.
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::live::tests::seen;

    #[test]
    fn progress_shows_the_rest() {
        assert_eq!(remaining(40, 100, 5.0), "  40 %, 12 s left");
        assert_eq!(remaining(0, 600, 1.0), "  0 %, 10 min left");
        assert_eq!(remaining(0, 9000, 1.0), "  0 %, 2.5 h left");
        assert_eq!(remaining(0, 100, 0.0), "  0 %");
        assert_eq!(remaining(0, 0, 0.0), "  0 %");
        assert_eq!(remaining(1, 1, 1.0), "  100 %, 0 s left");
        assert_eq!(remaining(0, 60, 1.0), "  0 %, 1 min left");
        assert_eq!(remaining(0, 3600, 1.0), "  0 %, 1.0 h left");
        assert_eq!(remaining(0, 360_000, 1.0), "  0 %");
    }

    /// The content of a bar: text before, text after, and position.
    fn shown(bar: &ProgressBar) -> (String, String, u64) {
        (bar.prefix(), bar.message(), bar.position())
    }

    fn row(progress: &Progress, id: u32) -> (String, String, u64) {
        shown(&progress.rows[&PathId(id)].bar)
    }

    #[test]
    fn a_bar_for_all_and_one_for_each_path() {
        let start = crate::process::clock::now();
        let at = |millis| start + Duration::from_millis(millis);
        let paths = |first, second| [seen(0, 0, first).stats, seen(0, 1, second).stats];
        // Bytes of paths and file from before this transfer do not count.
        let before = paths(50_000, 0);
        let length = Some(2_000_000);
        let mut progress = Progress::new("title".to_owned(), length, start, true, &before[..1]);
        progress.begin_at(400_000);
        progress.update(at(1000), 500_000, &paths(125_000, 25_000));
        let all = "488.3 KiB  800 kbit/s  25 %, 15 s left";
        let told = (String::from("title"), String::from(all), 500_000);
        assert_eq!(progress.told(), told);
        assert_eq!(progress.total.length(), length);
        // The rates of paths are smoothed, and cover the time since the last update.
        let first = "73.2 KiB  180 kbit/s  rtt 20.0 ms  active";
        let second = "24.4 KiB  0 kbit/s  rtt 20.0 ms  active";
        let told = |name: &str, what: &str, position| {
            let (name, what) = (name.to_owned(), what.to_owned());
            (name, what, position)
        };
        let (name, other) = ("path 0 from 192.0.2.10", "path 1 from 192.0.2.11");
        assert_eq!(row(&progress, 0), told(name, first, 750));
        assert_eq!(row(&progress, 1), told(other, second, 250));
        progress.update(at(1500), 500_000, &paths(175_000, 25_000));
        let first = "122.1 KiB  366 kbit/s  rtt 20.0 ms  active";
        assert_eq!(row(&progress, 0), told(name, first, 833));
        // A vanished path has no bar.
        let gone = progress.rows[&PathId(0)].bar.clone();
        progress.update(at(2000), 500_000, &paths(0, 25_000)[1..]);
        assert!(gone.is_finished() && progress.rows.len() == 1);
        assert_eq!(row(&progress, 1), told(other, second, 1000));
        let bars = [
            progress.total.clone(),
            progress.rows[&PathId(1)].bar.clone(),
        ];
        assert!(bars.iter().all(|bar| !bar.is_finished()));
        progress.clear();
        assert!(bars.iter().all(ProgressBar::is_finished));
    }

    #[test]
    fn one_byte_fills_a_bar() {
        let start = crate::process::clock::now();
        let mut progress = Progress::new(String::new(), None, start, true, &[]);
        progress.update(start, 1, &[seen(0, 0, 1).stats]);
        assert_eq!(row(&progress, 0).2, FULL);
        assert_eq!(progress.rows[&PathId(0)].bar.length(), Some(FULL));
    }

    #[test]
    fn of_a_file_that_is_sent_and_has_no_length() {
        let start = crate::process::clock::now();
        let mut path = seen(0, 0, 1_000_000).stats;
        let mut progress = Progress::new(String::new(), None, start, true, &[]).of_sending();
        path.bytes_sent = 4096;
        let later = start + Duration::from_secs(2);
        progress.update(later, 1_000_000, std::slice::from_ref(&path));
        assert_eq!(progress.total.message(), "976.6 KiB  4.0 Mbit/s");
        let what = "4.0 KiB  0 kbit/s  rtt 20.0 ms  active".to_owned();
        let name = "path 0 from 192.0.2.10".to_owned();
        assert_eq!(row(&progress, 0), (name, what, 1000));
    }
}
