use crate::Failure;
use crate::history::{History, Line, Op};
use fencelock::backends::BootClock;
use fencelock::{Clock, Drift};
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The clock of histories: all processes of a machine share it.
pub(crate) fn now() -> u64 {
    BootClock.now().as_micros()
}

/// A span as histories count.
pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// For how much of a TTL its holder may believe, all in microseconds.
pub(crate) fn belief(ttl_us: u64) -> u64 {
    let ttl = Duration::from_micros(ttl_us);
    micros(ttl.saturating_sub(Drift::default().of(ttl)))
}

/// Writes what one process does, a line at a time, so that nothing is lost when it is killed but the line it is at.
#[derive(Debug)]
pub(crate) struct Recorder {
    file: Mutex<File>,
    seen: Mutex<HashSet<String>>,
    /// The last holder of each key.
    holders: Mutex<HashMap<String, String>>,
}

impl Recorder {
    pub(crate) fn new(path: &Path) -> Result<Self, Failure> {
        Ok(Self { file: Mutex::new(File::create(path)?), seen: Mutex::default(), holders: Mutex::default() })
    }

    pub(crate) fn note(&self, line: &Line) {
        let mut text = serde_json::to_vec(line).unwrap_or_default();
        text.push(b'\n');
        let written = self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&text);
        if let Err(error) = written {
            // A history with a hole proves nothing, and a worker that ends is noticed.
            eprintln!("the history cannot be written: {error}");
            std::process::exit(74);
        }
    }

    /// Whether this key's last holder here was the same.
    pub(crate) fn is_again(&self, key: &str, holder: &str) -> bool {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        holders.insert(key.to_owned(), holder.to_owned()).is_some_and(|last| last == holder)
    }

    /// Whether it has been seen here.
    pub(crate) fn knows(&self, what: &str) -> bool {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).contains(what)
    }

    /// Something happened that a run should have provoked. The first time says it all.
    pub(crate) fn seen(&self, what: &str) {
        let is_new = self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(what.to_owned());
        if is_new {
            let at = now();
            self.note(&Line::new("", "", Op::Seen, at, at).what(what));
        }
    }
}

/// Whether any process has seen this. It reads what they have written, so it is no question for every moment.
pub(crate) fn has_seen(dir: &Path, what: &str) -> Result<bool, Failure> {
    let is_it = |line: &Line| line.op == Op::Seen && line.what.as_deref() == Some(what);
    Ok(collect(dir)?.lines.iter().any(is_it))
}

/// What all processes have written, in the order of time.
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
