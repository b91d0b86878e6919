//! A server's successor: a new process of the installed program, which takes the server's place
//! while the open requests of the server go on.

use std::any::Any;
use std::env;
use std::io;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::process::failure::Failure;
use crate::process::service_manager;
use crate::process::signals::Upgrades;

/// The environment of a successor counts the processes before it.
const GENERATION: &str = "MPQUIC_GENERATION";

/// What a server needs to hand over to a successor.
pub(crate) struct Succession<'a> {
    /// Asks for a successor.
    pub(crate) upgrades: Upgrades,
    /// Finds out whether the successor could use the options and files. If not, the server goes on.
    pub(crate) check: Box<dyn Fn() -> Result<(), Failure> + 'a>,
    /// Dropped before the successor starts, which needs the same files and ports.
    pub(crate) beside: Option<Box<dyn Any>>,
    /// The longest time for open requests beside a successor.
    pub(crate) limit: Duration,
}

/// The number of processes whose place this one took; 0 if another program started it.
pub(crate) fn generation() -> u64 {
    generation_of(env::var(GENERATION).ok().as_deref())
}

fn generation_of(told: Option<&str>) -> u64 {
    told.and_then(|told| told.parse().ok()).unwrap_or(0)
}

/// Starts the program with the same arguments, and tells the service manager that it is the service
/// from now on.
pub(crate) fn start() -> io::Result<Child> {
    let mut words = env::args_os();
    let program = words.next().ok_or(io::ErrorKind::NotFound)?;
    let child = command(&program, words).spawn()?;
    service_manager::is_main(child.id());
    Ok(child)
}

fn command(program: &std::ffi::OsStr, words: impl Iterator<Item = std::ffi::OsString>) -> Command {
    let mut command = Command::new(program);
    let next = generation().saturating_add(1);
    command.args(words).env(GENERATION, next.to_string());
    command.stdin(Stdio::null());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generations_are_counted() {
        assert_eq!(generation_of(None), 0);
        assert_eq!(generation_of(Some("no number")), 0);
        assert_eq!(generation_of(Some("7")), 7);
        let words = ["proxy", "server"].map(std::ffi::OsString::from);
        let made = command("mpquic".as_ref(), words.clone().into_iter());
        assert!(made.get_args().eq(words.iter()));
        let expected = (generation() + 1).to_string();
        let told: Vec<_> = made.get_envs().collect();
        assert_eq!(told, [(GENERATION.as_ref(), Some(expected.as_ref()))]);
    }
}
