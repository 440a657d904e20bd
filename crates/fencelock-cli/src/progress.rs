use crate::json::{expires_in, millis, with_occupant};
use crate::report;
use crate::report::{Event, LONG, Reporter};
use crate::stderr;
use crate::text::{ordinal, plain};
use fencelock::contract::Occupied;
use fencelock::{Fault, Key, Span, TreePath, Unknown};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep};

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
    Drawn(Arc<StatusLine>),
    /// By another process, which asks for the locks, and draws or not.
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
    /// For these keys, which are waited for together.
    pub(crate) fn of_keys(keys: &[String], report: Reporter) -> Self {
        let begun = Instant::now();
        let drawn = || Screen::Drawn(Arc::new(StatusLine { begun, shown: Mutex::default() }));
        let screen = if report.draws_progress() { drawn() } else { Screen::Lines };
        Self { keys: keys.to_vec(), screen, report, begun, state: Mutex::default() }
    }

    /// For the locks that another process asks for, and which shows it if it `draws`, and otherwise the lines of this reporter.
    pub(crate) fn of_request(keys: &[String], report: Reporter, draws: bool, shown: UnboundedSender<Shown>) -> Self {
        let screen = Screen::Elsewhere(shown, draws);
        Self { keys: keys.to_vec(), screen, report, begun: Instant::now(), state: Mutex::default() }
    }

    /// The time since the start.
    pub(crate) fn waited(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Reports the holders of a key, and how many clients are `ahead`: `None` without a queue, and for pollers.
    pub(crate) fn waiting(&self, key: &Key, ahead: Option<u32>, by: &Occupied, waited: Duration) {
        let Occupied { holders, expiry, held_for, .. } = by;
        let line =
            ahead.map(|ahead| format!("{} in the queue, ", ordinal(ahead.saturating_add(1)))).unwrap_or_default();
        let (key, position) = (key.as_str(), plain(&format!("{line}held by {holders}")));
        let on = TreePath::of_key(key).unwrap_or(key);
        let mut state = self.state();
        if self.draws() {
            let held = held_for.map(|span| format!(" for {}", clock(span))).unwrap_or_default();
            self.draw(on, format!("{position}{held}"));
        } else if (&*state.position.0, &state.position.1) != (key, &position) {
            let held = held_for.map(|span| format!(" for {}", Span(span))).unwrap_or_default();
            let text = format!("waiting for {on}, {position}{held}");
            let event = if state.position.0 == key { Event::detail } else { Event::info };
            let fields = json!({
                "key": key,
                "ahead": ahead,
                "expires_in_ms": expires_in(*expiry),
                "held_for_ms": held_for.map(millis),
                "waited_ms": millis(waited),
                "holder_count": holders.count(),
            });
            self.emit(&event("waiting", text, with_occupant(fields, holders.first())));
            state.reported = true;
        }
        state.position = (key.to_owned(), position);
    }

    /// Reports that the holder of the key is unknown.
    pub(crate) fn trouble(&self, cause: &Unknown) {
        let mut state = self.state();
        if cause.is_quarantine() {
            if !std::mem::replace(&mut state.quarantine, true) {
                let fields = json!({ "reason": cause.to_string() });
                self.emit(&Event::info("quarantined", format!("waiting: {cause}"), fields));
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
            let fields = json!({ "reason": cause.to_string() });
            self.emit(&Event::info("unreachable", format!("waiting for a reply: {cause}"), fields));
            state.trouble = Some((faults, Instant::now()));
            state.reported = true;
        }
    }

    /// Ends the wait. `what` describes the result.
    pub(crate) fn done(&self, what: &str) {
        self.clear();
        if self.state().reported && self.waited() >= LONG {
            let text = format!("{} {what}, after {}", self.keys.join(", "), Span(self.waited()));
            let event = Event::info("waited", text, json!({ "waited_ms": millis(self.waited()) }));
            self.emit(&event.with_keys(&self.keys, None));
        }
    }

    /// Clears the status line.
    pub(crate) fn clear(&self) {
        if let Screen::Drawn(line) = &self.screen
            && line.shown().take().is_some()
        {
            stderr::draw("");
        }
    }

    /// Shows what a keeper reports.
    pub(crate) fn show(&self, shown: Shown) {
        match shown {
            Shown::Line(line) => self.say(&line),
            Shown::Drawn(key, message) => self.draw(&key, message),
        }
    }

    fn emit(&self, event: &Event) {
        if let Some(line) = self.report.line_of(event) {
            self.say(&line);
        }
    }

    fn say(&self, line: &str) {
        match &self.screen {
            Screen::Lines => report::line(line),
            Screen::Drawn(drawn) => {
                if drawn.shown().is_some() {
                    stderr::draw("");
                }
                report::line(line);
                drawn.draw();
            }
            // It may have ended.
            Screen::Elsewhere(shown, _) => drop(shown.send(Shown::Line(line.to_owned()))),
        }
    }

    fn draws(&self) -> bool {
        matches!(self.screen, Screen::Drawn(_) | Screen::Elsewhere(_, true))
    }

    /// The line appears with the first reply, so that a free lock causes no flicker.
    fn draw(&self, key: &str, message: String) {
        match &self.screen {
            Screen::Lines => {}
            Screen::Drawn(line) => {
                let is_new = line.shown().replace((plain(key), message)).is_none();
                line.draw();
                if is_new {
                    let line = Arc::clone(line);
                    tokio::spawn(async move {
                        while line.draw() {
                            sleep(TICK).await;
                        }
                    });
                }
            }
            Screen::Elsewhere(shown, _) => drop(shown.send(Shown::Drawn(key.to_owned(), message))),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line on the terminal.
#[derive(Debug)]
struct StatusLine {
    begun: Instant,
    /// The key, and why it is waited for.
    shown: Mutex<Option<(String, String)>>,
}

/// One dot that goes round.
const SPINNER: [char; 8] = ['⠁', '⠂', '⠄', '⡀', '⢀', '⠠', '⠐', '⠈'];

impl StatusLine {
    fn shown(&self) -> MutexGuard<'_, Option<(String, String)>> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `false` if there is nothing to show.
    fn draw(&self) -> bool {
        let shown = self.shown();
        let Some((key, why)) = &*shown else { return false };
        let waited = self.begun.elapsed();
        let turns = usize::try_from(waited.as_millis() / TICK.as_millis()).unwrap_or_default();
        let spinner = SPINNER[turns % SPINNER.len()];
        stderr::draw(&format!("{spinner} waiting for {key} for {}, {why}", clock(waited)));
        true
    }
}

/// `00:01:23`, `2d 00:01:23`
fn clock(span: Duration) -> String {
    let secs = span.as_secs();
    let (days, hours, minutes, secs) = (secs / 86_400, secs / 3600 % 24, secs / 60 % 60, secs % 60);
    let days = if days > 0 { format!("{days}d ") } else { String::new() };
    format!("{days}{hours:02}:{minutes:02}:{secs:02}")
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}
