//! How the live view looks, in windows of any size.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use mpquic_core::PathState;

use crate::live::{Live, Row};
use crate::report::{rate, size, state_name};

/// Heights of a bar.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Columns of the sparkline, at most and at least.
const MOST_BARS: usize = 60;
const FEWEST_BARS: usize = 8;
const KEYS: &str = "↑↓ select  b backup  c close path  q quit";

/// Colours, or none of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Palette {
    pub(crate) has_colours: bool,
}

impl Palette {
    fn colour(self, colour: Color) -> Style {
        match self.has_colours {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    fn of_state(self, row: &Row) -> Style {
        match row.seen.stats.state {
            PathState::Suspect => self.colour(Color::Red),
            _ if row.seen.is_backup => self.colour(Color::Yellow),
            PathState::Active => self.colour(Color::Green),
            PathState::Validating | PathState::Abandoned => Style::new(),
        }
    }
}

/// A column with its cells.
struct Column {
    head: &'static str,
    cells: Vec<String>,
    /// Numbers stand to the right.
    is_number: bool,
    /// The first to go where there is no room has the largest.
    rank: u8,
}

impl Column {
    fn new(
        head: &'static str,
        is_number: bool,
        rank: u8,
        rows: &[Row],
        cell: impl Fn(&Row) -> String,
    ) -> Self {
        let cells = rows.iter().map(cell).collect();
        Self {
            head,
            cells,
            is_number,
            rank,
        }
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.chars().count());
        cells.chain([self.head.len()]).max().unwrap_or(0)
    }

    fn padded(&self, text: &str) -> String {
        let width = self.width();
        match self.is_number {
            true => format!("{text:>width$}"),
            false => format!("{text:<width$}"),
        }
    }
}

/// Draws everything.
pub(crate) fn draw(frame: &mut Frame<'_>, live: &Live, palette: Palette) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let mut lines = vec![headline(live, width)];
    let room = height.saturating_sub(3);
    lines.extend(table(live, width, room, palette));
    lines.truncate(height.saturating_sub(1).max(1));
    frame.render_widget(Paragraph::new(lines), area);
    if height > 2 {
        let last = Rect::new(area.x, area.bottom() - 1, area.width, 1);
        let text = match live.told.as_str() {
            "" => KEYS,
            told => told,
        };
        let style = Style::new().add_modifier(Modifier::DIM);
        frame.render_widget(Paragraph::new(cut(text, width)).style(style), last);
    }
}

fn headline(live: &Live, width: usize) -> Line<'static> {
    let seconds = live.now.saturating_duration_since(live.started).as_secs();
    let figures = format!(
        "{}  {}  {}:{:02}",
        rate(live.rate()),
        size(live.carried),
        seconds / 60,
        seconds % 60
    );
    let left = width.saturating_sub(figures.chars().count() + 2);
    let title = cut(&live.title, left);
    let text = format!("{title:<left$}  {figures}");
    let bold = Style::new().add_modifier(Modifier::BOLD);
    Line::styled(cut(&text, width), bold)
}

/// The columns that fit, with a sparkline in what is left.
fn table(live: &Live, width: usize, room: usize, palette: Palette) -> Vec<Line<'static>> {
    if live.rows.is_empty() {
        return vec![Line::raw(cut("no path yet", width))];
    }
    // Of many, those around the selected one.
    let selected = live.selected();
    let first = selected.map_or(0, |at| (at + 1).saturating_sub(room));
    let shown = live.rows.iter().skip(first).take(room);
    let shown: Vec<_> = shown.cloned().collect();
    let mut columns = columns(live, &shown);
    let used = |columns: &[Column]| -> usize {
        let widths = columns.iter().map(Column::width);
        widths.map(|width| width + 2).sum()
    };
    while used(&columns) > width && columns.len() > 1 {
        let least = (0..columns.len()).max_by_key(|&at| columns[at].rank);
        columns.remove(least.unwrap_or(0));
    }
    let bars = width.saturating_sub(used(&columns)).min(MOST_BARS);
    let mut head = String::from(" ");
    for column in &columns {
        head += &format!(" {} ", column.padded(column.head));
    }
    let mut lines = vec![Line::styled(
        cut(&head, width),
        Style::new().add_modifier(Modifier::DIM),
    )];
    let most = shown.iter().flat_map(|row| &row.rates).copied();
    let most = most.fold(0.0, f64::max);
    for (index, row) in shown.iter().enumerate() {
        let is_selected = selected == Some(first + index);
        let mut text = String::from(if is_selected { ">" } else { " " });
        for column in &columns {
            text += &format!(" {} ", column.padded(&column.cells[index]));
        }
        let weight = match is_selected {
            true => Modifier::BOLD,
            false => Modifier::empty(),
        };
        let style = palette.of_state(row).add_modifier(weight);
        let mut line = Line::from(Span::styled(cut(&text, width), style));
        if bars >= FEWEST_BARS {
            let bars = sparkline(row, bars - 1, most);
            line.push_span(Span::styled(bars, palette.colour(Color::Cyan)));
        }
        lines.push(line);
    }
    lines
}

