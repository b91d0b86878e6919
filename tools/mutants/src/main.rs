//! `mutants`: changes a crate in one place after the other, and lists the changes that its tests do
//! not notice.
//!
//! All changes are built at once, each behind a switch that an environment variable sets, so that
//! the tests are compiled once and run many times.

mod options;
mod points;
mod render;
mod report;
#[cfg(test)]
mod tests;
mod tests_of;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use options::{Options, USAGE};
use points::{Constants, Point};
use render::{Numbered, SWITCH};
use report::{Fate, Outcome, Report};
use tests_of::{Binary, Built, End};

/// So many times the tests are built anew without what did not compile.
const BUILDS: usize = 12;

/// Tests run in this order, by how long they take: most changes are noticed by a quick one.
const TIERS: [Range<Duration>; 3] = [
    Duration::ZERO..Duration::from_millis(100),
    Duration::from_millis(100)..Duration::from_secs(1),
    Duration::from_secs(1)..Duration::MAX,
];

/// A source file of the crate, relative to it, with what can be changed in it.
struct Source {
    name: String,
    text: String,
    points: Vec<Point>,
}

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("{error}\n\n{USAGE}");
            return ExitCode::FAILURE;
        }
    };
    match run(&options) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<Report, String> {
    let directory = PathBuf::from("crates").join(&options.package);
    let sources = read(options, &options.workspace.join(&directory))?;
    let numbered = choose(options, &sources);
    if options.list {
        for source in &numbered {
            for (line, what, number) in source.changes() {
                println!("{number}: {}:{line}: {what}", source.source.name);
            }
        }
        return Ok(Report(Vec::new()));
    }
    copy(&options.workspace, &options.scratch).map_err(|error| format!("copying: {error}"))?;
    let root = options.scratch.join(&directory);
    // What is denied in the project is of no interest here.
    let manifest = root.join("Cargo.toml");
    let text = text_of(&manifest)?.replace("[lints]\nworkspace = true", "");
    write(&manifest, &text)?;
    let mut broken = BTreeSet::new();
    let mut binaries = build(options, &root, &numbered, &mut broken)?;
    let is_wanted = |name: &str| {
        options.tests.is_empty() || options.tests.iter().any(|wanted| name.contains(wanted))
    };
    binaries.retain(|binary| is_wanted(&binary.name));
    for binary in &mut binaries {
        binary.measure(&options.skip, &options.scratch.join("reached"))?;
        let (tests, takes, reaches) = binary.summary();
        let name = &binary.name;
        eprintln!("{name}: {tests} tests take {takes:.1?} and reach {reaches} changes");
    }
    Ok(judge(&numbered, &binaries, &broken, options.jobs))
}

/// Runs the tests with each change, with as many at a time as are asked for.
fn judge(
    numbered: &[Changed<'_>],
    binaries: &[Binary],
    broken: &BTreeSet<u32>,
    jobs: usize,
) -> Report {
    let changes = |source: &Changed<'_>| -> Vec<_> {
        let name = &source.source.name;
        let changes = source.changes();
        changes
            .map(|(line, what, number)| (name.clone(), line, what.to_owned(), number))
            .collect()
    };
    let changes: Vec<_> = numbered.iter().flat_map(changes).collect();
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(BTreeMap::new());
    let work = || {
        while let Some((file, line, what, number)) = changes.get(next.fetch_add(1, Relaxed)) {
            let fate = if broken.contains(number) {
                Fate::Invalid
            } else {
                fate_of(*number, binaries)
            };
            eprintln!("{number}: {file}:{line}: {what}: {fate:?}");
            let outcome = Outcome {
                file: file.clone(),
                line: *line,
                what: what.clone(),
                fate,
            };
            let mut outcomes = outcomes.lock().expect("nobody panics with the lock");
            outcomes.insert(*number, outcome);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    let outcomes = outcomes.into_inner().expect("nobody panicked");
    Report(outcomes.into_values().collect())
}

fn fate_of(number: u32, binaries: &[Binary]) -> Fate {
    let mut fate = Fate::NotReached;
    for takes in TIERS {
        for binary in binaries {
            fate = match binary.run_with(number, &takes) {
                None => continue,
                Some(End::Passed) => Fate::Survived,
                Some(End::Failed) => return Fate::Killed,
                Some(End::TimedOut) => return Fate::TimedOut,
            };
        }
    }
    fate
}

/// Builds the tests, leaving out what does not compile.
fn build(
    options: &Options,
    root: &Path,
    numbered: &[Changed<'_>],
    broken: &mut BTreeSet<u32>,
) -> Result<Vec<Binary>, String> {
    let mut packages = vec![options.package.clone()];
    packages.extend(options.also.iter().cloned());
    for _ in 0..BUILDS {
        let mut places = BTreeMap::new();
        for source in numbered {
            let mut rendered = render::render(&source.source.text, &source.points, broken);
            if ["src/lib.rs", "src/main.rs"].contains(&source.source.name.as_str()) {
                rendered.text.push_str(SWITCH);
            }
            let path = root.join(&source.source.name);
            write(&path, &rendered.text)?;
            places.insert(path, rendered.places);
        }
        let errors = match tests_of::build(&options.scratch, &options.target, &packages) {
            Built::Binaries(binaries) => return Ok(binaries),
            Built::Errors(errors) => errors,
        };
        let before = broken.len();
        let mut elsewhere = Vec::new();
        for error in &errors {
            let places = places.get(&error.file).map_or(&[][..], Vec::as_slice);
            for bytes in &error.bytes {
                let around = |place: &&(Range<usize>, u32)| {
                    place.0.start <= bytes.start && bytes.end <= place.0.end
                };
                let smallest = places.iter().filter(around).min_by_key(|it| it.0.len());
                // What is left out may be missed further down, as a `drop` before the value moves.
                let above = places.iter().filter(|it| it.0.end <= bytes.start);
                let above = above.filter(|it| !broken.contains(&it.1));
                match smallest {
                    Some(place) => drop(broken.insert(place.1)),
                    None => elsewhere.extend(above.max_by_key(|it| it.0.end).map(|it| it.1)),
                }
            }
        }
        if broken.len() == before {
            broken.extend(elsewhere);
        }
        if broken.len() == before {
            let texts: String = errors.iter().map(|error| error.text.as_str()).collect();
            return Err(format!("the changed crate does not compile\n{texts}"));
        }
        eprintln!("{} changes do not compile", broken.len());
    }
    Err("the changed crate still does not compile".into())
}

/// A source with numbers for the changes that were chosen.
struct Changed<'a> {
    source: &'a Source,
    points: Vec<Numbered<'a>>,
}

impl Changed<'_> {
    /// Line, description and number of each chosen change.
    fn changes(&self) -> impl Iterator<Item = (usize, &str, u32)> {
        self.points.iter().flat_map(|numbered| {
            let changes = numbered.point.changes.iter().zip(&numbered.numbers);
            changes.filter_map(|(change, number)| {
                Some((numbered.point.line, change.what.as_str(), (*number)?))
            })
        })
    }
}

/// Numbers the changes in the files that are asked for, or as many as are asked for.
fn choose<'a>(options: &Options, sources: &'a [Source]) -> Vec<Changed<'a>> {
    let is_wanted = |source: &Source| {
        options.files.is_empty() || options.files.iter().any(|part| source.name.contains(part))
    };
    let counts = sources.iter().map(|source| {
        if is_wanted(source) {
            source.points.iter().map(|point| point.changes.len()).sum()
        } else {
            0
        }
    });
    let all: usize = counts.sum();
    let chosen = match options.only.as_slice() {
        [] => sample(all, options.sample.unwrap_or(all), options.seed),
        only => only.iter().copied().collect(),
    };
    let mut next = 0..;
    let number = |next: &mut std::ops::RangeFrom<u32>| next.next().filter(|it| chosen.contains(it));
    let of_source = |source: &'a Source| {
        let points = source.points.iter().filter(|_| is_wanted(source));
        let points = points.map(|point| Numbered {
            point,
            numbers: point.changes.iter().map(|_| number(&mut next)).collect(),
        });
        Changed {
            source,
            points: points.collect(),
        }
    };
    sources.iter().map(of_source).collect()
}

