//! Reads the source of all crates, and finds the names in each file from other files of its crate.
//!
//! It knows the Rust of this workspace: `use` trees and paths, through re-exports to the declaring
//! file. Methods have no path, so their calls are no arrows.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Most re-exports from a path to its item; ends circles of imports.
const MAX_HOPS: usize = 16;

/// What ends a module's name.
const KEYWORDS: [&str; 9] = [
    "struct", "enum", "union", "trait", "type", "fn", "const", "static", "mod",
];

/// A source file, without comments, literals and what only tests compile.
pub(crate) struct File {
    /// From the folder of crates, such as `mpquic-core/src/lib.rs`.
    pub(crate) path: String,
    pub(crate) text: String,
    /// Names from the crate's root to this file; none for the root itself.
    module: Vec<String>,
    /// The items of its `use` lines, by their name here.
    imports: BTreeMap<String, Vec<String>>,
    /// Paths that end with `*`.
    globs: Vec<Vec<String>>,
    /// All paths, those of `use` lines among them.
    paths: BTreeSet<Vec<String>>,
}

impl File {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let inside = path.split("/src/").nth(1).unwrap_or(path);
        let inside = inside.trim_end_matches(".rs").trim_end_matches("/mod");
        let is_root = matches!(inside, "lib" | "main") || inside.starts_with("bin/");
        let names = inside.split('/').filter(|_| !is_root);
        let mut file = Self {
            path: path.to_owned(),
            text: strip(text),
            module: names.map(str::to_owned).collect(),
            imports: BTreeMap::new(),
            globs: Vec::new(),
            paths: BTreeSet::new(),
        };
        file.read_paths();
        file
    }

    /// Each word with the text before and after it.
    pub(crate) fn words(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let mut end = 0;
        std::iter::from_fn(move || {
            let start = end + self.text[end..].find(is_word)?;
            let length = self.text[start..].find(|c| !is_word(c));
            end = length.map_or(self.text.len(), |length| start + length);
            let (before, rest) = self.text.split_at(start);
            let (word, after) = rest.split_at(end - start);
            Some((before, word, after))
        })
    }

    /// True for the name of an item declared here.
    fn declares(&self, name: &str) -> bool {
        let mut before = "";
        self.words().any(|(_, word, _)| {
            let declared = word == name && KEYWORDS.contains(&before);
            before = word;
            declared
        })
    }

    fn read_paths(&mut self) {
        let text = std::mem::take(&mut self.text);
        let tokens = tokens(&text);
        let mut at = 0;
        while at < tokens.len() {
            let is_first = at == 0 || !matches!(tokens[at - 1], "::" | "." | "fn");
            if tokens[at] == "use" && tokens.get(at + 1) != Some(&"<") {
                at = self.read_use_tree(&tokens, at + 1, &[]);
            } else if is_first && tokens[at].starts_with(is_word) {
                let mut path = vec![tokens[at].to_owned()];
                while at + 2 < tokens.len()
                    && tokens[at + 1] == "::"
                    && tokens[at + 2].starts_with(is_word)
                {
                    at += 2;
                    path.push(tokens[at].to_owned());
                }
                self.paths.insert(path);
            }
            at += 1;
        }
        self.text = text;
    }

    /// Reads one tree of a `use` line; gives the place of the token that ends it.
    fn read_use_tree(&mut self, tokens: &[&str], mut at: usize, above: &[String]) -> usize {
        let mut path = above.to_vec();
        let mut name = None;
        while let Some(token) = tokens.get(at) {
            match *token {
                "{" => {
                    while !matches!(tokens.get(at), None | Some(&"}")) {
                        at = self.read_use_tree(tokens, at + 1, &path);
                    }
                    return at + 1;
                }
                "," | "}" | ";" => break,
                "*" => {
                    self.globs.push(path);
                    return at + 1;
                }
                "as" => {
                    at += 1;
                    name = tokens.get(at).map(|&name| name.to_owned());
                }
                "::" => {}
                "self" if !above.is_empty() => {}
                word => path.push(word.to_owned()),
            }
            at += 1;
        }
        if let Some(last) = path.last() {
            let name = name.unwrap_or_else(|| last.clone());
            self.imports.insert(name, path.clone());
            self.paths.insert(path);
        }
        at
    }
}

/// A name in a file from another file of its crate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrow {
    /// Places in [`Crate::files`].
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// The item.
    pub(crate) item: String,
}

