//! `--metrics-file`: what became of the last run, for the textfile collector of `node_exporter`.
//!
//! Each key has a file of its own: a series that is in two files makes the collector fail. A file keeps what a run does not change, so
//! a run that did not get the lock leaves the times of the one that has it.

use crate::exit::{Exit, Failure};
use crate::plan::Plan;
use crate::report::{Event, Reporter};
use fencelock::Clock;
use fencelock::backends::BootClock;
use fencelock::contract::fnv1a;
use rustix::fs::{Access, FlockOperation, access, flock};
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

/// The numbers, and what they mean. A collector fails if two files describe one of them in two ways, and two versions of this program may
/// have written them: never change a text.
const NUMBERS: [(&str, &str); 7] = [
    (FIRST, "When a run of the key was recorded first on this host"),
    (START, "When the command was started last"),
    (END, "When the command ended last; before the start while it runs"),
    (SUCCESS, "When the command ended with 0 last"),
    (DURATION, "How long the command took that ended last"),
    (WAIT, "How long the last run waited for its locks"),
    (STATUS, "The exit status of the last run"),
];
/// An alert about a key that has never succeeded has nothing else to count from.
const FIRST: &str = "fencelock_run_first_timestamp_seconds";
const START: &str = "fencelock_run_last_start_timestamp_seconds";
const END: &str = "fencelock_run_last_end_timestamp_seconds";
const SUCCESS: &str = "fencelock_run_last_success_timestamp_seconds";
const DURATION: &str = "fencelock_run_last_duration_seconds";
const WAIT: &str = "fencelock_run_last_wait_seconds";
const STATUS: &str = "fencelock_run_last_exit_status";

const OUTCOME: (&str, &str) = ("fencelock_run_last_outcome", "How the last run ended: 1 for one of the outcomes");
/// Each has a series, so that an alert does not depend on one that disappears.
const OUTCOMES: [&str; 7] = ["succeeded", "failed", "lost", "busy", "unreachable", "already_done", "cancelled"];

/// A local disk answers in milliseconds. One that does not must not delay a command, or the end of this program.
const PATIENCE: Duration = Duration::from_secs(1);

/// Refuses a directory in which nothing can be written, before a lock is acquired.
pub(crate) fn check(plan: &Plan) -> Result<(), Failure> {
    let Some(directory) = &plan.metrics else { return Ok(()) };
    let refuse = |why: &str| Err(Failure::new(Exit::Usage, format!("--metrics-file {}: {why}", directory.display())));
    match fs::metadata(directory) {
        Err(error) => refuse(&error.to_string()),
        Ok(found) if !found.is_dir() => refuse("not a directory"),
        Ok(_) => match access(directory, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK) {
            Err(error) => refuse(&io::Error::from(error).to_string()),
            Ok(()) => Ok(()),
        },
    }
}

/// The numbers of a run under way.
#[derive(Debug)]
pub(crate) struct RunMetrics<'a> {
    plan: &'a Plan,
    report: Reporter,
    began: Instant,
    /// When the command was started, and how long it took.
    started: Option<Instant>,
    took: Option<(Duration, Duration)>,
}

impl<'a> RunMetrics<'a> {
    /// Of a run that begins to wait.
    pub(crate) fn new(plan: &'a Plan, report: Reporter) -> Self {
        Self { plan, report, began: Instant::now(), started: None, took: None }
    }

    /// The command is about to start.
    pub(crate) async fn start(&mut self) {
        self.started = Some(Instant::now());
        self.write(vec![(START, now().as_secs_f64()), (WAIT, self.waited())], None).await;
    }

    fn waited(&self) -> f64 {
        (self.started.unwrap_or_else(Instant::now) - self.began).as_secs_f64()
    }

    /// The command has ended.
    pub(crate) fn end(&mut self) {
        self.took = self.started.map(|started| (now(), started.elapsed()));
    }

