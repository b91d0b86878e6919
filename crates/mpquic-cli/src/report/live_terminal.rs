//! The live view on the terminal, beside a running command. The view is redrawn a few times a
//! second, and keys act on paths.

use std::fmt::Display;
use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args;
use mpquic_core::{PathId, PathStatus};
use mpquic_tokio::Connection;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::process::clock;
use crate::process::failure::Failure;
use crate::process::screen;
use crate::report::live::{Direction, LOOK, Live, Seen};
use crate::report::live_view::{Palette, draw};

/// Longest wait of the keyboard thread before it checks for the end of the view.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// A command of the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Select(isize),
    /// Make the selected path a backup, or an ordinary path again.
    Backup,
    Close,
    Quit,
    Redraw,
}

// (A doc comment here would replace the help text of the command.)
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct LiveArgs {
    /// Show the paths on the whole terminal, each with its rate over time; keys make a path a
    /// backup or close it. Without a terminal, the command prints its usual lines
    #[arg(long)]
    live: bool,
}

impl LiveArgs {
    /// True if the view is shown. Standard output must be a terminal, because the view reads the
    /// cursor's position there.
    pub(crate) fn is_shown(self) -> bool {
        let are_terminals = io::stdin().is_terminal() && io::stdout().is_terminal();
        self.live && are_terminals && io::stderr().is_terminal()
    }

    /// The view, if it is shown.
    pub(crate) fn view(self, title: impl Display, direction: Direction) -> Option<Live> {
        let new = || Live::new(title.to_string(), direction, clock::now());
        self.is_shown().then(new)
    }
}

/// Runs a command beside the view of these connections. Without a terminal, runs the command alone.
pub(crate) async fn beside(
    live: Option<Live>,
    connections: impl Fn() -> Vec<(u64, Connection)>,
    command: impl Future<Output = Result<(), Failure>>,
) -> Result<(), Failure> {
    let Some(mut live) = live else {
        return command.await;
    };
    let mut shown = Shown::start().map_err(|error| {
        Failure::other(format!(
            "cannot show the live view: {error}; leave --live out"
        ))
    })?;
    tokio::pin!(command);
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            result = &mut command => return result,
            _ = ticks.tick() => live.look(clock::now(), seen(&connections())),
            wish = shown.wishes.recv() => match wish {
                None | Some(Wish::Quit) => return Err(Failure::interrupted()),
                Some(wish) => act(&mut live, wish, &connections()),
            },
        }
        shown.draw(&live).map_err(Failure::other)?;
    }
}

fn seen(connections: &[(u64, Connection)]) -> Vec<Seen> {
    let mut all = Vec::new();
    for (number, connection) in connections {
        all.extend(connection.path_stats().into_iter().map(|stats| Seen {
            connection: *number,
            is_backup: is_backup(connection, stats.id),
            stats,
        }));
    }
    all
}

/// True if a side uses this path only as a backup.
fn is_backup(connection: &Connection, id: PathId) -> bool {
    let status = connection.path(id).and_then(|path| path.status().ok());
    status.is_some_and(|(ours, theirs)| {
        ours == PathStatus::Backup || theirs == Some(PathStatus::Backup)
    })
}

fn act(live: &mut Live, wish: Wish, connections: &[(u64, Connection)]) {
    if let Wish::Select(down) = wish {
        live.select(down);
        live.told.clear();
    }
    let acts = matches!(wish, Wish::Backup | Wish::Close);
    let Some(row) = live.selected().filter(|_| acts).map(|at| &live.rows[at]) else {
        return;
    };
    let id = row.seen.stats.id;
    let of_row = connections
        .iter()
        .find(|(number, _)| *number == row.seen.connection);
    let Some(path) = of_row.and_then(|(_, connection)| connection.path(id)) else {
        return;
    };
    live.told = match wish {
        Wish::Close => match path.close() {
            Ok(()) => format!("path {id} is closed"),
            Err(error) => format!("path {id}: {error}"),
        },
        _ => {
            let is_backup = matches!(path.status(), Ok((PathStatus::Backup, _)));
            let (status, told) = if is_backup {
                (PathStatus::Available, "is used again")
            } else {
                (PathStatus::Backup, "is a backup from now on")
            };
            match path.set_status(status) {
                Ok(()) => format!("path {id} {told}"),
                Err(error) => format!("path {id}: {error}"),
            }
        }
    };
}

fn wish(event: &Event) -> Option<Wish> {
    let key = match event {
        Event::Resize(..) => return Some(Wish::Redraw),
        Event::Key(KeyEvent {
            kind: KeyEventKind::Release,
            ..
        }) => return None,
        Event::Key(key) => key,
        _ => return None,
    };
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if is_control => Some(Wish::Quit),
        KeyCode::Char('q') | KeyCode::Esc => Some(Wish::Quit),
        KeyCode::Char('b') => Some(Wish::Backup),
        KeyCode::Char('c') => Some(Wish::Close),
        KeyCode::Char('j') | KeyCode::Down => Some(Wish::Select(1)),
        KeyCode::Char('k') | KeyCode::Up => Some(Wish::Select(-1)),
        _ => None,
    }
}

/// The view on the terminal. Dropping this restores the terminal.
struct Shown {
    terminal: Terminal<CrosstermBackend<io::Stderr>>,
    palette: Palette,
    wishes: mpsc::Receiver<Wish>,
    is_over: Arc<AtomicBool>,
}

