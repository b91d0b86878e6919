//! The shape of the source: arrows between files, folders and crates, and the size of the types
//! that join others. A new room or crate needs a row in [`tables`].

mod calls;
mod connection;
mod source;
mod tables;
mod test_files;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use source::{Crate, File, in_circles};
use tables::{CALLS, CRATES, ROOMS, RUSTLS, Row};

/// Rooms by name, and the rooms each names.
type Named = BTreeMap<String, BTreeSet<String>>;

fn words(text: &str) -> BTreeSet<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// What is in one of two lists only: both should be equal.
fn differences(found: &BTreeSet<String>, listed: &[&str]) -> Vec<String> {
    let listed: BTreeSet<_> = listed.iter().map(|&name| name.to_owned()).collect();
    let new = found.difference(&listed).map(|name| format!("new: {name}"));
    let stale = listed.difference(found);
    let stale = stale.map(|name| format!("no longer so, drop it from the list: {name}"));
    new.chain(stale).collect()
}

/// The room of a folder a file is in.
fn room<'a>(folder: &str, path: &'a str) -> Option<&'a str> {
    let inside = path.strip_prefix(folder)?.strip_prefix('/')?;
    let first = inside.split('/').next()?;
    Some(first.strip_suffix(".rs").unwrap_or(first))
}

/// The rooms of a folder. The crate's root joins them all, and has no row.
fn rooms(krate: &Crate, folder: &str) -> Named {
    let mut rooms = Named::new();
    let room_of = |file: usize| room(folder, &krate.files[file].path).filter(|name| *name != "lib");
    for file in 0..krate.files.len() {
        if let Some(name) = room_of(file) {
            rooms.entry(name.to_owned()).or_default();
        }
    }
    for arrow in krate.arrows() {
        if let (Some(from), Some(to)) = (room_of(arrow.from), room_of(arrow.to))
            && from != to
        {
            rooms
                .entry(from.to_owned())
                .or_default()
                .insert(to.to_owned());
        }
    }
    rooms
}

/// The table to write, each room after the rooms it names, as far as such an order exists.
fn table(mut rooms: Named) -> String {
    let mut text = String::new();
    while !rooms.is_empty() {
        let is_ground =
            |names: &BTreeSet<String>| names.iter().all(|name| !rooms.contains_key(name));
        let ground = rooms.iter().find(|(_, names)| is_ground(names));
        let next = ground.or_else(|| rooms.iter().next());
        let next = next.map(|(name, _)| name.clone()).unwrap_or_default();
        let names: Vec<_> = rooms.remove(&next).into_iter().flatten().collect();
        text += &format!("(\"{next}\", \"{}\"),\n", names.join(" "));
    }
    text
}

/// Arrows that lead to a room with a later row.
fn upward(rows: &[Row]) -> impl Iterator<Item = (&'static str, String)> {
    let position = |room: &str| rows.iter().position(|row| row.0 == room);
    rows.iter()
        .enumerate()
        .flat_map(move |(at, (from, names))| {
            let up = words(names).into_iter();
            let up = up.filter(move |to| position(to).is_none_or(|to| to >= at));
            up.map(|to| (*from, to)).collect::<Vec<_>>()
        })
}

#[test]
fn rooms_name_those_of_their_tables() {
    let crates = Crate::all();
    let mut faults = Vec::new();
    for (folder, rows) in ROOMS {
        let name = folder.split('/').next().unwrap_or_default();
        let krate = crates.iter().find(|krate| krate.name == name);
        let found = rooms(krate.expect("the folder of a crate"), folder);
        let listed = rows
            .iter()
            .map(|(room, names)| ((*room).to_owned(), words(names)));
        assert!(
            found == listed.collect(),
            "the table of {folder} should be\n{}",
            table(found)
        );
        for (from, to) in upward(rows) {
            faults.push(format!("{folder}: {from} names {to}"));
        }
    }
    assert!(faults.is_empty(), "arrows that lead up: {faults:#?}");
}

/// The files of circles that arrows between a crate's files make.
fn circles(arrows_of: impl Fn(&Crate) -> Vec<Vec<(usize, usize)>>) -> Vec<String> {
    let mut found = Vec::new();
    for krate in Crate::all() {
        for arrows in arrows_of(&krate) {
            let files = in_circles(arrows).into_iter();
            found.extend(files.map(|file| krate.files[file].path.clone()));
        }
    }
    found
}

#[test]
fn no_files_name_each_other_in_a_circle() {
    let arrows = |krate: &Crate| {
        let arrows = krate.arrows().into_iter();
        vec![arrows.map(|arrow| (arrow.from, arrow.to)).collect()]
    };
    let faults = circles(arrows);
    assert!(faults.is_empty(), "files in circles: {faults:#?}");
}

