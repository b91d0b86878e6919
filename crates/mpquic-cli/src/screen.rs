//! What is said to the user: at once, or once the live view no longer covers the terminal.

use std::io::{self, ErrorKind, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Texts that wait, while the view is shown.
static HELD: Mutex<Option<Vec<Text>>> = Mutex::new(None);

enum Text {
    Error(String),
    Output(String),
}

impl Text {
    fn print(self) {
        match self {
            Self::Error(text) => eprint!("{text}"),
            Self::Output(text) => match io::stdout().write_all(text.as_bytes()) {
                // Nobody need read it to the end.
                Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                    eprintln!("mpquic: cannot write to standard output: {error}");
                }
                _ => {}
            },
        }
    }
}

fn held() -> MutexGuard<'static, Option<Vec<Text>>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints to standard error, with the end of the line.
pub(crate) fn say(line: impl std::fmt::Display) {
    show(Text::Error(format!("{line}\n")));
}

/// Prints to standard output, with the end of the line.
pub(crate) fn print(line: impl std::fmt::Display) {
    show(Text::Output(format!("{line}\n")));
}

fn show(text: Text) {
    match &mut *held() {
        Some(waiting) => waiting.push(text),
        None => text.print(),
    }
}

/// What is said from now on waits.
pub(crate) fn hold() {
    held().get_or_insert_default();
}

/// Says what has waited.
pub(crate) fn release() {
    for text in held().take().unwrap_or_default() {
        text.print();
    }
}
