//! Man pages and completions, generated from the definition of the command line.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::{Args, Command};
use clap_complete::Shell;

use crate::process::failure::{Cause, Failure};

/// Print a script that completes command lines of mpquic in a shell
///
/// For bash: `mpquic completions bash > ~/.local/share/bash-completion/completions/mpquic`; for fish:
/// `mpquic completions fish > ~/.config/fish/completions/mpquic.fish`; for zsh, write it to a file
/// `_mpquic` in a directory of $fpath.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// Write a man page for each command to a directory
///
/// Example: `mpquic man ~/.local/share/man/man1`; then `man mpquic-get` shows the page of `mpquic
/// get`.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The directory; it is made if it does not exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Completions for a command and its subcommands.
pub(crate) fn completions(args: &Completions, mut command: Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "mpquic", &mut script);
    let written = io::stdout().write_all(&script);
    written
        .map_err(|error| Cause::File.failed(format_args!("cannot write standard output: {error}")))
}

/// Man pages for a command and its subcommands.
pub(crate) fn man(args: &Man, command: Command) -> Result<(), Failure> {
    let made = fs::create_dir_all(&args.dir);
    let written = made.and_then(|()| clap_mangen::generate_to(command, &args.dir));
    written.map_err(|error| {
        let name = args.dir.display();
        Cause::File.failed(format_args!("cannot write to {name}: {error}"))
    })
}