pub(crate) struct Crate {
    pub(crate) name: String,
    pub(crate) files: Vec<File>,
    /// Places in `files`.
    modules: BTreeMap<Vec<String>, usize>,
}

/// What a path leads to.
enum Target {
    Module(usize),
    /// Declared in this file.
    Item(usize, String),
}

impl Crate {
    pub(crate) fn new(name: &str, files: Vec<File>) -> Self {
        let places = files.iter().enumerate();
        let modules = places.map(|(at, file)| (file.module.clone(), at));
        Self {
            name: name.to_owned(),
            modules: modules.collect(),
            files,
        }
    }

    /// Every crate of the workspace.
    pub(crate) fn all() -> Vec<Self> {
        let read = |src: PathBuf| {
            let folder = src.parent().expect("it is the folder of a crate");
            let name = folder.file_name().expect("which has a name");
            let name = name.to_string_lossy();
            let mut found = Vec::new();
            collect(&src, &mut found);
            found.sort();
            let files = found.iter().map(|path| {
                let inside = path.strip_prefix(folder).expect("found below it");
                let inside = inside.to_string_lossy().replace('\\', "/");
                let text = fs::read_to_string(path).expect("source can be read");
                File::new(&format!("{name}/{inside}"), &text)
            });
            Self::new(&name, without_tests(files.collect()))
        };
        let mut folders = folders_of_crates("src");
        folders.sort();
        assert!(!folders.is_empty());
        folders.into_iter().map(read).collect()
    }

    /// Names in each file from other files.
    pub(crate) fn arrows(&self) -> BTreeSet<Arrow> {
        let mut arrows = BTreeSet::new();
        for (from, file) in self.files.iter().enumerate() {
            for path in &file.paths {
                // The name of a module alone is no arrow.
                if let Some(Target::Item(to, item)) = self.resolve(from, path, 0)
                    && to != from
                {
                    arrows.insert(Arrow { from, to, item });
                }
            }
            for path in &file.globs {
                if let Some(Target::Module(to)) = self.resolve(from, path, 0) {
                    let item = "*".to_owned();
                    arrows.insert(Arrow { from, to, item });
                }
            }
        }
        arrows
    }

    /// The file that declares what a path of the file `from` names; `None` if it is no file of this
    /// crate.
    fn resolve(&self, from: usize, path: &[String], hops: usize) -> Option<Target> {
        if hops > MAX_HOPS {
            return None;
        }
        let file = &self.files[from];
        let mut module: Vec<String> = match path.first()?.as_str() {
            "crate" => Vec::new(),
            "self" | "super" => file.module.clone(),
            name => {
                let mut child = file.module.clone();
                child.push(name.to_owned());
                if self.modules.contains_key(&child) {
                    return self.descend(child, &path[1..], hops);
                }
                return self.imported(from, path, hops);
            }
        };
        let mut rest = path;
        while rest.first().is_some_and(|name| name == "super") {
            module.pop();
            rest = &rest[1..];
        }
        let skipped = usize::from(matches!(rest.first()?.as_str(), "crate" | "self"));
        self.descend(module, &rest[skipped..], hops)
    }

    /// Follows names down from a module.
    fn descend(&self, mut module: Vec<String>, names: &[String], hops: usize) -> Option<Target> {
        for (at, name) in names.iter().enumerate() {
            module.push(name.clone());
            if self.modules.contains_key(&module) {
                continue;
            }
            module.pop();
            let file = *self.modules.get(&module)?;
            if self.files[file].declares(name) {
                return Some(Target::Item(file, name.clone()));
            }
            return self.imported(file, &names[at..], hops);
        }
        self.modules.get(&module).copied().map(Target::Module)
    }

    /// Follows what a `use` line of a file brings in under the first name of a path.
    fn imported(&self, file: usize, path: &[String], hops: usize) -> Option<Target> {
        let name = path.first()?;
        if let Some(import) = self.files[file].imports.get(name) {
            // A `use` line that begins with the name it brings in means a crate.
            if import.first() == Some(name) && import.len() > 1 {
                return None;
            }
            let whole: Vec<_> = import.iter().chain(&path[1..]).cloned().collect();
            return self.resolve(file, &whole, hops + 1);
        }
        self.files[file].globs.iter().find_map(|glob| {
            let Some(Target::Module(at)) = self.resolve(file, glob, hops + 1) else {
                return None;
            };
            let declared = self.files[at].declares(name);
            declared.then(|| Target::Item(at, name.clone()))
        })
    }