    /// The run has ended.
    pub(crate) async fn write_end(mut self, exit: Exit) {
        if self.took.is_none() {
            self.end();
        }
        let mut numbers = vec![(WAIT, self.waited()), (STATUS, exit.code().into())];
        if let Some((at, took)) = self.took {
            numbers.extend([(END, at.as_secs_f64()), (DURATION, took.as_secs_f64())]);
            numbers.extend((exit.code() == 0).then_some((SUCCESS, at.as_secs_f64())));
        }
        let outcome = outcome(exit, self.started.is_some());
        self.write(numbers, Some(outcome)).await;
    }

    /// What cannot be written is reported, and changes nothing else.
    async fn write(&self, numbers: Vec<(&'static str, f64)>, outcome: Option<&'static str>) {
        let Some(directory) = self.plan.metrics.clone() else { return };
        let keys = self.plan.keys.clone();
        let work = move || keys.iter().try_for_each(|key| update(&directory, key, &numbers, outcome));
        let written = match timeout(PATIENCE, spawn_blocking(work)).await {
            Ok(Ok(written)) => written.map_err(|error| error.to_string()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the file system does not answer".to_owned()),
        };
        if let Err(why) = written {
            let text = format!("cannot write --metrics-file: {why}");
            self.report.emit(&Event::info("not_measured", text, json!({ "reason": why })));
        }
    }
}

/// What became of a run. `started` is its command.
fn outcome(exit: Exit, started: bool) -> &'static str {
    match exit {
        Exit::Lost => "lost",
        exit if started && exit.code() == 0 => "succeeded",
        _ if started => "failed",
        Exit::Success => "already_done",
        Exit::Busy | Exit::BusyAs(_) => "busy",
        Exit::Unreachable => "unreachable",
        Exit::Signalled(_) | Exit::Interrupted(_) => "cancelled",
        _ => "failed",
    }
}

/// The time since 1970.
fn now() -> Duration {
    Duration::from_micros(BootClock.wall_micros())
}

/// Replaces the file of a key. A reader sees the one before, or the new one.
fn update(directory: &Path, key: &str, numbers: &[(&str, f64)], outcome: Option<&str>) -> io::Result<()> {
    // Other runs do not write between the read and the write of this one. Where a directory cannot be locked, they may.
    let alone = fs::File::open(directory)?;
    let _ = flock(&alone, FlockOperation::LockExclusive);
    let path = directory.join(file_name(key));
    let mut samples = samples(&fs::read_to_string(&path).unwrap_or_default());
    let sample = |name: &str, number: f64| {
        (format!("{name}{{key=\"{}\"}}", escaped(key)), ((number * 1000.0).round() / 1000.0).to_string())
    };
    let (first, when) = sample(FIRST, now().as_secs_f64());
    samples.entry(first).or_insert(when);
    samples.extend(numbers.iter().map(|(name, number)| sample(name, *number)));
    for of in OUTCOMES.iter().filter(|_| outcome.is_some()) {
        let is = u8::from(outcome == Some(*of));
        samples.insert(format!("{}{{key=\"{}\",outcome=\"{of}\"}}", OUTCOME.0, escaped(key)), is.to_string());
    }
    let mut new = path.clone().into_os_string();
    // The collector reads files whose names end with `.prom`.
    new.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(new);
    let replaced = fs::write(&new, text(&samples)).and_then(|()| fs::rename(&new, &path));
    replaced.inspect_err(|_| drop(fs::remove_file(&new)))
}

/// The series of a file, with their values.
fn samples(text: &str) -> BTreeMap<String, String> {
    let known = |series: &str| {
        let name = series.split('{').next().unwrap_or_default();
        NUMBERS.iter().chain([&OUTCOME]).any(|(known, _)| *known == name)
    };
    let line = |line: &str| line.rsplit_once(' ').map(|(series, value)| (series.to_owned(), value.to_owned()));
    text.lines().filter_map(line).filter(|(series, value)| known(series) && value.parse::<f64>().is_ok()).collect()
}

fn text(samples: &BTreeMap<String, String>) -> String {
    let mut text = String::new();
    for (name, help) in NUMBERS.iter().chain([&OUTCOME]) {
        let of_name = |series: &str| series.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'));
        let mut lines = samples.iter().filter(|(series, _)| of_name(series)).peekable();
        if lines.peek().is_some() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} gauge");
        }
        for (series, value) in lines {
            let _ = writeln!(text, "{series} {value}");
        }
    }
    text
}

