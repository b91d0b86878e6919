//! Messages to the user: printed at once, or after the end of the live view.

use std::io::{self, ErrorKind, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mpquic_core::PeerText;

/// Texts that wait for the end of the live view.
static HELD: Mutex<Option<Vec<Text>>> = Mutex::new(None);

/// True once the reader of the output has gone.
static CLOSED: AtomicBool = AtomicBool::new(false);

/// True once some output could not be printed.
static FAILED: AtomicBool = AtomicBool::new(false);

enum Text {
    Error(String),
    Output(String),
}

impl Text {
    fn print(self) {
        match self {
            // Standard error may be closed, too, and the tool has no other place for a message.
            Self::Error(text) => drop(io::stderr().write_all(text.as_bytes())),
            Self::Output(text) => match io::stdout().write_all(text.as_bytes()) {
                // A reader may stop before the end.
                Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                    CLOSED.store(true, Ordering::Relaxed);
                }
                Err(error) => {
                    if !FAILED.swap(true, Ordering::Relaxed) {
                        let told = format!("mpquic: cannot write to standard output: {error}\n");
                        Self::Error(told).print();
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
    show(Text::Error(format!("{}\n", shown(&line.to_string()))));
}

/// Removes characters that would move, hide or reorder other text on a terminal.
fn shown(text: &str) -> String {
    let lines = text.split('\n');
    let lines: Vec<_> = lines
        .map(|line| PeerText(line.as_bytes()).to_string())
        .collect();
    lines.join("\n")
}

/// Prints to standard output, with the end of the line.
pub(crate) fn print(line: impl std::fmt::Display) {
    show(Text::Output(format!("{}\n", shown(&line.to_string()))));
}

/// Prints text with line ends to standard output.
pub(crate) fn write(lines: impl std::fmt::Display) {
    show(Text::Output(shown(&lines.to_string())));
}

fn show(text: Text) {
    #[cfg(test)]
    let Some(text) = tests::keep(text) else {
        return;
    };
    match &mut *held() {
        Some(waiting) => waiting.push(text),
        None => text.print(),
    }
}

/// True once the reader of the output has gone. Endless commands should end then.
pub(crate) fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed)
}

/// True after output that could not be printed. The user has seen the reason.
pub(crate) fn has_failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

/// Holds back all later messages.
pub(crate) fn hold() {
    held().get_or_insert_default();
}

/// Prints the messages held back.
pub(crate) fn release() {
    for text in held().take().unwrap_or_default() {
        text.print();
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;

    use super::*;

    thread_local! {
        static HEARD: RefCell<Option<[String; 2]>> = const { RefCell::new(None) };
    }

    /// Collects the messages of this thread until dropped, instead of printing them.
    pub(crate) struct Heard(());

    impl Heard {
        pub(crate) fn begin() -> Self {
            HEARD.set(Some(Default::default()));
            Self(())
        }

        /// The output to standard output, and to standard error, since the last call.
        pub(crate) fn take(&self) -> [String; 2] {
            HEARD.replace(Some(Default::default())).unwrap_or_default()
        }
    }

    impl Drop for Heard {
        fn drop(&mut self) {
            HEARD.set(None);
        }
    }

    /// Collects the text for a test, or returns a text that no test collects.
    pub(super) fn keep(text: Text) -> Option<Text> {
        HEARD.with_borrow_mut(|heard| match heard {
            Some([output, errors]) => {
                match text {
                    Text::Output(text) => *output += &text,
                    Text::Error(text) => *errors += &text,
                }
                None
            }
            None => Some(text),
        })
    }

    #[test]
    fn lines_have_ends_and_their_own_stream() {
        let heard = Heard::begin();
        print("a");
        say(5);
        write("b\nc\n");
        assert_eq!(heard.take(), ["a\nb\nc\n", "5\n"]);
        assert_eq!(heard.take(), ["", ""]);
        // Messages lose characters that control a terminal.
        say("a\u{1b}]0;b\u{7}\u{9b}c\u{202e}\nd");
        assert_eq!(heard.take(), ["", "a ]0;b  c \nd\n"]);
        print("a\u{1b}[1mb");
        write("\u{85}c\n");
        assert_eq!(heard.take(), ["a [1mb\n c\n", ""]);
    }
}
