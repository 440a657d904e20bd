use crate::Failure;
use crate::history::{History, HistoryLine, Op, Outcome};
use fencelock::backends::BootClock;
use fencelock::{Clock, Drift, FencingToken, Observation, WindowDone};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// The clock of histories, which all processes of the machine share.
pub(crate) fn now() -> u64 {
    BootClock.now().as_micros()
}

/// A duration in the unit of histories.
pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// How long a holder may assume that it holds a lock with this TTL, in microseconds.
pub(crate) fn assumed_lease(ttl_us: u64) -> u64 {
    let ttl = Duration::from_micros(ttl_us);
    micros(ttl.saturating_sub(Drift::default().of(ttl)))
}

/// Writes the events of one process line by line, so that a killed process loses only its current line.
#[derive(Debug)]
pub(crate) struct Recorder {
    file: Mutex<File>,
    seen: Mutex<HashSet<String>>,
    /// The last holder of each key.
    holders: Mutex<HashMap<String, String>>,
    /// The number of tasks of this process that hold each lock of several holders now.
    present: Mutex<HashMap<String, usize>>,
}

impl Recorder {
    pub(crate) fn new(path: &Path) -> Result<Self, Failure> {
        Ok(Self {
            file: Mutex::new(File::create(path)?),
            seen: Mutex::default(),
            holders: Mutex::default(),
            present: Mutex::default(),
        })
    }

    pub(crate) fn note(&self, line: &HistoryLine) {
        self.note_all(std::slice::from_ref(line));
    }

    /// Writes lines about one event.
    pub(crate) fn note_all(&self, lines: &[HistoryLine]) {
        let mut text = Vec::new();
        for line in lines {
            text.extend(serde_json::to_vec(line).unwrap_or_default());
            text.push(b'\n');
        }
        let written = self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&text);
        if let Err(error) = written {
            // An incomplete history proves nothing, and the run detects a worker that exits.
            eprintln!("cannot write the history: {error}");
            std::process::exit(74);
        }
    }

    /// Whether the last holder of this key in this process was the same.
    pub(crate) fn is_again(&self, key: &str, holder: &str) -> bool {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        holders.insert(key.to_owned(), holder.to_owned()).is_some_and(|last| last == holder)
    }

    /// A task of this process now holds such a lock. If another one does, too, that is this event.
    pub(crate) fn enter(&self, name: &str, together: &str) {
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        let tasks = present.entry(name.to_owned()).or_default();
        *tasks += 1;
        let is_together = *tasks > 1;
        drop(present);
        if is_together {
            self.seen(together);
        }
    }

    /// The task no longer holds it.
    pub(crate) fn leave(&self, name: &str) {
        let mut present = self.present.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tasks) = present.get_mut(name) {
            *tasks -= 1;
        }
    }

    /// Whether this process has observed the event.
    pub(crate) fn knows(&self, what: &str) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).contains(what)
    }

    /// Records the first occurrence of an expected event.
    pub(crate) fn seen(&self, what: &str) {
        let is_new = self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(what.to_owned());
        if is_new {
            let at = now();
            self.note(&HistoryLine::new("", "", Op::Seen, at, at).what(what));
        }
    }
}

/// The line about a report that work is done.
pub(crate) fn done_line(client: &str, invoke_us: u64, done: &WindowDone) -> HistoryLine {
    let mut line = HistoryLine::new(client, done.key().as_str(), Op::Done, invoke_us, now());
    line.fence = Some(done.fencing_token().get());
    line.window_us = done.next_window().duration_since(SystemTime::UNIX_EPOCH).ok().map(micros);
    line
}

/// The line about what an observer of an election has observed since `invoke_us`; `None` if it ended before the next report.
pub(crate) fn observation_line(client: &str, key: &str, invoke_us: u64, notified: Option<&Observation>) -> HistoryLine {
    let mut line = HistoryLine::new(client, key, Op::Observe, invoke_us, now());
    match notified {
        Some(Observation::Leader(leader)) => {
            line.fence = leader.term.map(FencingToken::get);
            line.value.clone_from(&leader.value);
            line
        }
        Some(Observation::Unreachable(cause)) => line.result(Outcome::Fail).what(cause.to_string()),
        Some(_) => line.result(Outcome::Fail).what("no leader"),
        None => line.result(Outcome::Info),
    }
}

/// Whether any process has observed the event. Reads all histories, so it is slow.
pub(crate) fn has_seen(dir: &Path, what: &str) -> Result<bool, Failure> {
    let is_it = |line: &HistoryLine| line.op == Op::Seen && line.what.as_deref() == Some(what);
    Ok(collect(dir)?.lines.iter().any(is_it))
}

/// The events of all processes, ordered by time.
pub(crate) fn collect(dir: &Path) -> Result<History, Failure> {
    let mut history = History::default();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let text = fs::read_to_string(&path)?;
        history.merge(History::read_torn(&text).map_err(|error| format!("{}: {error}", path.display()))?);
    }
    history.sort();
    Ok(history)
}