fn columns(live: &Live, rows: &[Row]) -> Vec<Column> {
    let stats = |row: &Row| row.seen.stats.clone();
    let name = |row: &Row| {
        let tuple = stats(row).four_tuple;
        let id = row.seen.stats.id;
        match live.by_peer {
            true => format!("{} {id}", tuple.remote),
            false => format!("{id} {}", tuple.local.ip()),
        }
    };
    let state = |row: &Row| match row.seen.is_backup {
        true => "backup".to_owned(),
        false => state_name(row.seen.stats.state).to_owned(),
    };
    let rtt = |row: &Row| format!("{:.1} ms", stats(row).rtt.as_secs_f64() * 1e3);
    let all = live.rows.iter().map(|row| row.carried).sum::<u64>().max(1);
    let share = |row: &Row| format!("{:.0} %", 100.0 * row.carried as f64 / all as f64);
    let mut columns = vec![
        Column::new("path", false, 0, rows, name),
        Column::new("state", false, 3, rows, state),
        Column::new("rate", true, 1, rows, |row| rate(row.rate)),
        Column::new("rtt", true, 2, rows, rtt),
        Column::new("share", true, 4, rows, share),
    ];
    if live.direction.sends() {
        let loss = |row: &Row| format!("{:.2} %", 100.0 * row.loss());
        columns.push(Column::new("lost", true, 5, rows, loss));
        let window = |row: &Row| size(stats(row).window);
        columns.push(Column::new("window", true, 6, rows, window));
    }
    columns
}

/// The rates of a path, the newest at the right, against the highest of all.
fn sparkline(row: &Row, width: usize, most: f64) -> String {
    let skipped = row.rates.len().saturating_sub(width);
    let rates = row.rates.iter().skip(skipped);
    let empty = width.saturating_sub(row.rates.len());
    let bar = |rate: &f64| {
        let height = (rate / most.max(1.0) * 8.0).ceil();
        BARS[(height as usize).min(8)]
    };
    let empty = std::iter::repeat_n(' ', empty);
    empty.chain(rates.map(bar)).collect()
}

/// The beginning of a text that fits.
fn cut(text: &str, width: usize) -> String {
    match text.chars().count() <= width {
        true => text.to_owned(),
        false => text
            .chars()
            .take(width.saturating_sub(1))
            .chain(['…'])
            .take(width)
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::clock;
    use crate::live::tests::seen;
    use crate::live::{Direction, LOOK};

    fn live(direction: Direction) -> Live {
        let start = clock::now();
        let mut live = Live::new("https://example.org/file".to_owned(), direction, start);
        for step in 0..=40 {
            let mut second = seen(0, 1, step * 30_000);
            second.is_backup = step > 20;
            live.look(
                start + step as u32 * LOOK,
                vec![seen(0, 0, step * 250_000), second],
            );
        }
        live
    }

    fn drawn(live: &Live, width: u16, height: u16, has_colours: bool) -> (Vec<String>, bool) {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let palette = Palette { has_colours };
        terminal.draw(|frame| draw(frame, live, palette)).unwrap();
        let buffer = terminal.backend().buffer();
        let rows = buffer.content().chunks(width.into());
        let lines = rows.map(|row| row.iter().map(|cell| cell.symbol()).collect());
        let coloured = buffer.content().iter().any(|cell| cell.fg != Color::Reset);
        (lines.collect(), coloured)
    }

    #[test]
    fn a_row_per_path() {
        let (lines, coloured) = drawn(&live(Direction::Receiving), 100, 6, true);
        assert!(
            lines[0].starts_with("https://example.org/file  "),
            "{lines:#?}"
        );
        assert!(
            lines[0].contains("9.0 Mbit/s  10.7 MiB  0:10"),
            "{lines:#?}"
        );
        assert!(
            lines[2].starts_with("> 0 192.0.2.10  active  8.0 Mbit/s  20.0 ms   89 %"),
            "{lines:#?}"
        );
        assert!(
            lines[3].starts_with("  1 192.0.2.11  backup  960 kbit/s  20.0 ms   11 %"),
            "{lines:#?}"
        );
        assert!(
            lines[2].contains("████████") && lines[3].contains("▁▁▁▁▁▁▁▁"),
            "{lines:#?}"
        );
        assert!(lines[5].starts_with(KEYS), "{lines:#?}");
        assert!(!lines[1].contains("lost") && coloured);
        let (lines, coloured) = drawn(&live(Direction::Sending), 100, 6, false);
        assert!(
            lines[1].contains("lost") && lines[1].contains("window"),
            "{lines:#?}"
        );
        assert!(lines[2].contains("0.50 %  120.0 KiB"), "{lines:#?}");
        assert!(!coloured, "NO_COLOR");
    }

    #[test]
    fn a_narrow_window_shows_what_matters_most() {
        let live = live(Direction::Sending);
        let (lines, _) = drawn(&live, 40, 6, true);
        assert!(lines[2].starts_with("> 0 192.0.2.10  "), "{lines:#?}");
        assert!(
            lines[2].contains("kbit/s") || lines[2].contains("Mbit/s"),
            "{lines:#?}"
        );
        assert!(!lines[1].contains("window"), "{lines:#?}");
        // Whatever the size, nothing panics, and of many paths the selected one is shown.
        for width in 1..60 {
            for height in 1..8 {
                drawn(&live, width, height, true);
            }
        }
        let mut many = Live::new("server".to_owned(), Direction::Both, live.started);
        many.look(live.started, (0..50).map(|id| seen(id, 0, 0)).collect());
        many.select(40);
        let (lines, _) = drawn(&many, 80, 10, true);
        assert!(
            lines.iter().any(|line| line.starts_with("> ")),
            "{lines:#?}"
        );
        let none = Live::new("x".to_owned(), Direction::Both, live.started);
        assert!(drawn(&none, 30, 4, true).0[1].starts_with("no path yet"));
    }
}
