//! The command line.

use std::path::PathBuf;

/// How to use the tool.
pub(crate) const USAGE: &str = "\
Changes a crate in one place after the other, and lists the changes that its tests do not notice.

Usage: mutants --crate NAME [OPTIONS]

  --crate NAME       The package to change
  --also NAME        Another package whose tests are to notice; may be repeated
  --file TEXT        Only files whose paths contain this; may be repeated
  --test TEXT        Only test binaries whose names contain this; may be repeated
  --skip TEXT        No tests whose names contain this, such as those that read the source; may be repeated
  --sample N         Only so many changes, chosen at random
  --seed N           The seed of this choice [default: 1]
  --only N           Only the change with this number in the list; may be repeated
  --list             Lists the changes and runs nothing
  --jobs N           So many changes are tried at the same time; tests that watch the clock may then fail [default: 1]
  --workspace DIR    The workspace [default: .]
  --scratch DIR      Where the changed copy goes [default: mutants in the system's temporary directory]
  --target-dir DIR   Where cargo builds it [default: target in the workspace]
";

/// What was asked for.
#[derive(Debug, Default)]
pub(crate) struct Options {
    pub(crate) package: String,
    pub(crate) also: Vec<String>,
    pub(crate) files: Vec<String>,
    pub(crate) tests: Vec<String>,
    pub(crate) skip: Vec<String>,
    pub(crate) sample: Option<usize>,
    pub(crate) seed: u64,
    pub(crate) only: Vec<u32>,
    pub(crate) list: bool,
    pub(crate) jobs: usize,
    pub(crate) workspace: PathBuf,
    pub(crate) scratch: PathBuf,
    pub(crate) target: PathBuf,
}

impl Options {
    /// Reads arguments.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            seed: 1,
            jobs: 1,
            workspace: ".".into(),
            scratch: std::env::temp_dir().join("mutants"),
            ..Self::default()
        };
        let mut target = None;
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
            let number = |text: String| {
                let number = text.parse::<u64>();
                number.map_err(|_| format!("{name}: {text} is no number"))
            };
            match name.as_str() {
                "--crate" => options.package = value()?,
                "--also" => options.also.push(value()?),
                "--file" => options.files.push(value()?),
                "--test" => options.tests.push(value()?),
                "--skip" => options.skip.push(value()?),
                "--sample" => options.sample = usize::try_from(number(value()?)?).ok(),
                "--seed" => options.seed = number(value()?)?,
                "--only" => options.only.extend(u32::try_from(number(value()?)?)),
                "--jobs" => match usize::try_from(number(value()?)?) {
                    Ok(jobs @ 1..) => options.jobs = jobs,
                    _ => return Err("--jobs: at least 1 at a time".into()),
                },
                "--list" => options.list = true,
                "--workspace" => options.workspace = value()?.into(),
                "--scratch" => options.scratch = value()?.into(),
                "--target-dir" => target = Some(value()?.into()),
                _ => return Err(format!("{name} is not known")),
            }
        }
        if options.package.is_empty() {
            return Err("--crate is missing".into());
        }
        let workspace = options.workspace.canonicalize();
        options.workspace = workspace.map_err(|error| format!("--workspace: {error}"))?;
        options.target = target.unwrap_or_else(|| options.workspace.join("target"));
        Ok(options)
    }
}
