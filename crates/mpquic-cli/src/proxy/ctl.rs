//! `mpquic proxy ctl`: changes a running client.
//!
//! The command sends one line of words, those of its own command line, to the socket of the client
//! (`--status-socket`). The client answers with one line of JSON, a [`Reply`].

use std::path::PathBuf;

use clap::Args;

use crate::process::failure::{Failure, one_line};
use crate::process::screen;
use crate::proxy::change::{Change, Reply};
use crate::proxy::socket;
use crate::text::json;

/// Change the paths and policies of the proxy client that runs on this machine
///
/// Asks the client's Unix socket (--status-socket), as its user or root. A change holds for the
/// open connection and for later ones, until the client ends: the next start takes its options and
/// files again.
#[derive(Debug, Args)]
pub(crate) struct ProxyCtl {
    /// The socket of the client [default: proxy-client.sock in $RUNTIME_DIRECTORY or
    /// $XDG_RUNTIME_DIR, then in /run/mpquic and /run/mpquic-tun, where services have it]
    #[arg(long, value_name = "SOCKET")]
    socket: Option<PathBuf>,
    #[command(subcommand)]
    change: Change,
}

/// `mpquic proxy ctl`.
pub(crate) fn run(args: &ProxyCtl) -> Result<(), Failure> {
    match socket::command(args.socket.as_deref(), &args.change.line())? {
        Reply::Error(told) => Err(Failure::usage(told)),
        Reply::Done(told) => {
            screen::print(one_line(&told));
            Ok(())
        }
        Reply::Settings(settings) => {
            match args.change {
                Change::Show { json: true } => json::print(&settings),
                _ => screen::write(settings.table()),
            }
            Ok(())
        }
    }
}
