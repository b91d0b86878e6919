//! Programs of the system that change its network.

use std::io::ErrorKind;
use std::process::{Command, Stdio};

use crate::failure::Failure;

/// Runs a program, and gives back what it says.
pub(crate) fn output(program: &str, words: &[String]) -> Result<String, Failure> {
    let output = (Command::new(program).args(words))
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match (error.kind(), program) {
            (ErrorKind::NotFound, "ip") => {
                Failure::other("--tun needs the program `ip`: install iproute2")
            }
            _ => Failure::other(format_args!("cannot run {program}: {error}")),
        })?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        let command = words.join(" ");
        return Err(Failure::other(format_args!(
            "`{program} {command}` failed: {}",
            told.trim()
        )));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program.
pub(crate) fn run(program: &str, words: &[String]) -> Result<(), Failure> {
    output(program, words).map(drop)
}
