//! Options from a file, for commands with `--config FILE`. The keys of the file are the names of
//! options, so one list defines all options and their checks.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command, CommandFactory, Parser};
use toml::{Table, Value};

use crate::cli::Cli;
use crate::process::failure::{Cause, Failure};
use crate::process::screen;

/// The option with the name of the file.
const OPTION: &str = "config";

/// The command line of this process, with the options of its file. Ends the process after an error,
/// or after a request for help.
pub(crate) fn parse() -> Result<Cli, Failure> {
    let words: Vec<OsString> = std::env::args_os().collect();
    let (words, file) = complete(words)?;
    Cli::try_parse_from(words).map_err(|error| {
        if let (Some(file), true) = (file, error.use_stderr()) {
            let _ = error.print();
            screen::say(format_args!(
                "Some of the options are those of {}.",
                file.display()
            ));
            std::process::exit(error.exit_code());
        }
        error.exit()
    })
}

/// Reads the same command line again, with the current content of the file.
pub(crate) fn parse_again() -> Result<Cli, Failure> {
    let (words, _) = complete(std::env::args_os().collect())?;
    let text = |error: clap::Error| error.render().to_string();
    Cli::try_parse_from(words).map_err(|error| Failure::usage(text(error).trim_end()))
}

/// Adds the options of the file, except options on the command line. A later step finds errors of
/// the command line.
fn complete(mut words: Vec<OsString>) -> Result<(Vec<OsString>, Option<PathBuf>), Failure> {
    // Most command lines have no file, and need no second parse.
    let names_file = |word: &OsString| {
        word.to_str()
            .is_some_and(|word| word.starts_with("--config"))
    };
    if !words.iter().any(names_file) {
        return Ok((words, None));
    }
    let command = Cli::command().ignore_errors(true);
    let Ok(matches) = command.clone().try_get_matches_from(&words) else {
        return Ok((words, None));
    };
    let (mut command, mut matches, mut depth) = (&command, &matches, 1);
    while let Some((name, inner)) = matches.subcommand() {
        let Some(found) = command.find_subcommand(name) else {
            break;
        };
        (command, matches, depth) = (found, inner, depth + 1);
    }
    let file = matches.try_get_one::<PathBuf>(OPTION).ok().flatten();
    let Some(file) = file.cloned() else {
        return Ok((words, None));
    };
    // The names of commands come first, without options between them.
    words.splice(depth..depth, options(&file, command, matches)?);
    Ok((words, Some(file)))
}

/// The options of the file that the command line does not set.
fn options(file: &Path, command: &Command, matches: &ArgMatches) -> Result<Vec<OsString>, Failure> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Cause::File.failed(format_args!("cannot read {}: {error}", file.display()))
    })?;
    let table: Table = toml::from_str(&text).map_err(|error| about(file, error))?;
    let mut words = Vec::new();
    for (key, value) in &table {
        let named = |arg: &&Arg| {
            if arg.is_positional() {
                arg.get_id() == key
            } else {
                arg.get_long() == Some(key) && key != OPTION
            }
        };
        let arg = command.get_arguments().find(named);
        let arg = arg.ok_or_else(|| {
            about(
                file,
                format_args!(
                    "unknown key `{key}`; keys are the names of options, which --help lists"
                ),
            )
        })?;
        let said = matches.value_source(arg.get_id().as_str());
        if said != Some(ValueSource::CommandLine) {
            words.extend(add(arg, key, value).map_err(|wrong| about(file, wrong))?);
        }
    }
    Ok(words)
}

/// An option as on the command line.
fn add(arg: &Arg, key: &str, value: &Value) -> Result<Vec<OsString>, String> {
    match (value, !arg.get_action().takes_values()) {
        (Value::Boolean(true), true) => return Ok(vec![format!("--{key}").into()]),
        (Value::Boolean(false), true) => return Ok(Vec::new()),
        (_, true) => {
            return Err(format!(
                "`{key}` is of type {}, but must be true or false",
                value.type_str()
            ));
        }
        _ => {}
    }
    let values = match value {
        Value::Array(values) => values.iter().collect(),
        one => vec![one],
    };
    let word = |value: &Value| {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Float(number) => number.to_string(),
            _ => {
                return Err(format!(
                    "`{key}` is of type {}, but must have texts or numbers",
                    value.type_str()
                ));
            }
        };
        Ok(if arg.is_positional() {
            text.into()
        } else {
            format!("--{key}={text}").into()
        })
    };
    values.into_iter().map(word).collect()
}

fn about(file: &Path, wrong: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("--{OPTION} {}: {wrong}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words that the file adds to `mpquic proxy KIND --config FILE WORDS`.
    fn completed(text: &str, kind: &str, words: &[&str]) -> Result<Vec<String>, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("proxy.toml");
        std::fs::write(&file, text).unwrap();
        let path = file.to_str().unwrap();
        let begin = ["mpquic", "proxy", kind, "--config", path];
        let words = begin.iter().chain(words).map(OsString::from).collect();
        match complete(words) {
            Ok((words, named)) => {
                assert_eq!(named.as_deref(), Some(&*file));
                let words = words.iter().map(|word| word.to_str().unwrap().to_owned());
                let words: Vec<_> = words.skip(3).collect();
                let added = words.iter().position(|word| word == "--config").unwrap();
                Ok(words[..added].to_vec())
            }
            Err(failure) => Err(failure.message().replace(path, "FILE")),
        }
    }

    #[test]
    fn a_file_says_what_options_say() {
        let text =
            "open = true\nonly-allowed = false\nallow = [\"10.0.0.0/8\", \":22\"]\nmax-flows = 7\n";
        let expected = [
            "--allow=10.0.0.0/8",
            "--allow=:22",
            "--max-flows=7",
            "--open",
        ];
        let sorted = |words: Result<Vec<String>, String>| {
            let mut words = words.unwrap();
            words.sort();
            words
        };
        assert_eq!(sorted(completed(text, "server", &[])), expected);
        // The command line overrides the file.
        let words = ["--max-flows", "9", "--allow", ":1"];
        assert_eq!(sorted(completed(text, "server", &words)), ["--open"]);
        let text = "url = \"https://a\"\nsocks = 1080";
        let expected = ["--socks=1080", "https://a"];
        assert_eq!(sorted(completed(text, "client", &[])), expected);
        assert_eq!(
            sorted(completed(text, "client", &["https://b"])),
            ["--socks=1080"]
        );
    }

    #[test]
    fn config_errors_name_their_key() {
        let wrong = |text| completed(text, "server", &[]).unwrap_err();
        assert_eq!(
            wrong("max-flow = 7"),
            "--config FILE: unknown key `max-flow`; keys are the names of options, which --help lists"
        );
        // A file cannot name a further file, and `socks` is an option of the client only.
        assert!(wrong("config = \"x\"").contains("unknown key `config`"));
        assert!(wrong("socks = 1").contains("unknown key `socks`"));
        assert_eq!(
            wrong("open = 1"),
            "--config FILE: `open` is of type integer, but must be true or false"
        );
        assert_eq!(
            wrong("listen = { a = 1 }"),
            "--config FILE: `listen` is of type table, but must have texts or numbers"
        );
        assert!(wrong("open = ").starts_with("--config FILE: "));
        assert!(complete(["mpquic", "serve", "--config", "x"].map(Into::into).into()).is_ok());
    }
}
