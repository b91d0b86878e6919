//! What came out: a table of files, and a list of what no test noticed.

use std::collections::BTreeMap;
use std::fmt;

/// What became of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// A test failed.
    Killed,
    /// A test took much longer than usual.
    TimedOut,
    /// All tests passed.
    Survived,
    /// No test comes to the place.
    NotReached,
    /// The changed program is not valid.
    Invalid,
}

/// A change, where it is, and what became of it.
pub(crate) struct Outcome {
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) what: String,
    pub(crate) fate: Fate,
}

/// How many changes of a file had each fate.
#[derive(Default)]
struct Row {
    killed: usize,
    timed_out: usize,
    survived: usize,
    not_reached: usize,
}

impl Row {
    fn count(&mut self, fate: Fate) {
        match fate {
            Fate::Killed => self.killed += 1,
            Fate::TimedOut => self.timed_out += 1,
            Fate::Survived => self.survived += 1,
            Fate::NotReached => self.not_reached += 1,
            Fate::Invalid => {}
        }
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        let Self {
            killed,
            timed_out,
            survived,
            not_reached,
        } = self;
        let all = killed + timed_out + survived + not_reached;
        let noticed = killed + timed_out;
        writeln!(
            f,
            "| {name} | {all} | {noticed} | {survived} | {not_reached} |"
        )
    }
}

/// All outcomes; prints as Markdown.
pub(crate) struct Report(pub(crate) Vec<Outcome>);

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: BTreeMap<&str, Row> = BTreeMap::new();
        let mut sum = Row::default();
        for outcome in &self.0 {
            rows.entry(&outcome.file).or_default().count(outcome.fate);
            sum.count(outcome.fate);
        }
        writeln!(f, "| File | Changes | Noticed | Survived | Not reached |")?;
        writeln!(f, "| --- | ---: | ---: | ---: | ---: |")?;
        for (file, row) in &rows {
            row.write(f, file)?;
        }
        sum.write(f, "all")?;
        let invalid = self.0.iter().filter(|it| it.fate == Fate::Invalid).count();
        writeln!(f, "\n{invalid} more do not compile.\n")?;
        for fate in [Fate::Survived, Fate::NotReached] {
            for outcome in self.0.iter().filter(|outcome| outcome.fate == fate) {
                let Outcome {
                    file, line, what, ..
                } = outcome;
                writeln!(f, "- {fate:?}: {file}:{line}: {what}")?;
            }
        }
        Ok(())
    }
}
