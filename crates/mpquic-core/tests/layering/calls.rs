//! Calls between files that share the methods of one type: they have no path, and so are no arrows.

use std::collections::{BTreeMap, BTreeSet};

use super::source::{Crate, block, tokens};

/// The methods of one type in one file, and the methods of `self` they call.
#[derive(Default)]
struct Share {
    methods: BTreeSet<String>,
    calls: BTreeSet<String>,
}

/// A type: the place in [`Crate::files`] of the file that declares it, and its name.
type Type = (usize, String);

/// For each type with methods in several files, the calls between these files: places in
/// [`Crate::files`]. The file that declares the type joins the others and is left out.
pub(crate) fn between_files(krate: &Crate) -> BTreeMap<Type, BTreeSet<(usize, usize)>> {
    let without_declaring = |((declaring, name), mut shares): (Type, BTreeMap<usize, Share>)| {
        shares.remove(&declaring);
        ((declaring, name), arrows(&shares))
    };
    shares(krate).into_iter().map(without_declaring).collect()
}

/// The calls between files with methods of a type, including the file that declares it.
pub(crate) fn of_type(krate: &Crate, name: &str) -> BTreeSet<(usize, usize)> {
    let all = shares(krate).into_iter();
    let of_name = all.filter(|((_, found), _)| found == name);
    of_name.flat_map(|(_, shares)| arrows(&shares)).collect()
}

fn shares(krate: &Crate) -> BTreeMap<Type, BTreeMap<usize, Share>> {
    let mut types: BTreeMap<Type, BTreeMap<usize, Share>> = BTreeMap::new();
    for (at, file) in krate.files.iter().enumerate() {
        for (name, body) in blocks(&file.text) {
            if let Some(declaring) = krate.declaring(at, name) {
                let shares = types.entry((declaring, name.to_owned())).or_default();
                read(body, shares.entry(at).or_default());
            }
        }
    }
    types
}

fn arrows(shares: &BTreeMap<usize, Share>) -> BTreeSet<(usize, usize)> {
    let mut arrows = BTreeSet::new();
    for (from, caller) in shares {
        let called = shares.iter();
        let called = called.filter(|(_, share)| !caller.calls.is_disjoint(&share.methods));
        let called = called.map(|(to, _)| (*from, *to));
        arrows.extend(called.filter(|(from, to)| from != to));
    }
    arrows
}

/// Blocks with a type's own methods, by the type's name.
fn blocks(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let starts = text.match_indices("\nimpl").map(|(at, _)| at + 1);
    starts.filter_map(|start| {
        let brace = start + text[start..].find('{')?;
        let header = tokens(&text[start..brace]);
        let name = own_type(&header)?;
        Some((name, &text[brace..brace + block(&text[brace..])]))
    })
}

/// The type of `impl<..> Type<..>`; `None` for a trait's methods.
fn own_type<'a>(header: &[&'a str]) -> Option<&'a str> {
    let mut depth = 0;
    let mut outside = header.iter().skip(1).filter(|token| {
        let is_outside = depth == 0 && !matches!(**token, "<" | ">");
        depth += i32::from(**token == "<") - i32::from(**token == ">");
        is_outside
    });
    let names: Vec<_> = outside
        .by_ref()
        .take_while(|token| **token != "where")
        .collect();
    let is_of_trait = names.iter().any(|token| **token == "for");
    names.last().filter(|_| !is_of_trait).map(|name| **name)
}

fn read(body: &str, share: &mut Share) {
    let tokens = tokens(body);
    for window in tokens.windows(4) {
        match *window {
            ["fn", name, "(" | "<", _] => share.methods.insert(name.to_owned()),
            ["self", ".", name, "("] | ["Self", "::", name, "("] => {
                share.calls.insert(name.to_owned())
            }
            _ => false,
        };
    }
}

#[test]
fn calls_of_methods_elsewhere_are_found() {
    let krate = super::crate_of(&[
        (
            "lib.rs",
            "mod a; mod b; mod c; pub struct X;\nimpl X {\n fn new() { self.a(); }\n}",
        ),
        (
            "a.rs",
            "use super::X;\nimpl X {\n fn a(&self) { self.b(1); self.field.c(); self.new(); }\n}",
        ),
        (
            "b.rs",
            "use super::X;\nimpl X {\n fn b(&self, x: u8) { Self::c(); }\n}",
        ),
        (
            "c.rs",
            "use super::X;\nimpl<'a> X {\n fn c() { other.a(); }\n}\nimpl Drop for X {\n fn drop(&mut self) { self.a(); }\n}",
        ),
    ]);
    let expected = [((0, "X".to_owned()), BTreeSet::from([(1, 2), (2, 3)]))];
    assert_eq!(between_files(&krate), BTreeMap::from(expected));
    let with_declaring = BTreeSet::from([(0, 1), (1, 0), (1, 2), (2, 3)]);
    assert_eq!(of_type(&krate, "X"), with_declaring);
}
