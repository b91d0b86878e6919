//! Man pages and completions, generated from the definition of the command line.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, Args, Command};
use clap_complete::Shell;

use crate::process::failure::{Cause, Failure};

/// Print a script that completes command lines of mpquic in a shell
///
/// For bash: `mpquic completions bash > ~/.local/share/bash-completion/completions/mpquic`; for
/// fish: `mpquic completions fish > ~/.config/fish/completions/mpquic.fish`; for zsh, write it to a
/// file `_mpquic` in a directory of $fpath.
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

/// Writes the pages of a built command.
fn pages(command: &Command, directory: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|it| !it.is_hide_set()) {
        pages(below, directory)?;
    }
    let command = command.clone().override_usage(synopsis(command));
    clap_mangen::Man::new(command).generate_to(directory)?;
    Ok(())
}

/// The form of a command, each option with its value.
fn synopsis(command: &Command) -> String {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let shown = command.get_arguments().filter(|it| !it.is_hide_set());
    let (places, options): (Vec<_>, Vec<_>) = shown.partition(|it| it.is_positional());
    let mut words = vec![name.to_owned()];
    words.extend(options.into_iter().chain(places).map(form));
    if command.has_subcommands() {
        words.push("COMMAND".to_owned());
    }
    words.join(" ")
}

/// An option or a value, in brackets if it may be left out.
fn form(argument: &Arg) -> String {
    let value = || match argument.get_value_names() {
        Some(names) => names.join(" "),
        None => argument.get_id().to_string().to_uppercase(),
    };
    let many = match argument.get_action() {
        ArgAction::Append | ArgAction::Count => "...",
        _ => "",
    };
    let name = match (argument.get_long(), argument.get_short()) {
        (Some(long), _) => Some(format!("--{long}")),
        (None, short) => short.map(|short| format!("-{short}")),
    };
    let numbers = argument.get_num_args().unwrap_or_default();
    let text = match name {
        None => value(),
        Some(name) if !numbers.takes_values() => name,
        Some(name) if numbers.min_values() == 0 => format!("{name}[={}]", value()),
        Some(name) => format!("{name} {}", value()),
    };
    if argument.is_required_set() {
        format!("{text}{many}")
    } else {
        format!("[{text}]{many}")
    }
}

/// Man pages for a command and its subcommands.
pub(crate) fn man(args: &Man, command: Command) -> Result<(), Failure> {
    let made = fs::create_dir_all(&args.dir);
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let written = made.and_then(|()| pages(&command, &args.dir));
    written.map_err(|error| {
        let name = args.dir.display();
        Cause::File.failed(format_args!("cannot write to {name}: {error}"))
    })
}
