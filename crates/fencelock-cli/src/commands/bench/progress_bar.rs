//! The progress of a measurement on a terminal.

use crate::report::Reporter;
use crate::stderr::draw_target;
use fencelock_load::Progress;
use indicatif::{HumanCount, ProgressBar, ProgressStyle};

/// A progress bar on a terminal, hidden elsewhere. Dropping clears it.
pub(super) struct MeasureProgress(Option<ProgressBar>);

impl MeasureProgress {
    pub(super) fn new(report: Reporter) -> Self {
        let visible = report.draws_progress();
        Self(visible.then(bar))
    }

    pub(super) fn update(&self, progress: Progress) {
        let Some(bar) = &self.0 else { return };
        bar.set_length(crate::json::millis(progress.whole));
        bar.set_position(crate::json::millis(progress.elapsed.min(progress.whole)));
        if let Some(per_second) = (u128::from(progress.grants) * 1000).checked_div(progress.reported.as_millis()) {
            let per_second = u64::try_from(per_second).unwrap_or(u64::MAX);
            bar.set_message(format!("{} grants, {} per second", HumanCount(progress.grants), HumanCount(per_second)));
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(None, draw_target());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {bar:30} {percent:>3} %  {wide_msg}") {
        bar.set_style(style.progress_chars("█▉▊▋▌▍▎▏ "));
    }
    bar
}

impl Drop for MeasureProgress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