/// So many of the numbers below `all`, at random.
fn sample(all: usize, wanted: usize, seed: u64) -> BTreeSet<u32> {
    let mut numbers: Vec<u32> = (0..all as u32).collect();
    let mut state = seed;
    for index in 0..wanted.min(all) {
        // SplitMix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let left = (all - index) as u64;
        numbers.swap(index, index + ((z ^ (z >> 31)) % left) as usize);
    }
    numbers.into_iter().take(wanted).collect()
}

/// Reads the sources of a crate; those that only tests have cannot be changed.
fn read(options: &Options, root: &Path) -> Result<Vec<Source>, String> {
    let mut paths = Vec::new();
    list(&root.join("src"), &mut paths).map_err(|error| format!("{}: {error}", options.package))?;
    let mut files = Vec::new();
    let mut constants = Constants::new();
    for path in paths {
        let text = text_of(&path)?;
        let file =
            syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        points::constants(&file, &mut constants);
        files.push((path, text, file));
    }
    let mut sources = Vec::new();
    let mut for_tests = Vec::new();
    for (path, text, file) in files {
        let found = points::find(&text, &file, &constants);
        let stem = path.file_stem().unwrap_or_default();
        let is_root = ["lib", "main", "mod"].iter().any(|root| stem == *root);
        let children = if is_root {
            path.parent().unwrap_or(root).to_path_buf()
        } else {
            path.with_extension("")
        };
        for_tests.extend(found.test_modules.iter().map(|name| children.join(name)));
        let name = path.strip_prefix(root).unwrap_or(&path);
        sources.push((
            path.clone(),
            Source {
                name: name.display().to_string(),
                text,
                points: found.points,
            },
        ));
    }
    let is_for_tests = |path: &Path| {
        let module = path.with_extension("");
        for_tests
            .iter()
            .any(|it| module == *it || path.starts_with(it))
    };
    for (path, source) in &mut sources {
        if is_for_tests(path) {
            source.points.clear();
        }
    }
    Ok(sources.into_iter().map(|(_, source)| source).collect())
}

/// Appends the Rust files in a directory, in order.
fn list(directory: &Path, to: &mut Vec<PathBuf>) -> std::io::Result<()> {
    let entries: Result<Vec<_>, _> = std::fs::read_dir(directory)?.collect();
    let mut paths: Vec<_> = entries?.iter().map(std::fs::DirEntry::path).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            list(&path, to)?;
        } else if path.extension().is_some_and(|it| it == "rs") {
            to.push(path);
        }
    }
    Ok(())
}

/// Copies what is needed to build, and writes only what differs, so that little is built again.
fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let (from, to) = (entry.path(), to.join(&name));
        if entry.file_type()?.is_dir() {
            if name != "target" && !name.to_string_lossy().starts_with('.') {
                copy(&from, &to)?;
            }
        } else if std::fs::read(&to).ok() != Some(std::fs::read(&from)?) {
            std::fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

fn text_of(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Writes a file unless it is the same.
fn write(path: &Path, text: &str) -> Result<(), String> {
    if text_of(path).is_ok_and(|before| before == text) {
        return Ok(());
    }
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
