//! The drawing of the live view, in windows of any size.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use mpquic_core::PathState;

use crate::report::live::{Live, Row};
use crate::report::{rate, size, state_name};

/// Heights of a bar.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Largest and smallest number of columns of the sparkline.
const MOST_BARS: usize = 60;
const FEWEST_BARS: usize = 8;
const KEYS: &str = "↑↓ select  b backup  c close path  q quit";

/// Colours, or none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Palette {
    pub(crate) has_colours: bool,
}

impl Palette {
    fn colour(self, colour: Color) -> Style {
        if self.has_colours {
            Style::new().fg(colour)
        } else {
            Style::new()
        }
    }

    fn of_state(self, row: &Row) -> Style {
        match row.seen.stats.state {
            PathState::Suspect => self.colour(Color::Red),
            _ if row.seen.is_backup => self.colour(Color::Yellow),
            PathState::Active => self.colour(Color::Green),
            _ => Style::new(),
        }
    }
}

/// A column with its cells.
struct Column {
    head: &'static str,
    cells: Vec<String>,
    /// True for numbers, which are aligned to the right.
    is_number: bool,
    /// The column with the largest rank is left out first.
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
        cells.chain([self.head.len()]).max().unwrap_or_default()
    }

    fn padded(&self, text: &str) -> String {
        let width = self.width();
        if self.is_number {
            format!("{text:>width$}")
        } else {
            format!("{text:<width$}")
        }
    }
}

/// Draws the whole view.
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

/// The columns that fit, and a sparkline in the remaining space.
fn table(live: &Live, width: usize, room: usize, palette: Palette) -> Vec<Line<'static>> {
    if live.rows.is_empty() {
        return vec![Line::raw(cut("no path yet", width))];
    }
    // The rows around the selected one.
    let selected = live.selected();
    let first = (selected.unwrap_or_default() + 1).saturating_sub(room);
    let shown = live.rows.iter().skip(first).take(room);
    let shown: Vec<_> = shown.cloned().collect();
    let mut columns = columns(live, &shown);
    let used = |columns: &[Column]| -> usize {
        let widths = columns.iter().map(Column::width);
        widths.map(|width| width + 2).sum()
    };
    while used(&columns) > width && columns.len() > 1 {
        let least = (0..columns.len()).max_by_key(|&at| columns[at].rank);
        columns.remove(least.unwrap_or_default());
    }
    let bars = width.saturating_sub(used(&columns)).min(MOST_BARS);
    let mut head = String::from(" ");
    for column in &columns {
        head += &format!(" {} ", column.padded(column.head));
    }
    let mut lines = vec![Line::styled(
        cut(head.trim_end(), width),
        Style::new().add_modifier(Modifier::DIM),
    )];
    let most = shown.iter().flat_map(|row| &row.rates).copied();
    let most = most.fold(1.0, f64::max);
    for (index, row) in shown.iter().enumerate() {
        let is_selected = selected == Some(first + index);
        let mut text = String::from(if is_selected { ">" } else { " " });
        for column in &columns {
            text += &format!(" {} ", column.padded(&column.cells[index]));
        }
        let weight = if is_selected {
            Modifier::BOLD
        } else {
            Modifier::empty()
        };
        let style = palette.of_state(row).add_modifier(weight);
        let bars = (bars >= FEWEST_BARS).then(|| sparkline(row, bars - 1, most));
        if bars.is_none() {
            // The space at the end of the row may be missing.
            text.truncate(text.trim_end().len());
        }
        let row = Span::styled(cut(&text, width), style);
        let bars = bars.map(|bars| Span::styled(bars, palette.colour(Color::Cyan)));
        lines.push(Line::from_iter([row].into_iter().chain(bars)));
    }
    lines
}

