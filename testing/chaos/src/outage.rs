//! How long a fault of a cluster prevented grants.

use crate::fault::Fault;
use crate::history::{History, HistoryLine, Op};
use crate::pulse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// The longest times without a grant, one for each fault of this kind, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outages {
    /// The kind.
    pub fault: Fault,
    /// For the keys of the affected slot or master.
    pub affected: Vec<Duration>,
    /// For the keys of other slots or masters.
    pub others: Vec<Duration>,
    /// The times from the end of the move, or from the promotion, to the first grant of each affected key.
    pub resumed: Vec<Duration>,
}

/// The outages of all faults that affect some keys of a cluster.
pub fn outages(history: &History) -> Vec<Outages> {
    let grants = grants(history);
    let of_fault = |fault: Fault| {
        let resumed = resumed(history, fault, &grants);
        let mut outages = Outages { fault, affected: Vec::new(), others: Vec::new(), resumed };
        for (span, keys) in injections(history, fault) {
            let longest = |is_affected: bool| {
                let of_these = grants.iter().filter(|(key, _)| keys.contains(**key) == is_affected);
                of_these.filter_map(|(_, times)| longest_gap(times, span)).max()
            };
            outages.affected.extend(longest(true));
            outages.others.extend(longest(false));
        }
        outages.affected.sort_unstable();
        outages.others.sort_unstable();
        (!outages.affected.is_empty()).then_some(outages)
    };
    Fault::ALL.into_iter().filter_map(of_fault).collect()
}

/// The times of the grants of each key that measures outages.
fn grants(history: &History) -> BTreeMap<&str, Vec<u64>> {
    let mut grants: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for line in history.lines.iter().filter(|line| line.is(Op::Acquire) && line.client == pulse::NAME) {
        grants.entry(&line.key).or_default().push(line.return_us);
    }
    for times in grants.values_mut() {
        times.sort_unstable();
    }
    grants
}

/// The time of each fault, and the keys that measure its effect. A fault has a line for each of its keys.
fn injections(history: &History, fault: Fault) -> Vec<((u64, u64), BTreeSet<String>)> {
    let is_it = |line: &&HistoryLine| {
        line.op == Op::Fault && !line.key.is_empty() && line.what.as_deref() == Some(fault.name())
    };
    let mut injections: BTreeMap<u64, (u64, BTreeSet<String>)> = BTreeMap::new();
    for line in history.lines.iter().filter(is_it) {
        let (until, keys) = injections.entry(line.invoke_us).or_default();
        *until = line.return_us.max(*until);
        keys.insert(pulse::key_beside(&line.key));
    }
    injections.into_iter().map(|(from, (until, keys))| ((from, until), keys)).collect()
}

/// The end of a fault is recorded as an event after which its keys must be granted soon.
fn resumed(history: &History, fault: Fault, grants: &BTreeMap<&str, Vec<u64>>) -> Vec<Duration> {
    let is_end = |line: &&HistoryLine| line.op == Op::Heal && line.what.as_deref() == Some(fault.name());
    let next = |line: &HistoryLine| {
        let times = grants.get(line.key.as_str())?;
        let next = times.get(times.partition_point(|at| *at < line.return_us))?;
        Some(Duration::from_micros(next - line.return_us))
    };
    let mut times: Vec<_> = history.lines.iter().filter(is_end).filter_map(next).collect();
    times.sort_unstable();
    times
}

/// The longest time between consecutive grants that overlaps this span.
fn longest_gap(grants: &[u64], (from, until): (u64, u64)) -> Option<Duration> {
    let gaps = grants.windows(2).filter(|pair| pair[1] >= from && pair[0] <= until).map(|pair| pair[1] - pair[0]);
    gaps.max().map(Duration::from_micros)
}

impl fmt::Display for Outages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |times: &[Duration]| match (times.get(times.len() / 2), times.last()) {
            (Some(median), Some(longest)) => {
                format!("median {} ms, at most {} ms", median.as_millis(), longest.as_millis())
            }
            _ => "none".to_owned(),
        };
        let (count, name) = (self.affected.len(), self.fault.name());
        let [affected, others, resumed] = [&self.affected, &self.others, &self.resumed].map(|times| words(times));
        write!(
            f,
            "without a grant in {count} x {name}: {affected}; other keys: {others}; first grant after its end: {resumed}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(lines: Vec<HistoryLine>) -> History {
        History { lines }
    }

    fn granted(key: &str, at: u64) -> HistoryLine {
        HistoryLine::new(pulse::NAME, &pulse::key_beside(key), Op::Acquire, at, at)
    }

    #[test]
    fn the_longest_time_without_a_grant_begins_before_the_fault_and_ends_after_it() {
        let fault = HistoryLine::new("slot 1", "a", Op::Fault, 1200, 1500).what(Fault::MoveSlot.name());
        let other = HistoryLine::new("slot 2", "b", Op::Fault, 9000, 9100).what(Fault::MoveSlot.name());
        let grants = [("a", 1000), ("a", 4000), ("a", 9000), ("b", 1100), ("b", 1300), ("b", 8990), ("b", 9200)];
        let end = HistoryLine::new("run", &pulse::key_beside("a"), Op::Heal, 1500, 1500).what(Fault::MoveSlot.name());
        let lines = grants.into_iter().map(|(key, at)| granted(key, at)).chain([fault, end, other]).collect();
        let found = outages(&history(lines));
        let micros = |times: &[u64]| times.iter().copied().map(Duration::from_micros).collect::<Vec<_>>();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].affected, micros(&[210, 3000]));
        assert_eq!(found[0].others, micros(&[5000, 7690]));
        assert_eq!(found[0].resumed, micros(&[2500]));
        assert_eq!(
            found[0].to_string(),
            "without a grant in 2 x move slot: median 3 ms, at most 3 ms; other keys: median 7 ms, at most 7 ms; \
             first grant after its end: median 2 ms, at most 2 ms"
        );
    }
}
