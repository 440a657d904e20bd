use crate::report;
use crate::report::{Event, LONG, Locks, Reporter, WaitStatus};
use crate::stderr::draw_target;
use crate::text::plain;
use fencelock::{Fault, Unknown};
use indicatif::{FormattedDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

/// Shows the progress of a wait: a status line on a terminal; elsewhere a line at the start and at the end of the wait,
/// and events for programs. Dropping clears the line of the terminal.
#[derive(Debug)]
pub(crate) struct Progress {
    keys: Vec<String>,
    screen: Screen,
    report: Reporter,
    begun: Instant,
    state: Mutex<State>,
}

/// Where it is shown.
#[derive(Debug)]
enum Screen {
    Lines,
    Bar(ProgressBar),
    /// By another process, which asks for the locks, and draws or not.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "no keeper"))]
    Elsewhere(UnboundedSender<Shown>, bool),
}

/// What another process shows.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Shown {
    Line(String),
    /// A key, and why it is waited for.
    Drawn(String, String),
}

#[derive(Debug, Default)]
struct State {
    /// The key that is waited for, and its last reported holder and queue position, so that only changes are reported.
    position: (String, String),
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "no keeper"))]
    last: Option<WaitStatus>,
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
        let screen = if report.draws_progress() { Screen::Bar(hidden_bar()) } else { Screen::Lines };
        Self { keys: keys.to_vec(), screen, report, begun: Instant::now(), state: Mutex::default() }
    }

    /// For the locks that another process asks for, and which shows it if it `draws`, and otherwise the lines of this reporter.
    #[cfg(target_os = "linux")]
    pub(crate) fn of_request(keys: &[String], report: Reporter, draws: bool, shown: UnboundedSender<Shown>) -> Self {
        let screen = Screen::Elsewhere(shown, draws);
        Self { keys: keys.to_vec(), screen, report, begun: Instant::now(), state: Mutex::default() }
    }

    /// The last holder that was reported.
    #[cfg(target_os = "linux")]
    pub(crate) fn last(&self) -> Option<WaitStatus> {
        self.state().last.clone()
    }

    /// The time since the start.
    pub(crate) fn waited(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Reports the holder of the key.
    pub(crate) fn waiting(&self, status: &WaitStatus) {
        let position = status.position();
        let mut state = self.state();
        if self.draws() {
            let held = status.held_for.map(|span| format!(" for {}", FormattedDuration(span))).unwrap_or_default();
            self.draw(&status.key, format!("{position}{held}"));
        } else if (&state.position.0, &state.position.1) != (&status.key, &position) {
            let first = state.position.0 != status.key;
            self.emit(&Event::Waiting { status, first });
            state.reported = true;
        }
        (state.position, state.last) = ((status.key.clone(), position), Some(status.clone()));
    }

    /// Reports that the holder of the key is unknown.
    pub(crate) fn trouble(&self, cause: &Unknown) {
        let mut state = self.state();
        if cause.is_quarantine() {
            if !std::mem::replace(&mut state.quarantine, true) {
                self.emit(&Event::Quarantined(cause));
            }
            return;
        }
        if self.draws() {
            return self.draw(&self.keys.join(", "), plain(cause));
        }
        let faults: Vec<_> = cause.nodes().iter().map(|node| node.fault).collect();
        let repeated =
            state.trouble.as_ref().is_some_and(|(reported, at)| *reported == faults || at.elapsed() < TROUBLE_PAUSE);
        if !repeated {
            self.emit(&Event::Trouble(cause));
            state.trouble = Some((faults, Instant::now()));
            state.reported = true;
        }
    }

    /// Ends the wait. `what` describes the result.
    pub(crate) fn done(&self, what: &str) {
        self.clear();
        if self.state().reported && self.waited() >= LONG {
            self.emit(&Event::Waited { locks: Locks::all(&self.keys), what, waited: self.waited() });
        }
    }

    /// Clears the status line.
    pub(crate) fn clear(&self) {
        if let Screen::Bar(bar) = &self.screen {
            bar.finish_and_clear();
        }
    }

    /// Shows what a keeper reports.
    #[cfg(target_os = "linux")]
    pub(crate) fn show(&self, shown: Shown) {
        match shown {
            Shown::Line(line) => self.say(&line),
            Shown::Drawn(key, message) => self.draw(&key, message),
        }
    }

    fn emit(&self, event: &Event<'_>) {
        if let Some(line) = self.report.line_of(event) {
            self.say(&line);
        }
    }

    fn say(&self, line: &str) {
        match &self.screen {
            Screen::Lines => report::line(line),
            Screen::Bar(bar) => bar.suspend(|| report::line(line)),
            // It may have ended.
            Screen::Elsewhere(shown, _) => drop(shown.send(Shown::Line(line.to_owned()))),
        }
    }

    fn draws(&self) -> bool {
        matches!(self.screen, Screen::Bar(_) | Screen::Elsewhere(_, true))
    }

    /// The line appears with the first reply, so that a free lock causes no flicker.
    fn draw(&self, key: &str, message: String) {
        let bar = match &self.screen {
            Screen::Lines => return,
            Screen::Bar(bar) => bar,
            Screen::Elsewhere(shown, _) => {
                let _ = shown.send(Shown::Drawn(key.to_owned(), message));
                return;
            }
        };
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