fn columns(live: &Live, rows: &[Row]) -> Vec<Column> {
    let stats = |row: &Row| row.seen.stats.clone();
    let name = |row: &Row| {
        let tuple = stats(row).four_tuple;
        let id = row.seen.stats.id;
        if live.by_peer {
            format!("{} {id}", tuple.remote)
        } else {
            format!("{id} {}", tuple.local.ip())
        }
    };
    let state = |row: &Row| {
        if row.seen.is_backup {
            "backup".to_owned()
        } else {
            state_name(row.seen.stats.state).to_owned()
        }
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

/// The rates of a path, the newest at the right, relative to the highest rate of all paths, or to
/// one byte per second.
fn sparkline(row: &Row, width: usize, most: f64) -> String {
    let skipped = row.rates.len().saturating_sub(width);
    let rates = row.rates.iter().skip(skipped);
    let empty = width.saturating_sub(row.rates.len());
    let bar = |rate: &f64| {
        let height = (rate / most * 8.0).ceil();
        BARS[(height as usize).min(BARS.len() - 1)]
    };
    let empty = std::iter::repeat_n(' ', empty);
    empty.chain(rates.map(bar)).collect()
}

/// The beginning of a text, cut to a width.
fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        text.to_owned()
    } else {
        text.chars()
            .take(width.saturating_sub(1))
            .chain(['…'])
            .take(width)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::process::clock;
    use crate::report::live::tests::seen;
    use crate::report::live::{Direction, LOOK};

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
        // No size of the window panics, and the selected path is always shown.
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

    /// A window as text, without the spaces at the ends of lines.
    fn text(live: &Live, width: u16, height: u16) -> String {
        let (lines, _) = drawn(live, width, height, false);
        let lines: Vec<_> = lines.iter().map(|line| line.trim_end()).collect();
        format!("\n{}\n", lines.join("\n"))
    }

    /// Three paths of a server. The second path is selected, and its rate falls.
    fn busy() -> Live {
        let start = clock::now();
        let title = "server".to_owned();
        let mut live = Live::new(title, Direction::Sending, start).by_peer();
        let mut sent = [0; 3];
        for step in 0..70_u64 {
            for (path, sent) in sent.iter_mut().enumerate() {
                *sent += match path {
                    0 => 1_000_000,
                    1 => 10_000 * (70 - step),
                    _ => 0,
                };
            }
            let look = start + step as u32 * LOOK;
            let paths = sent.iter().enumerate().map(|(path, sent)| {
                let mut path = seen(path as u64, path as u32, 0);
                path.stats.bytes_sent = *sent;
                path
            });
            live.look(look, paths.collect());
        }
        live.select(1);
        live
    }

    #[test]
    fn windows_of_several_sizes() {
        let mut live = busy();
        let scenes: [(u16, u16, &str); 8] = [
            (
                100,
                7,
                "
server                                                                   33.1 Mbit/s  88.8 MiB  0:17
  path             state          rate      rtt  share    lost     window
  192.0.2.1:443 0  active  32.0 Mbit/s  20.0 ms   74 %  0.50 %  120.0 KiB ██████████████████████████
> 192.0.2.1:443 1  active   1.1 Mbit/s  20.0 ms   26 %  0.50 %  120.0 KiB ▃▂▂▂▂▂▂▂▂▂▂▂▂▂▁▁▁▁▁▁▁▁▁▁▁▁
  192.0.2.1:443 2  active     0 kbit/s  20.0 ms    0 %  0.50 %  120.0 KiB

↑↓ select  b backup  c close path  q quit
",
            ),
            // A single row: the selected path, with a limited number of rates.
            (
                150,
                4,
                "
server                                                                                                                     33.1 Mbit/s  88.8 MiB  0:17
  path             state         rate      rtt  share    lost     window
> 192.0.2.1:443 1  active  1.1 Mbit/s  20.0 ms   26 %  0.50 %  120.0 KiB ▇▇▇▇▇▇▇▇▆▆▆▆▆▆▆▆▅▅▅▅▅▅▅▅▅▄▄▄▄▄▄▄▄▄▃▃▃▃▃▃▃▃▂▂▂▂▂▂▂▂▂▁▁▁▁▁▁▁▁
↑↓ select  b backup  c close path  q quit
",
            ),
            (
                56,
                5,
                "
server                       33.1 Mbit/s  88.8 MiB  0:17
  path             state          rate      rtt  share
  192.0.2.1:443 0  active  32.0 Mbit/s  20.0 ms   74 %
> 192.0.2.1:443 1  active   1.1 Mbit/s  20.0 ms   26 %
↑↓ select  b backup  c close path  q quit
",
            ),
            (
                30,
                4,
                "
…  33.1 Mbit/s  88.8 MiB  0:17
  path                   rate
> 192.0.2.1:443 1  1.1 Mbit/s
↑↓ select  b backup  c close …
",
            ),
            (12, 3, "\n  33.1 Mbit…\n  path  rate\n↑↓ select  …\n"),
            (20, 2, "\n  33.1 Mbit/s  88.8…\n\n"),
            (20, 1, "\n  33.1 Mbit/s  88.8…\n"),
            (1, 1, "\n…\n"),
        ];
        for (width, height, expected) in scenes {
            assert_eq!(text(&live, width, height), expected);
        }
        live.told = "path 1 is a backup now".to_owned();
        let told = text(&live, 18, 4);
        assert_eq!(told.lines().last(), Some("path 1 is a backu…"));
    }

    #[test]
    fn bars_are_as_high_as_their_part_of_the_highest_rate() {
        let start = clock::now();
        let mut live = Live::new("x".to_owned(), Direction::Receiving, start);
        let bars = |live: &Live, most: f64| sparkline(&live.rows[0], 12, most);
        live.look(start, vec![seen(0, 0, 0)]);
        assert_eq!(bars(&live, 1.0), " ".repeat(12));
        let mut received = 0;
        for (second, more) in [0, 1, 125, 126, 500, 875, 876, 1000]
            .into_iter()
            .enumerate()
        {
            received += more;
            let now = start + std::time::Duration::from_secs(second as u64 + 1);
            live.look(now, vec![seen(0, 0, received)]);
        }
        assert_eq!(bars(&live, 1000.0), "     ▁▁▂▄▇██");
        assert_eq!(sparkline(&live.rows[0], 3, 1000.0), "▇██");
        // A trickle is not drawn as a large rate.
        let mut slow = Live::new("x".to_owned(), Direction::Receiving, start);
        for second in 0..3_u32 {
            let now = start + 2 * second * std::time::Duration::from_secs(1);
            slow.look(now, vec![seen(0, 0, second.into())]);
        }
        let (lines, _) = drawn(&slow, 80, 4, false);
        assert!(lines[2].trim_end().ends_with(" ▄▄"), "{lines:#?}");
    }

    #[test]
    fn share_of_a_single_byte_is_whole() {
        let start = clock::now();
        let mut live = Live::new("x".to_owned(), Direction::Receiving, start);
        live.look(start, vec![seen(0, 0, 0)]);
        assert!(text(&live, 80, 4).contains(" 0 %"));
        live.look(start + LOOK, vec![seen(0, 0, 1)]);
        assert!(text(&live, 80, 4).contains(" 100 %"));
    }

    /// The columns at each width.
    #[test]
    fn columns_disappear_one_by_one() {
        let live = busy();
        let mut before = String::new();
        let mut narrower = Vec::new();
        for width in (1..=120).rev() {
            let (lines, _) = drawn(&live, width, 6, false);
            let head = lines[1].split_whitespace().collect::<Vec<_>>().join(" ");
            // A text is cut only after all other columns are left out.
            assert_eq!(lines[2].contains('…'), width < 17 && width > 0, "{width}");
            let has_bars = lines[2].contains(&BARS[1..]);
            let now = format!("{head}{}", if has_bars { " |" } else { "" });
            if now != before {
                narrower.push((width, now.clone()));
                before = now;
            }
        }
        let expected = [
            (120, "path state rate rtt share lost window |"),
            (80, "path state rate rtt share lost window"),
            (72, "path state rate rtt share lost |"),
            (69, "path state rate rtt share lost"),
            (61, "path state rate rtt share"),
            (53, "path state rate rtt"),
            (46, "path rate rtt"),
            (38, "path rate |"),
            (37, "path rate"),
            (29, "path |"),
            (24, "path"),
            (5, "pa…"),
            (4, "p…"),
            (3, "…"),
        ];
        assert_eq!(
            narrower,
            expected.map(|(width, head)| (width, head.to_owned()))
        );
    }

    #[test]
    fn states_have_their_colours() {
        let start = clock::now();
        let mut live = Live::new("x".to_owned(), Direction::Receiving, start);
        let mut paths: Vec<_> = (0..5).map(|id| seen(0, id, 0)).collect();
        paths[1].stats.state = PathState::Suspect;
        paths[2].is_backup = true;
        paths[3].stats.state = PathState::Validating;
        paths[4].stats.state = PathState::Suspect;
        paths[4].is_backup = true;
        live.look(start, paths);
        let mut terminal = Terminal::new(TestBackend::new(70, 9)).unwrap();
        let palette = Palette { has_colours: true };
        terminal.draw(|frame| draw(frame, &live, palette)).unwrap();
        let buffer = terminal.backend().buffer();
        let cell = |column: u16, row: u16| &buffer[(column, row)];
        let colours = [2, 3, 4, 5, 6].map(|row| cell(3, row).fg);
        let expected = [
            Color::Green,
            Color::Red,
            Color::Yellow,
            Color::Reset,
            Color::Red,
        ];
        assert_eq!(colours, expected);
        // The selected row and the headline stand out. Column heads and keys are dim.
        let is = |row, modifier| cell(3, row).modifier.contains(modifier);
        let bold: Vec<_> = (0..9).filter(|row| is(*row, Modifier::BOLD)).collect();
        let dim: Vec<_> = (0..9).filter(|row| is(*row, Modifier::DIM)).collect();
        assert_eq!((bold, dim), (vec![0, 2], vec![1, 8]));
        assert_eq!(cell(69, 2).fg, Color::Cyan, "rates over time");
    }
}
