//! How far a story or a search is, for whoever waits at a terminal.

use crate::report::Reporter;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::time::Duration;
use tokio::task::JoinHandle;

/// What is over by then leaves no flash on the screen.
const PATIENCE: Duration = Duration::from_secs(1);
/// Fast enough for a clock with seconds, slow enough for a slow line.
const TICK: Duration = Duration::from_millis(250);

/// A living line on a terminal, for work that takes longer than a second. Dropping clears it.
#[derive(Debug)]
pub(super) struct Progress {
    bar: ProgressBar,
    showing: JoinHandle<()>,
}

impl Progress {
    /// For so many schemes. Must be called from async code.
    pub(super) fn of(schemes: usize, report: Reporter) -> Self {
        let length = u64::try_from(schemes).unwrap_or(u64::MAX);
        let bar = ProgressBar::with_draw_target(Some(length), ProgressDrawTarget::hidden());
        if let Ok(style) =
            ProgressStyle::with_template("{spinner} {pos} of {len} schemes, {elapsed_precise}  {wide_msg}")
        {
            bar.set_style(style);
        }
        let living = std::io::stderr().is_terminal() && !report.quiet && !report.json && !report.verbose;
        let shown = bar.clone();
        let showing = tokio::spawn(async move {
            if living {
                tokio::time::sleep(PATIENCE).await;
                shown.set_draw_target(ProgressDrawTarget::stderr());
                shown.enable_steady_tick(TICK);
            }
        });
        Self { bar, showing }
    }

    /// What counts the schemes, for another thread.
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

/// Counts the schemes that are done.
#[derive(Debug, Clone)]
pub(super) struct Counter(ProgressBar);

impl Counter {
    /// This one is next.
    pub(super) fn begins(&self, scheme: &str) {
        self.0.set_message(scheme.to_owned());
    }

    /// One more is done.
    pub(super) fn is_done(&self) {
        self.0.inc(1);
    }
}