    /// The file that declares a type a file names.
    pub(crate) fn declaring(&self, from: usize, name: &str) -> Option<usize> {
        if self.files[from].declares(name) {
            return Some(from);
        }
        match self.resolve(from, &[name.to_owned()], 0)? {
            Target::Item(file, _) => Some(file),
            Target::Module(_) => None,
        }
    }
}

/// The places from which arrows lead back to themselves.
pub(crate) fn in_circles(arrows: impl IntoIterator<Item = (usize, usize)>) -> BTreeSet<usize> {
    let mut targets: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (from, to) in arrows {
        targets.entry(from).or_default().insert(to);
    }
    let returns = |start: usize| {
        let mut open = vec![start];
        let mut seen = BTreeSet::new();
        while let Some(at) = open.pop() {
            for &next in targets.get(&at).into_iter().flatten() {
                if next == start {
                    return true;
                }
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        false
    };
    targets.keys().copied().filter(|&at| returns(at)).collect()
}

/// The folders of this name that crates have.
pub(crate) fn folders_of_crates(name: &str) -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = fs::read_dir(&crates).expect("the folder of crates can be read");
    let folders = entries.map(|entry| entry.expect("its entries, too").path().join(name));
    folders.filter(|folder| folder.is_dir()).collect()
}

/// Source files below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a source folder can be read") {
        let path = entry.expect("its entries, too").path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// Drops files that no `mod` line leads to, once the items that only tests compile are gone.
fn without_tests(mut files: Vec<File>) -> Vec<File> {
    files.sort_by_key(|file| file.module.len());
    let mut kept: Vec<File> = Vec::new();
    for file in files {
        let is_declared = file.module.split_last().is_none_or(|(name, above)| {
            let parent = kept.iter().find(|parent| parent.module == above);
            parent.is_some_and(|parent| parent.declares(name))
        });
        if is_declared {
            kept.push(file);
        }
    }
    kept.sort_by(|a, b| a.path.cmp(&b.path));
    kept
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Words, `::`, and every other character but spaces.
pub(crate) fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after.trim_start();
    }
    tokens
}

/// Drops comments, the insides of literals, and items that only tests compile.
pub(crate) fn strip(text: &str) -> String {
    let mut code = without_literals(text);
    let of_tests = |code: &str| {
        let begins = ["#[cfg(test)]", "#[cfg(all(test,"];
        begins.iter().filter_map(|begin| code.find(begin)).min()
    };
    while let Some(start) = of_tests(&code) {
        let item = &code[start..];
        let end = match (item.find(';'), item.find('{')) {
            (Some(semicolon), Some(brace)) if semicolon < brace => semicolon + 1,
            (Some(semicolon), None) => semicolon + 1,
            (_, Some(brace)) => brace + block(&item[brace..]),
            (None, None) => item.len(),
        };
        code.replace_range(start..start + end, "");
    }
    code
}

/// Length of the block in braces that a text starts with.
pub(crate) fn block(text: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

/// Drops comments and the insides of strings and characters; lines stay lines.
fn without_literals(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let before_is_word = code.ends_with(is_word);
        let hashes = rest[1.min(rest.len())..].bytes().take_while(|&b| b == b'#');
        let hashes = if c == 'r' { hashes.count() } else { 0 };
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if c == 'r' && !before_is_word && rest[1 + hashes..].starts_with('"') {
            let close = format!("\"{}", "#".repeat(hashes));
            let inside = 2 + hashes;
            let end = rest[inside..].find(&close);
            end.map_or(rest.len(), |end| inside + end + close.len())
        } else if c == '"' {
            1 + quoted(&rest[1..], '"')
        } else if c == '\'' && is_character(rest) {
            1 + quoted(&rest[1..], '\'')
        } else {
            code.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        let (dropped, after) = rest.split_at(length);
        code.extend(dropped.chars().filter(|&c| c == '\n'));
        code.push(' ');
        rest = after;
    }
    code
}

/// Length of the rest of a literal, with the quote that ends it.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if c == quote && !escaped {
            return at + 1;
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

/// True if the quote a text starts with begins a character, not a lifetime.
fn is_character(text: &str) -> bool {
    let mut inside = text.chars().skip(1);
    inside.next() == Some('\\') || inside.next() == Some('\'')
}
