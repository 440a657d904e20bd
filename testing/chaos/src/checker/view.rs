//! A history, sorted for the checks.

use crate::history::{History, HistoryLine, HoldMode, Op, Outcome};
use std::collections::{BTreeMap, HashMap};

/// A line and its number.
#[derive(Debug, Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) number: usize,
    pub(super) line: &'a HistoryLine,
}

/// A hold, as recorded by its holder.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hold<'a> {
    pub(super) number: usize,
    pub(super) acquire: &'a HistoryLine,
    /// The end of the assumed hold: the end of the last renewal, the release, or the notification of the loss.
    pub(super) until: u64,
    /// The line that ended it.
    pub(super) ended_by: usize,
}

impl Hold<'_> {
    /// When its holder began to assume that it holds the key. A writer that downgrades counts as a reader from its
    /// request on.
    pub(super) fn start(&self) -> u64 {
        if self.acquire.op == Op::Downgrade { self.acquire.invoke_us } else { self.acquire.return_us }
    }

    pub(super) const fn mode(&self) -> HoldMode {
        self.acquire.mode
    }

    /// The earliest time at which an event can affect the hold: a lease is not older than its TTL when it is granted, even if
    /// the holder waited in the queue. The lease of several tasks may be older than the request of its last task. By any
    /// clock it ends at most its TTL after it was requested.
    pub(super) fn asked(&self) -> u64 {
        let Some(ttl) = self.acquire.ttl_us else { return self.acquire.invoke_us };
        let lease = self.acquire.valid_until_us.map_or(u64::MAX, |until| until.saturating_sub(ttl));
        self.acquire.invoke_us.min(lease).max(self.acquire.return_us.saturating_sub(ttl))
    }

    /// Whether the lease had expired before the acquire returned, because the process was paused.
    pub(super) const fn is_expired_at_start(&self) -> bool {
        match self.acquire.valid_until_us {
            Some(until) => until <= self.acquire.return_us,
            None => false,
        }
    }
}

/// All lines about one key.
#[derive(Debug, Default)]
pub(super) struct KeyView<'a> {
    /// Ordered by the end of the acquire.
    pub(super) holds: Vec<Hold<'a>>,
    /// Successful renewals, with their hold.
    pub(super) renewals: Vec<(At<'a>, usize)>,
    /// Successful releases, with their hold.
    pub(super) releases: Vec<(At<'a>, usize)>,
    /// Losses that were reported, with their hold.
    pub(super) losses: Vec<(At<'a>, usize)>,
    /// When the holder of several keys was notified that it holds them, with the hold of the first.
    pub(super) held: Vec<(At<'a>, usize)>,
    /// Attempts to record the success of work.
    pub(super) successes: Vec<At<'a>>,
    /// Starts of work, where starts count.
    pub(super) starts: Vec<At<'a>>,
    /// Reports that work is done.
    pub(super) reports: Vec<At<'a>>,
    /// What observers of an election have observed.
    pub(super) observed: Vec<At<'a>>,
    /// Leaders that every observer had to notice.
    pub(super) led: Vec<At<'a>>,
    /// Writes and reads at the resource.
    pub(super) accesses: Vec<At<'a>>,
    pub(super) inspections: Vec<At<'a>>,
}

/// The lines about the run.
#[derive(Debug, Default)]
pub(super) struct RunView<'a> {
    pub(super) faults: Vec<At<'a>>,
    pub(super) heals: Vec<At<'a>>,
    pub(super) expected: Vec<At<'a>>,
    pub(super) seen: Vec<At<'a>>,
    pub(super) controls: Vec<At<'a>>,
    pub(super) stop: Option<At<'a>>,
    pub(super) longest_ttl: u64,
    pub(super) grants: usize,
    /// The time of the last line of each client.
    pub(super) last_of: HashMap<&'a str, u64>,
}

#[derive(Debug, Default)]
pub(super) struct View<'a> {
    pub(super) keys: BTreeMap<&'a str, KeyView<'a>>,
    pub(super) run: RunView<'a>,
}

impl<'a> View<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let mut view = Self::default();
        let mut by_key: HashMap<&str, Vec<At<'a>>> = HashMap::new();
        for (index, line) in history.lines.iter().enumerate() {
            let at = At { number: index + 1, line };
            match line.op {
                Op::Fault => view.run.faults.push(at),
                Op::Heal => view.run.heals.push(at),
                Op::Expect => view.run.expected.push(at),
                Op::Seen => view.run.seen.push(at),
                Op::Control => view.run.controls.push(at),
                Op::Stop => view.run.stop = Some(at),
                Op::Acquire
                | Op::Downgrade
                | Op::Renew
                | Op::Yield
                | Op::Release
                | Op::Lost
                | Op::Held
                | Op::Succeed
                | Op::Start
                | Op::Observe
                | Op::Lead
                | Op::Done
                | Op::Write
                | Op::Read
                | Op::Inspect => {
                    by_key.entry(&line.key).or_default().push(at);
                }
            }
            let last = view.run.last_of.entry(&line.client).or_default();
            *last = line.return_us.max(*last);
            view.run.longest_ttl = view.run.longest_ttl.max(line.ttl_us.unwrap_or(0));
            view.run.grants += usize::from(line.is_grant());
        }
        view.keys = by_key.into_iter().map(|(key, lines)| (key, KeyView::of(&lines))).collect();
        view
    }
}

