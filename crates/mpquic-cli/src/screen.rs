//! What is said to the user: at once, or once the live view no longer covers the terminal.

use std::io::{self, ErrorKind, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Texts that wait, while the view is shown.
static HELD: Mutex<Option<Vec<Text>>> = Mutex::new(None);

/// Nobody reads what is printed any more.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// Something that should have been printed was not.
static FAILED: AtomicBool = AtomicBool::new(false);

enum Text {
    Error(String),
    Output(String),
}

impl Text {
    fn print(self) {
        match self {
            // Nobody need read that either, and there is nowhere else to say it.
            Self::Error(text) => drop(io::stderr().write_all(text.as_bytes())),
            Self::Output(text) => match io::stdout().write_all(text.as_bytes()) {
                // Nobody need read it to the end.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    CLOSED.store(true, Ordering::Relaxed);
                }
                Err(error) => {
                    if !FAILED.swap(true, Ordering::Relaxed) {
                        eprintln!("mpquic: cannot write to standard output: {error}");
                    }
                }
                Ok(()) => {}
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

/// Prints lines to standard output that have their ends.
pub(crate) fn write(lines: impl std::fmt::Display) {
    show(Text::Output(lines.to_string()));
}

fn show(text: Text) {
    match &mut *held() {
        Some(waiting) => waiting.push(text),
        None => text.print(),
    }
}

/// Nobody reads what is printed any more: who prints for ever should end.
pub(crate) fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// Something could not be printed, and the user was told why.
pub(crate) fn has_failed() -> bool {
    FAILED.load(Ordering::Relaxed)
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