impl Shown {
    fn start() -> io::Result<Self> {
        let palette = Palette {
            // https://no-color.org
            has_colours: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        };
        let terminal = Terminal::new(CrosstermBackend::new(io::stderr()))?;
        let (sender, wishes) = mpsc::channel(16);
        let is_over = Arc::new(AtomicBool::new(false));
        enable_raw_mode()?;
        // From here on, dropping this value restores the terminal.
        let shown = Self {
            terminal,
            palette,
            wishes,
            is_over: is_over.clone(),
        };
        execute!(io::stderr(), EnterAlternateScreen)?;
        screen::hold();
        std::thread::Builder::new()
            .name("keys".to_owned())
            .spawn(move || read_keys(&sender, &is_over))?;
        Ok(shown)
    }

    fn draw(&mut self, live: &Live) -> io::Result<()> {
        let palette = self.palette;
        self.terminal
            .draw(|frame| draw(frame, live, palette))
            .map(|_| ())
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // A vanished terminal needs no restoring.
        let _ = execute!(io::stderr(), LeaveAlternateScreen);
        let _ = self.terminal.show_cursor();
        let _ = disable_raw_mode();
        screen::release();
    }
}

fn read_keys(wishes: &mpsc::Sender<Wish>, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        let event = match event::poll(KEY_WAIT) {
            Ok(true) => event::read(),
            Ok(false) => continue,
            Err(error) => Err(error),
        };
        // Without keys, no user could end the command, so the view ends the command.
        let Ok(event) = event else { return };
        if let Some(wish) = wish(&event)
            && wishes.blocking_send(wish).is_err()
        {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Alpn;
    use crate::serve::limits::Limits;
    use crate::testing::{Anything, Served, soon};

    /// A connection with two paths.
    async fn connected() -> Connection {
        let served = Served::start(Anything::new(1), Limits::default(), Alpn::H3);
        let locals = [[127, 0, 0, 1], [127, 0, 0, 2]].map(Into::into);
        let connected = served.connect_from(&locals, 1000).await;
        let (_, connection) = connected.unwrap();
        soon(connection.handshake_confirmed()).await.unwrap();
        soon(connection.wait_for_paths(2)).await.unwrap();
        connection
    }

    #[tokio::test]
    async fn keys_act_on_the_path_that_is_selected() {
        let connections = [(3, connected().await), (4, connected().await)];
        let mut live = Live::new("x".to_owned(), Direction::Both, clock::now());
        let all = seen(&connections);
        let told: Vec<_> = all
            .iter()
            .map(|it| (it.connection, it.stats.id.0))
            .collect();
        assert_eq!(told, [(3, 0), (3, 1), (4, 0), (4, 1)]);
        assert!(all.iter().all(|it| !it.is_backup));
        // The view has no row yet, so the wish has no effect.
        act(&mut live, Wish::Close, &connections);
        assert_eq!(live.told, "");
        live.look(clock::now(), all);
        let mut press = |wish| {
            act(&mut live, wish, &connections);
            (live.selected(), live.told.clone())
        };
        let says = |at, told: &str| (Some(at), told.to_owned());
        assert_eq!(press(Wish::Select(3)), says(3, ""));
        let backup = "path 1 is a backup from now on";
        assert_eq!(press(Wish::Backup), says(3, backup));
        let backups = || seen(&connections).into_iter().map(|it| it.is_backup);
        assert_eq!(backups().collect::<Vec<_>>(), [false, false, false, true]);
        assert_eq!(press(Wish::Redraw), says(3, backup));
        assert_eq!(press(Wish::Backup), says(3, "path 1 is used again"));
        assert!(backups().all(|is_backup| !is_backup));
        assert_eq!(press(Wish::Select(-1)), says(2, ""));
        assert_eq!(press(Wish::Close), says(2, "path 0 is closed"));
        let (_, last) = press(Wish::Select(1));
        assert_eq!(last, "");
        let (_, last) = press(Wish::Close);
        assert!(last.starts_with("path 1: "), "the last one stays: {last}");
        assert_eq!(connections[0].1.path_stats().len(), 2, "another connection");
    }

    /// The other side may also make a path a backup.
    #[tokio::test]
    async fn a_path_stands_by_if_either_side_says_so() {
        let connection = connected().await;
        let backups = || [0, 1].map(|id| is_backup(&connection, PathId(id)));
        assert_eq!(backups(), [false, false]);
        let path = connection.path(PathId(1)).unwrap();
        path.set_status(PathStatus::Backup).unwrap();
        assert_eq!(backups(), [false, true]);
        assert!(!is_backup(&connection, PathId(7)), "there is none");
    }

    /// Without a terminal.
    #[tokio::test]
    async fn without_a_view_the_command_runs_alone() {
        let arguments = LiveArgs { live: true };
        assert!(!arguments.is_shown() && arguments.view("x", Direction::Both).is_none());
        let failed = beside(None, Vec::new, async { Err(Failure::other("over")) }).await;
        assert_eq!(failed, Err(Failure::other("over")));
    }

    #[test]
    fn keys_have_their_actions() {
        let key = |code, modifiers| wish(&Event::Key(KeyEvent::new(code, modifiers)));
        for (code, expected) in [
            (KeyCode::Up, Some(Wish::Select(-1))),
            (KeyCode::Char('j'), Some(Wish::Select(1))),
            (KeyCode::Char('b'), Some(Wish::Backup)),
            (KeyCode::Char('c'), Some(Wish::Close)),
            (KeyCode::Esc, Some(Wish::Quit)),
            (KeyCode::Char('x'), None),
        ] {
            assert_eq!(key(code, KeyModifiers::NONE), expected, "{code:?}");
        }
        // In raw mode, Ctrl-C sends no signal.
        assert_eq!(
            key(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(Wish::Quit)
        );
        assert_eq!(wish(&Event::Resize(10, 10)), Some(Wish::Redraw));
    }
}
