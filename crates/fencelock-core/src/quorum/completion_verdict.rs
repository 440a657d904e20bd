use super::Quorum;
use crate::CompletionRead;
use std::time::Duration;

/// The maximum difference between the clocks of a majority of the nodes. These clocks define where windows begin; with
/// a greater difference, a client could confuse the next window with the current one.
const CLOCKS_APART: Duration = Duration::from_secs(5);

/// The result of a read on all nodes.
///
/// A completion counts if any node of a majority has it: a write is confirmed by a majority, and two majorities share a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CompletionVerdict {
    /// Wait for more replies.
    Pending,
    /// A majority has replied. The completion is that of all nodes together, the time is that of the median node.
    Read(CompletionRead),
    /// No majority replied.
    Unknown,
    /// The clocks of the nodes differ by this much, so the window is unknown.
    ClocksDiffer(Duration),
}

impl CompletionVerdict {
    /// The result of these replies, one for each node that is not waited for any more; `None` if it did not reply.
    pub fn of(quorum: Quorum, replies: &[Option<CompletionRead>]) -> Self {
        let (majority, pending) = (quorum.majority(), quorum.nodes() - replies.len());
        let mut times: Vec<u64> = replies.iter().flatten().map(|read| read.now_micros).collect();
        if times.len() + pending < majority {
            return Self::Unknown;
        }
        if times.len() < majority {
            return Self::Pending;
        }
        times.sort_unstable();
        let median = times[(times.len() - 1) / 2];
        let apart = |time: &u64| Duration::from_micros(time.abs_diff(median));
        if times.iter().filter(|time| apart(time) <= CLOCKS_APART).count() >= majority {
            let seen = replies.iter().flatten().filter_map(|read| read.completion.clone());
            let completion = seen.reduce(|one, other| one.merge(other, median));
            return Self::Read(CompletionRead { completion, now_micros: median });
        }
        if pending > 0 {
            return Self::Pending;
        }
        Self::ClocksDiffer(times.iter().map(apart).max().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Completion, FencingToken, Owner};

    const SECOND: u64 = 1_000_000;

    fn completion(until: u64) -> Completion {
        Completion::new(until, FencingToken::new(7).unwrap(), 1, Owner::from_text("web-1:42"))
    }

    #[allow(clippy::unnecessary_wraps, reason = "a node may not reply")]
    fn read(until: Option<u64>, now: u64) -> Option<CompletionRead> {
        Some(CompletionRead { completion: until.map(completion), now_micros: now })
    }

    fn verdict(nodes: usize, replies: &[Option<CompletionRead>]) -> CompletionVerdict {
        CompletionVerdict::of(Quorum::new(nodes).unwrap(), replies)
    }

    #[test]
    fn a_completion_of_any_node_of_a_majority_counts() {
        let seen = verdict(3, &[read(None, 5), read(Some(9), 6)]);
        assert_eq!(seen, CompletionVerdict::Read(read(Some(9), 5).unwrap()));
        let later = verdict(3, &[None, read(Some(8), 5), read(Some(9), 6)]);
        assert_eq!(later, CompletionVerdict::Read(read(Some(9), 5).unwrap()));
    }

    #[test]
    fn a_minority_is_no_answer() {
        assert_eq!(verdict(3, &[read(Some(9), 5)]), CompletionVerdict::Pending);
        assert_eq!(verdict(3, &[read(Some(9), 5), None, None]), CompletionVerdict::Unknown);
        assert_eq!(verdict(3, &[None, None]), CompletionVerdict::Unknown);
        assert_eq!(verdict(5, &[read(None, 5), read(None, 5)]), CompletionVerdict::Pending);
    }

    #[test]
    fn one_wrong_clock_of_three_does_no_harm() {
        for wrong in [0, 900 * SECOND] {
            let replies = [read(None, 100 * SECOND), read(None, wrong), read(None, 102 * SECOND)];
            assert_eq!(verdict(3, &replies[..2]), CompletionVerdict::Pending, "two clocks are no majority that agrees");
            let CompletionVerdict::Read(read) = verdict(3, &replies) else { panic!("{wrong}") };
            assert!([100 * SECOND, 102 * SECOND].contains(&read.now_micros), "{read:?}");
        }
        let apart = verdict(3, &[read(None, 100 * SECOND), None, read(None, 106 * SECOND)]);
        assert_eq!(apart, CompletionVerdict::ClocksDiffer(Duration::from_secs(6)));
    }

    #[test]
    fn the_later_run_of_all_nodes_counts_until_the_later_end() {
        let run = Completion { token: FencingToken::new(8).unwrap(), ..completion(8) };
        let replies = [read(Some(9), 5), Some(CompletionRead::new(Some(run.clone()), 5))];
        let CompletionVerdict::Read(read) = verdict(3, &replies) else { panic!() };
        assert_eq!(read.completion, Some(Completion { until_micros: 9, ..run }));
    }

    #[test]
    fn clocks_may_be_5_s_apart_and_a_run_in_the_future_does_not_count() {
        let apart = verdict(3, &[read(None, 100 * SECOND), read(None, 105 * SECOND)]);
        assert_eq!(apart, CompletionVerdict::Read(read(None, 100 * SECOND).unwrap()));
        // A run in the future by the median clock gives way, whatever its token is.
        let now = 100_000 * SECOND;
        let future =
            Completion { granted_micros: 2 * now, token: FencingToken::new(9).unwrap(), ..completion(2 * now) };
        let replies = [Some(CompletionRead::new(Some(future), now)), read(Some(2 * now), now)];
        assert_eq!(verdict(3, &replies), CompletionVerdict::Read(read(Some(2 * now), now).unwrap()));
    }
}
