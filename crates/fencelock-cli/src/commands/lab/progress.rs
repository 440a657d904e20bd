//! The progress of a workload or a search on a terminal.

use crate::report::Reporter;
use crate::stderr::draw_target;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Shorter work shows no progress line, to avoid flicker.
const SHOW_AFTER: Duration = Duration::from_secs(1);
/// Fast enough for a clock with seconds, slow enough for a slow line.
const TICK: Duration = Duration::from_millis(250);

/// A progress line on a terminal, for work that takes longer than a second. Dropping clears it.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    showing: JoinHandle<()>,
}

impl Progress {
    /// Shows progress over this many schemes. Must be called in async code.
    pub(super) fn of(schemes: usize, report: Reporter) -> Self {
        let length = u64::try_from(schemes).unwrap_or(u64::MAX);
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
        if let Ok(style) =
            ProgressStyle::with_template("{spinner} {pos} of {len} schemes, {elapsed_precise}  {wide_msg}")
        {
            bar.set_style(style);
        }
        let living = report.draws_progress();
        let shown = bar.clone();
        let showing = tokio::spawn(async move {
            if living {
                tokio::time::sleep(SHOW_AFTER).await;
                shown.set_draw_target(draw_target());
                shown.enable_steady_tick(TICK);
            }
        });
        Self { bar, showing }
    }

    /// A counter for another thread.
    pub(super) fn counter(&self) -> Counter {
        Counter(self.bar.clone())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.showing.abort();
        self.bar.finish_and_clear();
    }
}

/// Counts completed schemes.
#[derive(Debug, Clone)]
pub(super) struct Counter(ProgressBar);

impl Counter {
    /// Starts a scheme.
    pub(super) fn start(&self, scheme: &str) {
        self.0.set_message(scheme.to_owned());
    }

    /// Completes a scheme.
    pub(super) fn done(&self) {
        self.0.inc(1);
    }
}
