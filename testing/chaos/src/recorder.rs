use crate::Failure;
use crate::history::{History, HistoryLine, Op, Outcome};
use fencelock::backends::BootClock;
use fencelock::{Clock, Drift, FencingToken, Observation, WindowDone};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// The lines of a history in memory.
pub(crate) type Lines = Arc<Mutex<Vec<HistoryLine>>>;

#[derive(Debug)]
enum Destination {
    /// Line by line, so that a killed process loses only its current line.
    File(Mutex<File>),
    Memory(Lines),
}

/// The clock of histories, which all processes of the machine share.
pub(crate) fn now() -> u64 {
    BootClock.now().as_micros()
}

/// A duration in the unit of histories.
pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// How long a holder may assume that it holds a lock with this TTL.
pub(crate) fn assumed_lease(ttl: Duration) -> Duration {
    ttl.saturating_sub(Drift::default().of(ttl))
}

/// Records the events of one process.
#[derive(Debug)]
pub(crate) struct Recorder {
    to: Destination,
    clock: Arc<dyn Clock>,
    /// How much faster the clock of its leases runs than that of the history, in parts per million.
    ppm: i64,
    seen: Mutex<HashSet<String>>,
    /// The last holder of each key.
    holders: Mutex<HashMap<String, String>>,
    /// The number of tasks of this process that hold each lock of several holders now.
    present: Mutex<HashMap<String, usize>>,
}

impl Recorder {
    pub(crate) fn new(path: &Path) -> Result<Self, Failure> {
        Ok(Self::of(Destination::File(Mutex::new(File::create(path)?)), Arc::new(BootClock), 0))
    }

    /// Of a simulated process.
    pub(crate) fn simulated(lines: &Lines, clock: &Arc<dyn Clock>, ppm: i64) -> Arc<Self> {
        Arc::new(Self::of(Destination::Memory(Arc::clone(lines)), Arc::clone(clock), ppm))
    }

    fn of(to: Destination, clock: Arc<dyn Clock>, ppm: i64) -> Self {
        Self { to, clock, ppm, seen: Mutex::default(), holders: Mutex::default(), present: Mutex::default() }
    }

    /// The time of the history.
    pub(crate) fn now(&self) -> u64 {
        self.clock.now().as_micros()
    }

    /// How long a lease of the process lasts, by the clock of the history.
    pub(crate) fn lasts(&self, lease: Duration) -> u64 {
        let lease = micros(lease);
        lease.saturating_add_signed(-(i64::try_from(lease).unwrap_or(0) / 1000 * self.ppm / 1000))
    }

    pub(crate) fn note(&self, line: &HistoryLine) {
        self.note_all(std::slice::from_ref(line));
    }

    /// Writes lines about one event.
    pub(crate) fn note_all(&self, lines: &[HistoryLine]) {
        let file = match &self.to {
            Destination::File(file) => file,
            Destination::Memory(kept) => {
                return kept.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(lines);
            }
        };
        let mut text = Vec::new();
        for line in lines {
            text.extend(serde_json::to_vec(line).unwrap_or_default());
            text.push(b'\n');
        }
        let written = file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&text);
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

    /// Records a report that work is done.
    pub(crate) fn note_done(&self, client: &str, invoke_us: u64, done: &WindowDone) {
        let mut line = HistoryLine::new(client, done.key().as_str(), Op::Done, invoke_us, self.now());
        line.fence = Some(done.fencing_token().get());
        line.window_us = done.next_window().duration_since(SystemTime::UNIX_EPOCH).ok().map(micros);
        self.note(&line);
    }

    /// Records what an observer of an election has observed since `invoke_us`; `None` if it ended before the next report.
    pub(crate) fn note_observation(&self, client: &str, key: &str, invoke_us: u64, notified: Option<&Observation>) {
        let mut line = HistoryLine::new(client, key, Op::Observe, invoke_us, self.now());
        match notified {
            Some(Observation::Leader(leader)) => {
                line.fence = leader.term.map(FencingToken::get);
                line.value.clone_from(&leader.value);
            }
            Some(Observation::Unreachable(cause)) => line = line.result(Outcome::Fail).what(cause.to_string()),
            Some(_) => line = line.result(Outcome::Fail).what("no leader"),
            None => line = line.result(Outcome::Info),
        }
        self.note(&line);
    }

    /// Records the first occurrence of an expected event.
    pub(crate) fn seen(&self, what: &str) {
        let is_new = self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(what.to_owned());
        if is_new {
            let at = self.now();
            self.note(&HistoryLine::new("", "", Op::Seen, at, at).what(what));
        }
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