/// The index of the hold of each line. Tasks of one process may share a lease, each with its own token. Readers may
/// share a hold, and a token too, and a task may join the hold again.
struct HoldIndexes<'a>(HashMap<&'a str, BTreeMap<Option<u64>, Vec<usize>>>);

impl<'a> HoldIndexes<'a> {
    fn of(holds: &[Hold<'a>]) -> Self {
        let mut indexes: HashMap<_, BTreeMap<_, Vec<_>>> = HashMap::new();
        for (index, hold) in holds.iter().enumerate() {
            if let Some(holder) = hold.acquire.holder.as_deref() {
                indexes.entry(holder).or_default().entry(hold.acquire.fence).or_default().push(index);
            }
        }
        Self(indexes)
    }

    /// A line without a token refers to the last hold of its holder; if several holds have the token, it refers to the
    /// last one that this task had started by then.
    fn get(&self, holds: &[Hold<'a>], line: &HistoryLine) -> Option<usize> {
        let of_holder = self.0.get(line.holder.as_deref()?)?;
        let same = match line.fence {
            Some(_) => of_holder.get(&line.fence)?,
            None => of_holder.values().next_back()?,
        };
        let begun = |index: &&usize| {
            let hold = &holds[**index];
            hold.acquire.client == line.client && hold.start() <= line.return_us
        };
        same.iter().rev().find(begun).or(same.last()).copied()
    }
}

impl<'a> KeyView<'a> {
    fn of(lines: &[At<'a>]) -> Self {
        let mut view = Self::default();
        let is_grant = |at: &&At<'a>| at.line.is_grant();
        for At { number, line } in lines.iter().filter(is_grant) {
            let until = line.valid_until_us.unwrap_or(u64::MAX);
            view.holds.push(Hold { number: *number, acquire: line, until, ended_by: *number });
        }
        view.holds.sort_by_key(|hold| (hold.start(), hold.acquire.invoke_us));
        let indexes = HoldIndexes::of(&view.holds);
        for at in lines {
            let hold = indexes.get(&view.holds, at.line);
            view.add(*at, hold);
        }
        // At the end, because a renewal may be recorded after the release that ended the hold.
        for at in lines {
            if let Some(index) = indexes.get(&view.holds, at.line) {
                view.holds[index].end(at);
            }
        }
        view
    }

    fn add(&mut self, at: At<'a>, hold: Option<usize>) {
        match (at.line.op, hold) {
            (Op::Write | Op::Read, _) => self.accesses.push(at),
            (Op::Inspect, _) => self.inspections.push(at),
            (Op::Succeed, _) => self.successes.push(at),
            (Op::Start, _) => self.starts.push(at),
            (Op::Observe, _) => self.observed.push(at),
            (Op::Lead, _) => self.led.push(at),
            (Op::Done, _) => self.reports.push(at),
            (Op::Release, Some(hold)) if at.line.result == Outcome::Ok => self.releases.push((at, hold)),
            (Op::Lost, Some(hold)) => self.losses.push((at, hold)),
            (Op::Held, Some(hold)) => self.held.push((at, hold)),
            (Op::Renew, Some(hold)) if at.line.result == Outcome::Ok => {
                self.renewals.push((at, hold));
                let hold = &mut self.holds[hold];
                if at.line.valid_until_us.is_some_and(|until| until > hold.until) {
                    hold.until = at.line.valid_until_us.unwrap_or(hold.until);
                    hold.ended_by = at.number;
                }
            }
            _ => {}
        }
    }
}

impl Hold<'_> {
    fn end(&mut self, at: &At<'_>) {
        let ends = match at.line.op {
            Op::Yield | Op::Release => at.line.invoke_us,
            Op::Lost => at.line.return_us,
            _ => return,
        };
        if ends < self.until {
            (self.until, self.ended_by) = (ends, at.number);
        }
    }
}
