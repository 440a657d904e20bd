use crate::report::{Event, LONG, Reporter};
use crate::text::plain;
use crate::wait_status::WaitStatus;
use fencelock::{Fault, Unknown};
use indicatif::{FormattedDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Shows whom we wait for: a line that changes on a terminal; elsewhere a line when the wait begins, one when it is over,
/// and events for programs. Dropping clears the line of the terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    key: String,
    bar: Option<ProgressBar>,
    report: Reporter,
    begun: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// What was said last about the holder and the line, so that only changes are events.
    place: String,
    /// That there is a wait was said where logs are written.
    said: bool,
    /// The quarantine was told: it is one line, however long it lasts.
    quarantine: bool,
    /// What kept servers from answering when that was said last, and when that was.
    trouble: Option<(Vec<Fault>, Instant)>,
}

/// Fast enough for a clock with seconds, slow enough for a slow line.
const TICK: Duration = Duration::from_millis(250);
/// A server on its way up changes its excuses, and one that flaps repeats them: no more than one line in this time.
const TROUBLE_PAUSE: Duration = Duration::from_secs(5);

impl Progress {
    pub(crate) fn new(key: &str, report: Reporter) -> Self {
        let living = std::io::stderr().is_terminal() && !report.quiet && !report.json && !report.verbose;
        let bar = living.then(hidden_bar);
        Self { key: plain(key), bar, report, begun: Instant::now(), state: Mutex::default() }
    }

    /// Since it was made.
    pub(crate) fn waited(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Somebody has the key.
    pub(crate) fn waiting(&self, status: &WaitStatus) {
        let place = status.place();
        let mut state = self.state();
        if let Some(bar) = &self.bar {
            let held = status.held_for.map(|span| format!(" for {}", FormattedDuration(span))).unwrap_or_default();
            self.show(bar, format!("{place}{held}"));
        } else if state.place != place {
            let first = state.place.is_empty();
            self.report.tell(&Event::Waiting { status, first });
            state.said = true;
        }
        state.place = place;
    }

    /// Nobody could tell who has the key. The end of that is waited for, which would look like waiting for nothing.
    pub(crate) fn trouble(&self, cause: &Unknown) {
        let mut state = self.state();
        if cause.is_quarantine() {
            if !std::mem::replace(&mut state.quarantine, true) {
                let tell = || self.report.tell(&Event::Quarantined(cause));
                self.bar.as_ref().map_or_else(tell, |bar| bar.suspend(tell));
            }
            return;
        }
        if let Some(bar) = &self.bar {
            self.show(bar, plain(cause));
            return;
        }
        let faults: Vec<_> = cause.nodes().iter().map(|node| node.fault).collect();
        let repeated = state.trouble.as_ref().is_some_and(|(said, at)| *said == faults || at.elapsed() < TROUBLE_PAUSE);
        if !repeated {
            self.report.tell(&Event::Trouble(cause));
            state.trouble = Some((faults, Instant::now()));
            state.said = true;
        }
    }

    /// What was waited for has come. `what` it is, for people.
    pub(crate) fn done(&self, what: &str) {
        self.clear();
        if self.state().said && self.waited() >= LONG {
            self.report.tell(&Event::Waited { key: &self.key, what, waited: self.waited() });
        }
    }

    /// Leaves the terminal as it was.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// The line appears with the first answer, so that a lock that is free leaves no flash on the screen.
    fn show(&self, bar: &ProgressBar, message: String) {
        let template = "{spinner} waiting for {prefix} for {elapsed_precise}, {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(self.key.clone());
        bar.set_message(message);
        if bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.enable_steady_tick(TICK);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn hidden_bar() -> ProgressBar {
    ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden())
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
