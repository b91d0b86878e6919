//! `mpquic proxy status`: the command, which asks a socket and prints the answer.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use ratatui::crossterm::cursor::MoveTo;
use ratatui::crossterm::queue;
use ratatui::crossterm::terminal::{self, Clear, ClearType};

use crate::process::clock;
use crate::process::failure::Failure;
use crate::process::screen;
use crate::proxy::socket;
use crate::proxy::status::Before;
use crate::text::json;

/// Interval of `--live`.
const LOOK: Duration = Duration::from_secs(1);

/// Show the paths and flows of the proxy, or of the proxy client, on this machine
///
/// Asks the Unix socket of the proxy or its client (--status-socket), and prints a row for each
/// path and each flow. With --live, the command repeats this each second until SIGINT or SIGTERM
/// ends it (exit code 0), with the rates of the last second, and with the busiest flows first.
#[derive(Debug, Args)]
pub(crate) struct ProxyStatus {
    /// The socket to ask [default: proxy-client.sock, then proxy-server.sock, in $RUNTIME_DIRECTORY
    /// or $XDG_RUNTIME_DIR, then in /run/mpquic and /run/mpquic-tun, where services have them]
    socket: Option<PathBuf>,
    /// Print a JSON object with `role`, `connections` (with `paths` as in `mpquic get --json`),
    /// `flows` and, of a client, `interfaces` and with `--tun` `tunnel`
    #[arg(long)]
    json: bool,
    /// Refresh each second, with the rates of each path and flow in the last second
    #[arg(long, conflicts_with = "json")]
    pub(crate) live: bool,
}

/// Asks, and prints the answer. With `--live`, repeats until dropped, or until the socket gives no
/// answer.
pub(crate) async fn run(args: &ProxyStatus) -> Result<(), Failure> {
    let socket = args.socket.as_deref();
    let status = socket::ask(socket)?;
    if args.json {
        json::print(&status);
        return Ok(());
    }
    if !args.live {
        screen::write(status.table(None));
        return Ok(());
    }
    let mut before = Before {
        status,
        seconds: 0.0,
    };
    let mut asked = clock::now();
    loop {
        tokio::time::sleep(LOOK).await;
        let mut status = socket::ask(socket)?;
        let now = clock::now();
        before.seconds = now.duration_since(asked).as_secs_f64();
        asked = now;
        before.put_busiest_first(&mut status.flows);
        show(&status.table(Some(&before))).map_err(Failure::other)?;
        status.flows.sort_by_key(|flow| flow.number);
        before.status = status;
    }
}

/// Replaces the content of the terminal; without a terminal, prints lines.
fn show(table: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let Some((columns, rows)) = terminal::size().ok().filter(|_| out.is_terminal()) else {
        return writeln!(out, "{table}");
    };
    queue!(out, MoveTo(0, 0), Clear(ClearType::All))?;
    write!(out, "{}", cut(table, columns, rows))?;
    out.flush()
}

/// The part of a table that fits into the window. The last row keeps the cursor.
fn cut(table: &str, columns: u16, rows: u16) -> String {
    let lines = table.lines().take(usize::from(rows).saturating_sub(1));
    lines
        .flat_map(|line| line.chars().take(columns.into()).chain(['\n']))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_cut_to_the_terminal() {
        let table = "one two\nthree\nfour\n";
        assert_eq!(cut(table, 80, 24), table);
        assert_eq!(cut(table, 80, 4), table);
        assert_eq!(cut(table, 5, 3), "one t\nthree\n");
        assert_eq!(cut("ä×b\n", 2, 3), "ä×\n");
        assert_eq!(
            (cut(table, 80, 1), cut(table, 0, 2)),
            (String::new(), "\n".to_owned())
        );
        assert_eq!(cut(table, 80, 0), "");
    }
}
