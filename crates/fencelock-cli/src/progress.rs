use crate::report::{Event, Reporter, place};
use crate::text::plain;
use fencelock::{Unknown, Waiting};
use indicatif::{FormattedDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Shows whom we wait for: a living line on a terminal, events for programs, nothing for logs. Dropping clears the line.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    report: Reporter,
    /// What was told last, so that only changes are events.
    last: Mutex<String>,
    /// The quarantine was told: it is one line, however long it lasts.
    told_quarantine: AtomicBool,
    /// So was a server that answers nothing, or takes no locks.
    told_trouble: AtomicBool,
}

/// Fast enough for a clock with seconds, slow enough for a slow line.
const TICK: Duration = Duration::from_millis(250);

impl Progress {
    pub(crate) fn new(report: Reporter) -> Self {
        let living = std::io::stderr().is_terminal() && !report.quiet && !report.json && !report.verbose;
        Self {
            bar: living.then(hidden_bar),
            report,
            last: Mutex::default(),
            told_quarantine: AtomicBool::new(false),
            told_trouble: AtomicBool::new(false),
        }
    }

    /// Takes what the lock's home answered.
    pub(crate) fn waiting(&self, waiting: &Waiting) {
        self.told_trouble.store(false, Ordering::Relaxed);
        let place = place(waiting);
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bar) = &self.bar {
            show(bar, waiting, &place);
        } else if *last != place && !self.report.quiet {
            self.report.tell(&Event::Waiting(waiting));
        }
        *last = place;
    }

    /// Takes why the lock's home did not answer. Waiting for the end of a quarantine would look like waiting for nothing.
    pub(crate) fn trouble(&self, cause: &Unknown) {
        if cause.is_quarantine() && !self.report.quiet && !self.told_quarantine.swap(true, Ordering::Relaxed) {
            let tell = || self.report.tell(&Event::Quarantined(cause));
            self.bar.as_ref().map_or_else(tell, |bar| bar.suspend(tell));
        } else if self.report.json && !self.report.quiet && !self.told_trouble.swap(true, Ordering::Relaxed) {
            // The library's warning tells it in text.
            self.report.tell(&Event::Trouble(cause));
        }
    }

    /// Leaves the terminal as it was.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// It appears with the first answer, so that a lock that is free leaves no flash on the screen.
fn hidden_bar() -> ProgressBar {
    ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden())
}

fn show(bar: &ProgressBar, waiting: &Waiting, place: &str) {
    if let Ok(style) = ProgressStyle::with_template("{spinner} waiting for {prefix} for {elapsed_precise}, {wide_msg}")
    {
        bar.set_style(style);
    }
    bar.set_prefix(plain(&waiting.key));
    let held = waiting.held_for.map(|span| format!(" for {}", FormattedDuration(span))).unwrap_or_default();
    bar.set_message(format!("{place}{held}"));
    if bar.is_hidden() {
        bar.set_draw_target(ProgressDrawTarget::stderr());
        bar.enable_steady_tick(TICK);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
