//! The files of `tests/` make one program a crate, because each program links everything anew.

use std::fs;
use std::path::Path;

use super::source::folders_of_crates;

/// Without a declaration by its parent, a file would never be compiled, and its tests never run.
#[test]
fn every_test_file_is_part_of_its_crates_program() {
    let mut faults = Vec::new();
    for tests in folders_of_crates("tests") {
        let entries = fs::read_dir(&tests).expect("the folder of tests can be read");
        let entries: Vec<_> = entries
            .map(|entry| entry.expect("its entries, too").path())
            .collect();
        match entries.as_slice() {
            _ if tests.join("main.rs").is_file() => {
                undeclared(&tests, &tests.join("main.rs"), &mut faults);
            }
            [folder] if folder.is_dir() => undeclared(folder, &folder.join("main.rs"), &mut faults),
            [_] => {}
            _ => faults.push(format!("{} needs a main.rs", tests.display())),
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

/// Adds the files below a folder that the file above them does not declare.
fn undeclared(folder: &Path, parent: &Path, faults: &mut Vec<String>) {
    let declarations = fs::read_to_string(parent).expect("a source file can be read");
    for entry in fs::read_dir(folder).expect("a folder of tests can be read") {
        let path = entry.expect("its entries, too").path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let is_source = path.extension().is_some_and(|extension| extension == "rs");
        if path == *parent || !(is_source || path.is_dir()) {
            continue;
        }
        let declaration = format!("mod {name};");
        let declared = |line: &str| line.trim_start_matches("pub(crate) ") == declaration;
        if !declarations.lines().any(declared) {
            faults.push(format!("{} is not declared", path.display()));
        } else if path.is_dir() {
            undeclared(&path, &path.join("mod.rs"), faults);
        }
    }
}
