//! Writes the changes into a source file, each behind a switch.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::points::{Form, Point};

/// What every crate root gets: the switch, which reads once which change is wanted, and notes which
/// ones are reached if that is asked for. It allocates nothing later: tests count what is left.
pub(crate) const SWITCH: &str = r#"
#[doc(hidden)]
pub(crate) fn __mutant(number: u32) -> bool {
    use std::io::Write as _;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    static WANTED: LazyLock<Option<u32>> =
        LazyLock::new(|| std::env::var("MUTANT").ok()?.parse().ok());
    static TRACE: LazyLock<Option<std::fs::File>> = LazyLock::new(|| {
        let path = std::env::var_os("MUTANT_TRACE")?;
        std::fs::OpenOptions::new().create(true).append(true).open(path).ok()
    });
    static NOTED: [AtomicU64; 1 << 12] = [const { AtomicU64::new(0) }; 1 << 12];
    if let Some(mut trace) = TRACE.as_ref() {
        let bit = 1 << (number % 64);
        let note = |word: &AtomicU64| word.fetch_or(bit, Ordering::Relaxed) & bit == 0;
        if NOTED.get(number as usize / 64).is_none_or(note) {
            let _ = trace.write_all(&number.to_le_bytes());
        }
    }
    *WANTED == Some(number)
}
"#;

/// A point and the number of each of its changes, `None` for those that are not wanted.
pub(crate) struct Numbered<'a> {
    pub(crate) point: &'a Point,
    pub(crate) numbers: Vec<Option<u32>>,
}

/// A changed file, and where in it each change stands.
#[derive(Default)]
pub(crate) struct Rendered {
    pub(crate) text: String,
    pub(crate) places: Vec<(Range<usize>, u32)>,
}

/// Writes the points that have numbers, without the changes in `broken`.
pub(crate) fn render(text: &str, points: &[Numbered<'_>], broken: &BTreeSet<u32>) -> Rendered {
    let wanted = |point: &&Numbered<'_>| point.wanted(broken).next().is_some();
    let mut points: Vec<_> = points.iter().filter(wanted).collect();
    points.sort_by_key(|it| (it.point.bytes.start, std::cmp::Reverse(it.point.bytes.end)));
    let mut rendered = Rendered::default();
    write(text, 0..text.len(), &points, broken, &mut rendered);
    rendered
}

impl Numbered<'_> {
    fn wanted(&self, broken: &BTreeSet<u32>) -> impl Iterator<Item = (u32, &str)> {
        let changes = self.point.changes.iter().zip(&self.numbers);
        changes.filter_map(|(change, number)| {
            let number = (*number).filter(|number| !broken.contains(number))?;
            Some((number, change.instead.as_str()))
        })
    }
}

/// Writes a part of the file with the points in it, which are in order.
fn write(
    text: &str,
    part: Range<usize>,
    points: &[&Numbered<'_>],
    broken: &BTreeSet<u32>,
    to: &mut Rendered,
) {
    let mut at = part.start;
    let mut rest = points;
    while let Some((first, others)) = rest.split_first() {
        let bytes = first.point.bytes.clone();
        to.text.push_str(&text[at..bytes.start]);
        let inside = others.partition_point(|it| it.point.bytes.start < bytes.end);
        let (inside, after) = others.split_at(inside);
        write_point(text, first, inside, broken, to);
        at = bytes.end;
        rest = after;
    }
    to.text.push_str(&text[at..part.end]);
}

fn write_point(
    text: &str,
    numbered: &Numbered<'_>,
    inside: &[&Numbered<'_>],
    broken: &BTreeSet<u32>,
    to: &mut Rendered,
) {
    let point = numbered.point;
    let start = to.text.len();
    match point.form {
        Form::Beginning => {
            for (number, instead) in numbered.wanted(broken) {
                let start = to.text.len();
                let switch = format!(" if crate::__mutant({number}) {{ {instead} }} ");
                to.text.push_str(&switch);
                to.places.push((start..to.text.len(), number));
            }
        }
        Form::Statement => {
            for (number, _) in numbered.wanted(broken) {
                to.text
                    .push_str(&format!("if !crate::__mutant({number}) {{ "));
                write(text, point.bytes.clone(), inside, broken, to);
                to.text.push_str(" }");
                to.places.push((start..to.text.len(), number));
            }
        }
        Form::Expression => {
            to.text.push('(');
            for (number, instead) in numbered.wanted(broken) {
                let start = to.text.len();
                let switch = format!("if crate::__mutant({number}) {{ {instead} }} else ");
                to.text.push_str(&switch);
                to.places.push((start..to.text.len(), number));
            }
            to.text.push_str("{ ");
            write(text, point.bytes.clone(), inside, broken, to);
            to.text.push_str(" })");
            // Whatever is wrong with the whole is the fault of the first.
            if let Some((number, _)) = numbered.wanted(broken).next() {
                to.places.push((start..to.text.len(), number));
            }
        }
    }
}
