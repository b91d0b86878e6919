//! Shows the progress of runs.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar on standard error for this number of runs.
pub(crate) fn progress_bar(runs: u64, quiet: bool) -> ProgressBar {
    let target = if quiet {
        ProgressDrawTarget::hidden()
    } else {
        ProgressDrawTarget::stderr()
    };
    let template = "{bar:30} {pos}/{len} runs  {elapsed} of about {duration}  {msg}";
    let style = ProgressStyle::with_template(template);
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::with_draw_target(Some(runs), target).with_style(style)
}