/// A key as the value of a label. A key has no line end.
fn escaped(key: &str) -> String {
    key.replace('\\', "\\\\").replace('"', "\\\"")
}

/// Most file systems limit a name to 255 bytes, and the number of the process follows.
const LONGEST: usize = 200;

/// The name of the file of a key: letters, digits, `.`, `_` and `-` as they are, and what is too long by its digest.
fn file_name(key: &str) -> String {
    let mut name = "fencelock-".to_owned();
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => name.push(char::from(byte)),
            _ => drop(write!(name, "%{byte:02x}")),
        }
    }
    if name.len() > LONGEST {
        name.truncate(LONGEST);
        let _ = write!(name, "~{:016x}", fnv1a(key));
    }
    name + ".prom"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::thread;

    #[test]
    fn a_reader_sees_a_whole_file_and_runs_beside_each_other_lose_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (path, directory) = (directory.path().join("fencelock-k.prom"), directory.path());
        update(directory, "k", &[(START, 0.0), (END, 0.0)], Some("busy")).unwrap();
        thread::scope(|scope| {
            for name in [START, END] {
                scope.spawn(move || {
                    for at in 1..=50 {
                        update(directory, "k", &[(name, f64::from(at))], None).unwrap();
                    }
                });
            }
            for _ in 0..200 {
                let text = fs::read_to_string(&path).unwrap();
                let whole = text.ends_with('\n') && samples(&text).len() == 3 + OUTCOMES.len();
                assert!(whole, "{text:?}");
            }
        });
        let text = fs::read_to_string(path).unwrap();
        assert!([START, END].iter().all(|name| text.contains(&format!("{name}{{key=\"k\"}} 50\n"))), "{text}");
    }

    #[test]
    fn what_is_no_file_of_this_program_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fencelock-k.prom");
        fs::write(&path, "other{key=\"k\"} 1\nfencelock_run_last_wait_seconds{key=\"k\"} much\n\u{0}").unwrap();
        update(directory.path(), "k", &[(STATUS, 0.0)], None).unwrap();
        let written = fs::read_to_string(path).unwrap();
        assert_eq!(written.lines().last(), Some("fencelock_run_last_exit_status{key=\"k\"} 0"), "{written}");
        assert_eq!(written.lines().count(), 6, "{written}");
    }

    #[test]
    fn every_key_has_a_file_of_its_own_and_a_label_that_reads_back() {
        let long = "k".repeat(512);
        let keys = ["a", "a b", "a/b", "../a", "a%20b", "订单", "", &long, &long[1..], &"订".repeat(170)];
        let names: BTreeSet<_> = keys.iter().map(|key| file_name(key)).collect();
        assert_eq!(names.len(), keys.len(), "{names:?}");
        assert!(
            names.iter().all(|name| name.len() < 230 && !name.contains('/') && name.strip_suffix(".prom").is_some()),
            "{names:?}"
        );
        assert_eq!(escaped("a\\\"b"), "a\\\\\\\"b");
    }

    #[test]
    fn a_run_that_never_started_its_command_has_another_outcome() {
        let failed = [Exit::NotFound, Exit::Usage, Exit::System, Exit::NotExecutable];
        assert!(failed.iter().all(|exit| outcome(*exit, false) == "failed"));
        assert_eq!((outcome(Exit::Success, true), outcome(Exit::Success, false)), ("succeeded", "already_done"));
        assert_eq!((outcome(Exit::Busy, true), outcome(Exit::Busy, false)), ("failed", "busy"));
        assert_eq!((outcome(Exit::Signalled(15), true), outcome(Exit::Signalled(15), false)), ("failed", "cancelled"));
        assert_eq!((outcome(Exit::Lost, true), outcome(Exit::BusyAs(9), false)), ("lost", "busy"));
        assert_eq!(outcome(Exit::Unreachable, false), "unreachable");
    }
}
