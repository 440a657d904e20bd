use crate::history::{History, HistoryLine, Op};
use std::collections::BTreeMap;

/// The content of the pictures.
#[derive(Debug, Default)]
pub(super) struct Timeline<'a> {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) faults: Vec<&'a HistoryLine>,
    pub(super) losses: Vec<&'a HistoryLine>,
    pub(super) writes: Vec<&'a HistoryLine>,
    pub(super) holds: BTreeMap<&'a str, Vec<Span<'a>>>,
}

/// A hold, for as long as its holder assumed that it has it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span<'a> {
    pub(super) acquire: &'a HistoryLine,
    pub(super) until: u64,
}

/// Tasks that share a lease, and a writer that downgrades, have one holder.
type Tenure<'a> = (&'a str, &'a str, Option<u64>);

fn tenure(line: &HistoryLine) -> Tenure<'_> {
    (&line.client, line.holder.as_deref().unwrap_or_default(), line.fence)
}

impl<'a> Timeline<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let mut timeline = Self { begin: u64::MAX, ..Self::default() };
        let mut ends: BTreeMap<Tenure<'_>, u64> = BTreeMap::new();
        let mut renewed: BTreeMap<Tenure<'_>, u64> = BTreeMap::new();
        let is_played = |line: &&HistoryLine| !line.key.contains("control");
        for line in history.lines.iter().filter(is_played) {
            if !matches!(line.op, Op::Control | Op::Expect | Op::Seen) {
                timeline.begin = timeline.begin.min(line.return_us);
                timeline.end = timeline.end.max(line.return_us);
            }
            let holder = tenure(line);
            match line.op {
                Op::Fault => timeline.faults.push(line),
                Op::Write | Op::Read => timeline.writes.push(line),
                Op::Lost | Op::Yield | Op::Release => {
                    if line.op == Op::Lost {
                        timeline.losses.push(line);
                    }
                    let at = if line.op == Op::Lost { line.return_us } else { line.invoke_us };
                    let end = ends.entry(holder).or_insert(at);
                    *end = at.min(*end);
                }
                Op::Renew => {
                    let until = renewed.entry(holder).or_default();
                    *until = line.valid_until_us.unwrap_or(0).max(*until);
                }
                _ => {}
            }
        }
        let grants = history.lines.iter().filter(is_played).filter(|line| line.is_grant());
        for acquire in grants {
            let holder = tenure(acquire);
            let lease = acquire.valid_until_us.unwrap_or(u64::MAX).max(renewed.get(&holder).copied().unwrap_or(0));
            let until = ends.get(&holder).map_or(lease, |end| lease.min(*end)).max(acquire.return_us);
            timeline.holds.entry(&acquire.key).or_default().push(Span { acquire, until });
        }
        timeline
    }
}

/// The colour of a process; grey without tokens.
pub(super) fn colour(client: &str) -> &'static str {
    const COLOURS: [&str; 8] = ["#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#e377c2", "#17becf", "#bcbd22", "#3b5b92"];
    match client {
        "foreign" => "#777",
        "run" => "#d9a400",
        _ => {
            let process = client.trim_start_matches('w').split('.').next().unwrap_or_default();
            COLOURS[process.parse::<usize>().unwrap_or(0) % COLOURS.len()]
        }
    }
}
