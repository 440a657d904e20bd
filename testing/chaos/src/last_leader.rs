//! The last leader of a run, which every observer must notice.

use crate::Failure;
use crate::history::{HistoryLine, Op, Outcome};
use crate::recorder::{self, Recorder, micros, now};
use crate::workload::ELECTION;
use fencelock::blocking::{Client, Leadership};
use std::collections::HashSet;
use std::path::Path;
use std::time::Duration;

/// The event that must be observed.
const LAST: &str = "a last leader";
/// The time in which an observer must notice it: some times its longest pause, on a busy machine.
const BOUND: Duration = Duration::from_secs(8);
/// The candidates of the run may lead first.
const WAIT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How often the run leads again after it has lost a term on a busy machine.
const TRIES: u32 = 3;

/// A run whose faults have ended.
pub(crate) struct LastLeader<'a> {
    pub(crate) client: &'a Client,
    pub(crate) recorder: &'a Recorder,
    pub(crate) histories: &'a Path,
    pub(crate) observers: usize,
    pub(crate) ttl: Duration,
}

impl LastLeader<'_> {
    /// Leads until all observers have noticed, or until they should have.
    pub(crate) fn lead(&self) -> Result<(), Failure> {
        let at = now();
        self.recorder.note(&HistoryLine::new("", "", Op::Expect, at, at).what(LAST));
        for number in 0..TRIES {
            if self.lead_once(&format!("last-{number}"))? {
                self.recorder.seen(LAST);
                break;
            }
        }
        Ok(())
    }

    /// Whether the term lasted.
    fn lead_once(&self, value: &str) -> Result<bool, Failure> {
        let invoke_us = now();
        let election = self.client.election(ELECTION).value(value).ttl(self.ttl).wait(WAIT);
        let leadership = match election.campaign() {
            Ok(leadership) => leadership,
            // No reply for as long as a lease lasts: on a busy machine that says nothing about the observers.
            Err(error) if error.is_unreachable() => {
                let line = HistoryLine::new("run", ELECTION, Op::Acquire, invoke_us, now());
                self.recorder.note(&line.result(Outcome::Info).what(format!("{error:#}")));
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        };
        let led_us = now();
        let mut line = HistoryLine::new("run", ELECTION, Op::Acquire, invoke_us, led_us);
        line.valid_until_us = Some(led_us.saturating_add(micros(leadership.remaining())));
        line.ttl_us = Some(micros(self.ttl));
        line.value = Some(value.to_owned());
        self.recorder.note(&held(line, &leadership, value));
        while leadership.is_leader() && now() < led_us + micros(BOUND) && self.noticed_by(value)? < self.observers {
            std::thread::sleep(POLL_INTERVAL);
        }
        let at = now();
        let lasted = leadership.is_leader();
        if lasted {
            let mut line = HistoryLine::new("run", ELECTION, Op::Lead, led_us, at);
            line.value = Some(value.to_owned());
            self.recorder.note(&line);
        }
        // It was renewed until here.
        let mut line = HistoryLine::new("run", ELECTION, Op::Renew, led_us, at);
        line.valid_until_us = Some(at.saturating_add(micros(leadership.remaining())));
        let line = held(line, &leadership, value).result(if lasted { Outcome::Ok } else { Outcome::Info });
        self.recorder.note(&line);
        let mut line = held(HistoryLine::new("run", ELECTION, Op::Release, now(), now()), &leadership, value);
        let is_released = leadership.resign().is_ok();
        line.return_us = now();
        self.recorder.note(&line.result(if is_released { Outcome::Ok } else { Outcome::Info }));
        Ok(lasted)
    }

    /// How many observers were notified of it.
    fn noticed_by(&self, value: &str) -> Result<usize, Failure> {
        let history = recorder::collect(self.histories)?;
        let reports = history.lines.iter().filter(|line| line.is(Op::Observe) && line.value.as_deref() == Some(value));
        Ok(reports.map(|line| line.client.as_str()).collect::<HashSet<_>>().len())
    }
}

fn held(line: HistoryLine, leadership: &Leadership, value: &str) -> HistoryLine {
    line.hold(value, Some(leadership.term().get()))
}
