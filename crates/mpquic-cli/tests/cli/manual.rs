//! `mpquic man` and `mpquic completions`.

use std::fs;
use std::process::Command;

use crate::{assert_exit, mpquic, names, run, stderr, stdout};

#[test]
fn every_command_has_a_man_page() {
    let target = tempfile::tempdir().unwrap();
    let directory = target.path().join("man1");
    let output = run(&["man", directory.to_str().unwrap()]);
    assert_exit(&output, 0);
    let pages = names(&directory);
    for (name, option) in [
        ("mpquic.1", "completions"),
        ("mpquic-get.1", "\\-\\-sha256"),
        ("mpquic-put.1", "\\-\\-rate"),
        ("mpquic-serve.1", "\\-\\-allow\\-put"),
        ("mpquic-perf.1", "\\-\\-datagram\\-rate"),
        ("mpquic-paths.1", "\\-\\-watch"),
        ("mpquic-record.1", "\\-\\-time"),
        ("mpquic-advise.1", "\\-\\-controllers"),
        ("mpquic-lab-run.1", "\\-\\-schedulers"),
    ] {
        assert!(pages.iter().any(|page| page == name), "{pages:?}");
        let page = fs::read_to_string(directory.join(name)).unwrap();
        assert!(page.contains(option), "{name}: {page}");
        // What only tests use stays hidden.
        assert!(!page.contains("drill"), "{name}");
    }
    // Of an option with a value, the synopsis shows the value.
    let page = fs::read_to_string(directory.join("mpquic-put.1")).unwrap();
    let synopsis = page
        .split(".SH")
        .find(|section| section.contains("SYNOPSIS"));
    let synopsis = synopsis.unwrap().replace('\\', "");
    for form in [
        "[--rate RATE]",
        "[--local ADDR|IFACE]...",
        "[--recursive]",
        " URL FILE...",
    ] {
        assert!(synopsis.contains(form), "{form}: {synopsis}");
    }
    let file = target.path().join("file");
    fs::write(&file, "").unwrap();
    let output = run(&["man", file.to_str().unwrap()]);
    assert_exit(&output, 3);
    assert!(stderr(&output).contains("cannot write to"), "{output:?}");
}

/// As with `mpquic schedulers | head -1`.
#[test]
fn a_list_need_not_be_read_to_its_end() {
    for arguments in [
        &["schedulers"][..],
        &["controllers", "--json"],
        &["paths", "--json"],
        &["paths", "--json", "--watch=1"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = mpquic(arguments).stdout(writer).output().unwrap();
        assert_exit(&output, 0);
        assert_eq!(stderr(&output), "");
    }
}

#[test]
fn shells_complete_command_lines() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = run(&["completions", shell]);
        assert_exit(&output, 0);
        assert!(stdout(&output).contains("sha256"), "{shell}");
    }
    let output = run(&["completions", "tcsh"]);
    assert_exit(&output, 2);
    assert!(
        stderr(&output).contains("possible values: bash"),
        "{output:?}"
    );

    // What bash makes of it.
    let target = tempfile::tempdir().unwrap();
    let script = target.path().join("mpquic");
    fs::write(&script, stdout(&run(&["completions", "bash"]))).unwrap();
    let complete = "source \"$0\"; COMP_WORDS=(mpquic get --sha); COMP_CWORD=2; \
                    _mpquic mpquic --sha get; echo \"${COMPREPLY[*]}\"";
    let Ok(output) = Command::new("bash")
        .args(["-c", complete])
        .arg(&script)
        .output()
    else {
        eprintln!("there is no bash here");
        return;
    };
    assert_eq!(stdout(&output), "--sha256\n", "{output:?}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_list_that_cannot_be_written_is_a_failure() {
    let full = std::fs::File::options().write(true).open("/dev/full");
    let output = mpquic(&["schedulers"]).stdout(full.unwrap()).output();
    let output = output.unwrap();
    assert_exit(&output, 3);
    let told = stderr(&output);
    assert!(told.contains("cannot write to standard output"), "{told}");
    assert_eq!(told.lines().count(), 1);
}