#[test]
fn files_that_share_a_type_call_each_other_one_way() {
    let arrows = |krate: &Crate| {
        let types = calls::between_files(krate).into_values();
        types.map(|arrows| arrows.into_iter().collect()).collect()
    };
    let faults = circles(arrows);
    assert!(faults.is_empty(), "calls in circles: {faults:#?}");
}

/// How a datagram and a write walk through the connection: down, and never into a file again from
/// below. `ARCHITECTURE.md` draws it.
#[test]
fn files_of_the_connection_call_those_of_their_table() {
    let crates = Crate::all();
    let core = crates.iter().find(|krate| krate.name == "mpquic-core");
    let core = core.expect("the core is a crate");
    let name = |file: usize| {
        let path = &core.files[file].path;
        let name = room("mpquic-core/src/connection", path);
        name.expect("methods of the connection are there")
            .to_owned()
    };
    let mut found = Named::new();
    for (from, to) in calls::of_type(core, "Connection") {
        found.entry(name(from)).or_default().insert(name(to));
        found.entry(name(to)).or_default();
    }
    let listed = CALLS
        .iter()
        .map(|(file, called)| ((*file).to_owned(), words(called)));
    assert!(
        found == listed.collect(),
        "the table of calls should be\n{}",
        table(found)
    );
    let faults: Vec<_> = upward(CALLS).collect();
    assert!(faults.is_empty(), "calls that lead up: {faults:#?}");
}

#[test]
fn crates_name_those_of_their_table() {
    let crates = Crate::all();
    let names = crates.iter().map(|krate| krate.name.replace('-', "_"));
    let names: BTreeSet<_> = names.collect();
    let found = crates.iter().map(|krate| {
        let words = krate.files.iter().flat_map(File::words);
        let ours = words
            .map(|(_, word, _)| word)
            .filter(|word| names.contains(*word) && *word != krate.name.replace('-', "_"));
        (krate.name.clone(), ours.map(str::to_owned).collect())
    });
    let found: Named = found.collect();
    let listed = CRATES
        .iter()
        .map(|(krate, names)| ((*krate).to_owned(), words(names)));
    assert!(
        found == listed.collect(),
        "the table should be\n{}",
        table(found)
    );
    for krate in &crates {
        let listed = found[&krate.name].iter().map(|name| name.replace('_', "-"));
        let listed: BTreeSet<_> = listed.collect();
        assert_eq!(
            dependencies(&krate.name),
            listed,
            "{}'s Cargo.toml",
            krate.name
        );
    }
    let below = |at: usize| CRATES[..at].iter().map(|row| row.0.replace('-', "_"));
    for (at, (krate, names)) in CRATES.iter().enumerate() {
        let below: BTreeSet<_> = below(at).collect();
        assert!(
            words(names).is_subset(&below),
            "{krate} names one that comes later"
        );
    }
}

/// The crates of ours that a crate depends on, tests aside.
fn dependencies(krate: &str) -> BTreeSet<String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let manifest = fs::read_to_string(crates.join(krate).join("Cargo.toml"));
    let manifest = manifest.expect("a crate has a manifest");
    let section = manifest
        .lines()
        .skip_while(|line| *line != "[dependencies]");
    let section = section.skip(1).take_while(|line| !line.starts_with('['));
    let names = section.filter_map(|line| line.split([' ', '.', '=']).next());
    let ours = names.filter(|name| name.starts_with("mpquic-"));
    ours.map(str::to_owned).collect()
}

#[test]
fn only_the_core_and_quinns_door_name_quinn_proto_and_few_files_rustls() {
    let mut found = BTreeSet::new();
    for krate in Crate::all()
        .iter()
        .filter(|krate| krate.name != "mpquic-core")
    {
        for file in &krate.files {
            let is_path =
                |before: &str, after: &str| !before.ends_with("::") && after.starts_with("::");
            for (_, word, _) in file.words().filter(|(b, _, a)| is_path(b, a)) {
                let may_name_it = krate.name == "mpquic-quinn";
                assert!(
                    word != "quinn_proto" || may_name_it,
                    "{} names it",
                    file.path
                );
                if word == "rustls" {
                    found.insert(file.path.clone());
                }
            }
        }
    }
    let faults = differences(&found, RUSTLS);
    assert!(faults.is_empty(), "files that name rustls: {faults:#?}");
}

