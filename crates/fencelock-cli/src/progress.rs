use crate::locks::Locks;
use crate::report::{Event, LONG, Reporter};
use crate::stderr::draw_target;
use crate::text::plain;
use crate::wait_status::WaitStatus;
use fencelock::{Fault, Unknown};
use indicatif::{FormattedDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Shows the progress of a wait: a status line on a terminal; elsewhere a line at the start and at the end of the wait,
/// and events for programs. Dropping clears the line of the terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    keys: Vec<String>,
    bar: Option<ProgressBar>,
    report: Reporter,
    begun: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The key that is waited for, and its last reported holder and queue position, so that only changes are reported.
    position: (String, String),
    /// The wait was reported in the log.
    reported: bool,
    /// The quarantine was reported: once per wait.
    quarantine: bool,
    /// The last reported faults, and the time of the report.
    trouble: Option<(Vec<Fault>, Instant)>,
}

/// Fast enough for a clock with seconds, slow enough for a slow line.
const TICK: Duration = Duration::from_millis(250);
/// A starting server changes its errors, and a flapping one repeats them: report at most one line in this time.
const TROUBLE_PAUSE: Duration = Duration::from_secs(5);

impl Progress {
    /// For one key.
    pub(crate) fn new(key: &str, report: Reporter) -> Self {
        Self::of_keys(&[key.to_owned()], report)
    }

    /// For several keys, which are waited for together.
    pub(crate) fn of_keys(keys: &[String], report: Reporter) -> Self {
        let visible = report.draws_progress();
        let bar = visible.then(hidden_bar);
        Self { keys: keys.to_vec(), bar, report, begun: Instant::now(), state: Mutex::default() }
    }

    /// The time since the start.
    pub(crate) fn waited(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Reports the holder of the key.
    pub(crate) fn waiting(&self, status: &WaitStatus) {
        let position = status.position();
        let mut state = self.state();
        if let Some(bar) = &self.bar {
            let held = status.held_for.map(|span| format!(" for {}", FormattedDuration(span))).unwrap_or_default();
            Self::show(bar, &status.key, format!("{position}{held}"));
        } else if (&state.position.0, &state.position.1) != (&status.key, &position) {
            let first = state.position.0 != status.key;
            self.report.emit(&Event::Waiting { status, first });
            state.reported = true;
        }
        state.position = (status.key.clone(), position);
    }

    /// Reports that the holder of the key is unknown.
    pub(crate) fn trouble(&self, cause: &Unknown) {
        let mut state = self.state();
        if cause.is_quarantine() {
            if !std::mem::replace(&mut state.quarantine, true) {
                let emit = || self.report.emit(&Event::Quarantined(cause));
                self.bar.as_ref().map_or_else(emit, |bar| bar.suspend(emit));
            }
            return;
        }
        if let Some(bar) = &self.bar {
            Self::show(bar, &self.keys.join(", "), plain(cause));
            return;
        }
        let faults: Vec<_> = cause.nodes().iter().map(|node| node.fault).collect();
        let repeated =
            state.trouble.as_ref().is_some_and(|(reported, at)| *reported == faults || at.elapsed() < TROUBLE_PAUSE);
        if !repeated {
            self.report.emit(&Event::Trouble(cause));
            state.trouble = Some((faults, Instant::now()));
            state.reported = true;
        }
    }

    /// Ends the wait. `what` describes the result.
    pub(crate) fn done(&self, what: &str) {
        self.clear();
        if self.state().reported && self.waited() >= LONG {
            self.report.emit(&Event::Waited { locks: Locks::all(&self.keys), what, waited: self.waited() });
        }
    }

    /// Clears the status line.
    pub(crate) fn clear(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }

    /// The line appears with the first reply, so that a free lock causes no flicker.
    fn show(bar: &ProgressBar, key: &str, message: String) {
        let template = "{spinner} waiting for {prefix} for {elapsed_precise}, {wide_msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_prefix(plain(key));
        bar.set_message(message);
        if bar.is_hidden() {
            bar.set_draw_target(draw_target());
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
