//! Runs programs of the system that change its network.

use std::io::ErrorKind;
use std::process::{Command, Stdio};

use crate::process::failure::Failure;

/// Runs a program, and returns its output.
pub(crate) fn output(program: &str, words: &[String]) -> Result<String, Failure> {
    let output = (Command::new(program).args(words))
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| match (error.kind(), program) {
            (ErrorKind::NotFound, "ip") => {
                Failure::other("--tun needs the program `ip`: install iproute2")
            }
            (ErrorKind::NotFound, "nft") => {
                Failure::other("--kill-switch needs the program `nft`: install nftables")
            }
            _ => Failure::other(format_args!("cannot run {program}: {error}")),
        })?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        // Only the first line, because a script has many lines.
        let command = words.join(" ");
        let command = command.lines().next().unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_programs_is_returned() {
        let shell = |script: &str| output("sh", &["-c", script].map(str::to_owned));
        let said = shell("cat; echo $LC_ALL; echo no >&2");
        assert_eq!(said.unwrap(), "C\n");
        let failure = shell("echo yes; echo no >&2; exit 3").unwrap_err();
        let script = "echo yes; echo no >&2; exit 3";
        assert_eq!(failure.message(), format!("`sh -c {script}` failed: no"));
        assert!(run("sh", &["-c", "exit 0"].map(str::to_owned)).is_ok());
        assert!(run("sh", &["-c", "exit 1"].map(str::to_owned)).is_err());
        let failure = shell("exit 1\nexit 2").unwrap_err();
        assert_eq!(failure.message(), "`sh -c exit 1` failed: ");
        let missing = output("mpquic-no-such-program", &[]).unwrap_err();
        let told = missing.message();
        assert!(
            told.starts_with("cannot run mpquic-no-such-program: "),
            "{told}"
        );
    }
}