/// `unstable_wire` is for tests, benchmarks and fuzz targets. Other crates use the proper
/// interface.
#[test]
fn no_crate_is_built_on_the_unstable_door() {
    let crates = Crate::all();
    let others = crates.iter().filter(|krate| krate.name != "mpquic-core");
    for file in others.flat_map(|krate| &krate.files) {
        let names_it = file.words().any(|(_, word, _)| word == "unstable_wire");
        assert!(!names_it, "{} names it", file.path);
    }
}

/// A crate of these files.
fn crate_of(files: &[(&str, &str)]) -> Crate {
    let files = files.iter();
    let files = files.map(|(path, text)| File::new(&format!("example/src/{path}"), text));
    Crate::new("example", files.collect())
}

/// All arrows, as `from -> to: item`.
fn arrows(krate: &Crate) -> Vec<String> {
    let name = |at: usize| krate.files[at].path.trim_start_matches("example/src/");
    let arrows = krate.arrows().into_iter();
    arrows
        .map(|arrow| format!("{} -> {}: {}", name(arrow.from), name(arrow.to), arrow.item))
        .collect()
}

#[test]
fn paths_are_found_however_they_are_written() {
    let krate = crate_of(&[
        (
            "lib.rs",
            "mod ids; mod wire; mod space; pub use wire::buf::Buf; pub use bytes::Bytes;",
        ),
        ("ids.rs", "pub struct PathId; pub struct No;"),
        (
            "space/mod.rs",
            "mod local; mod sent; use self::sent::Sent; const LIMIT: u8 = 1;",
        ),
        ("space/local.rs", "pub fn f() {}"),
        (
            "space/sent.rs",
            "// crate::ids::No\n/* crate::ids::No */\n\
             use crate::{ids::{self as names, PathId}, wire::{frame::{Ack, self}, buf::*}, Bytes};\n\
             struct Sent<'a>(&'a str);\n\
             fn sent() { super::local::f(); crate::Buf::new(super::LIMIT, \"crate::ids::No\", '\"'); }\n\
             fn other(x: names::Other) -> [Wide; 2] { frame::decode::<u8>(r#\"crate::\"ids::No\"#) }\n\
             #[cfg(test)]\nuse crate::ids::No;\n\
             #[cfg(all(test, unix))]\nmod others {\n use crate::ids::No;\n}\n\
             #[cfg(test)]\nmod tests {\n use crate::ids::No;\n}\n",
        ),
        ("wire/mod.rs", "pub mod buf; pub mod frame;"),
        ("wire/buf.rs", "pub struct Buf; pub struct Wide;"),
        ("wire/frame.rs", "pub struct Ack; pub fn decode<T>() {}"),
    ]);
    let expected = [
        "lib.rs -> wire/buf.rs: Buf",
        "space/mod.rs -> space/sent.rs: Sent",
        "space/sent.rs -> ids.rs: PathId",
        "space/sent.rs -> space/mod.rs: LIMIT",
        "space/sent.rs -> space/local.rs: f",
        "space/sent.rs -> wire/buf.rs: *",
        "space/sent.rs -> wire/buf.rs: Buf",
        "space/sent.rs -> wire/buf.rs: Wide",
        "space/sent.rs -> wire/frame.rs: Ack",
        "space/sent.rs -> wire/frame.rs: decode",
    ];
    assert_eq!(arrows(&krate), expected);
    let circle = krate
        .arrows()
        .into_iter()
        .map(|arrow| (arrow.from, arrow.to));
    let circle = in_circles(circle)
        .into_iter()
        .map(|at| krate.files[at].path.as_str());
    let expected = ["example/src/space/mod.rs", "example/src/space/sent.rs"];
    assert_eq!(circle.collect::<Vec<_>>(), expected);
}

#[test]
fn tables_are_written_from_the_ground_up() {
    let krate = crate_of(&[
        ("lib.rs", "mod a; mod b; mod c;"),
        ("a/mod.rs", "use crate::c::C;"),
        ("a/inner.rs", "use crate::b::B;"),
        ("b.rs", "pub struct B(crate::c::C);"),
        ("c.rs", "pub struct C;"),
    ]);
    let rooms = rooms(&krate, "example/src");
    assert_eq!(
        table(rooms),
        "(\"c\", \"\"),\n(\"b\", \"c\"),\n(\"a\", \"b c\"),\n"
    );
    let rows = [("b", "c"), ("c", ""), ("a", "b c")];
    assert_eq!(upward(&rows).collect::<Vec<_>>(), [("b", "c".to_owned())]);
}

#[test]
fn lists_are_faulty_either_way() {
    let found = words("a b");
    assert!(differences(&found, &["a", "b"]).is_empty());
    assert_eq!(differences(&found, &["a"]).len(), 1);
    assert_eq!(differences(&found, &["a", "b", "c"]).len(), 1);
}
