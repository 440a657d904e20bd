//! A table of rounds, and properties of every round.

use super::{Defeat, Quorum, Raise, Round, Verdict, Vote, next_proposed_block, proposal};
use crate::{Drift, FencingToken, Moment, TokenBlock};
use proptest::prelude::*;
use std::fmt::Write;
use std::num::NonZeroU32;
use std::time::Duration;

fn round(nodes: usize) -> Round {
    Round::new(Quorum::new(nodes).unwrap(), Moment::from_micros(0))
}

fn granted(fence: u64) -> Vote {
    Vote::Granted(FencingToken::new(fence).unwrap().into())
}

/// `5..9` or `9`.
fn tokens(word: &str) -> TokenBlock {
    let (first, last) = word.split_once("..").unwrap_or((word, word));
    let (first, last): (u32, u32) = (first.parse().unwrap(), last.parse().unwrap());
    let count = NonZeroU32::new(last - first + 1).unwrap();
    TokenBlock::ending(FencingToken::new(last.into()).unwrap(), count)
}

/// `7` granted with fence 7, `5..7` with three tokens, `b` busy, `q` in quarantine, `-` no answer.
fn vote(word: &str) -> Vote {
    match word {
        "b" => Vote::Busy { last_fence: 0 },
        "q" => Vote::Refused,
        "-" => Vote::Unknown,
        block => Vote::Granted(tokens(block)),
    }
}

fn said(verdict: Verdict) -> String {
    match verdict {
        Verdict::Pending => "pending".into(),
        Verdict::Won(tokens) if tokens.first() == tokens.last() => format!("won {}", tokens.last()),
        Verdict::Won(tokens) => format!("won {}..{}", tokens.first(), tokens.last()),
        Verdict::Raise { to, nodes } => nodes.iter().fold(format!("raise {to} on"), |mut text, node| {
            write!(text, " {}", node + 1).unwrap();
            text
        }),
        Verdict::Lost(Defeat::Busy) => "lost: busy".into(),
        Verdict::Lost(Defeat::Unreachable) => "lost: unreachable".into(),
        Verdict::Lost(Defeat::Overtaken) => "lost: overtaken".into(),
    }
}

/// `n=3 votes=5,7,-`: votes of nodes 1, 2, 3 in this order; `.` has not arrived. Then, in order: `grace` is over, `+1`
/// node 1 acks the raise, `!1` node 1 refuses it, `1=7` a late vote.
fn play(line: &str) -> String {
    let mut words = line.split_whitespace();
    let nodes = words.next().unwrap().strip_prefix("n=").unwrap().parse().unwrap();
    let votes = words.next().unwrap().strip_prefix("votes=").unwrap();
    let mut round = round(nodes);
    let mut verdict = Verdict::Pending;
    for (node, word) in votes.split(',').enumerate().filter(|(_, word)| *word != ".") {
        verdict = round.vote(node, vote(word));
    }
    let number = |text: &str| text.parse::<usize>().unwrap() - 1;
    for word in words {
        verdict = match (word.split_at(1), word.split_once('=')) {
            (("+", node), _) => round.raised(number(node), Raise::Acked),
            (("!", node), _) => round.raised(number(node), Raise::Refused),
            (_, Some((node, late))) => round.vote(number(node), vote(late)),
            _ => round.grace_over(),
        };
    }
    said(verdict)
}

const TABLE: &[(&str, &str)] = &[
    // One node is a quorum: its first reply decides.
    ("n=1 votes=5", "won 5"),
    ("n=1 votes=b", "lost: busy"),
    ("n=1 votes=q", "lost: unreachable"),
    ("n=1 votes=-", "lost: unreachable"),
    // Two nodes must both agree.
    ("n=2 votes=5", "pending"),
    ("n=2 votes=5,5", "won 5"),
    ("n=2 votes=5,b", "lost: busy"),
    ("n=2 votes=5,-", "lost: unreachable"),
    ("n=2 votes=5,7", "raise 7 on 1"),
    ("n=2 votes=5,7 +1", "won 7"),
    ("n=2 votes=5,7 !1", "lost: overtaken"),
    // Two equal grants of three win in one round trip, whatever the third vote is.
    ("n=3 votes=7,7", "won 7"),
    ("n=3 votes=5,7", "pending"),
    ("n=3 votes=5,7,7", "won 7"),
    ("n=3 votes=7,b,7", "won 7"),
    ("n=3 votes=7,-,7", "won 7"),
    ("n=3 votes=7,7,9", "won 7"),
    // Different grants are raised to the greatest: at once if all nodes have answered, else after the grace period.
    ("n=3 votes=5,7,9", "raise 9 on 1 2"),
    ("n=3 votes=5,7,-", "raise 7 on 1 3"),
    ("n=3 votes=5,7 grace", "raise 7 on 1 3"),
    ("n=3 votes=5 grace", "pending"),
    ("n=3 votes=5,. grace 2=7", "raise 7 on 1 3"),
    // Busy and quarantined nodes cannot ack.
    ("n=3 votes=5,7,b", "raise 7 on 1"),
    ("n=3 votes=5,7,q", "raise 7 on 1"),
    ("n=3 votes=5,7,b +1", "won 7"),
    ("n=3 votes=5,7,b !1", "lost: overtaken"),
    ("n=3 votes=5,7,9 !1", "pending"),
    ("n=3 votes=5,7,9 !1 +2", "won 9"),
    ("n=3 votes=5,7,9 !1 !2", "lost: overtaken"),
    // A node with a pending raise that has granted exactly that token counts as an ack.
    ("n=3 votes=5,7 grace 3=7", "won 7"),
    ("n=3 votes=5,7 grace 3=6", "pending"),
    ("n=3 votes=5,7 grace 3=6 +3", "won 7"),
    // Blocks of tokens are compared by their ends. Of equal ones, the smallest counts; after a raise, only the last token.
    ("n=1 votes=5..7", "won 5..7"),
    ("n=3 votes=5..7,5..7", "won 5..7"),
    ("n=3 votes=5..7,6..7", "won 6..7"),
    ("n=3 votes=1..7,4..6,3..7", "won 3..7"),
    ("n=3 votes=5..7,7", "won 7"),
    ("n=3 votes=4..5,6..7 grace", "raise 7 on 1 3"),
    ("n=3 votes=4..5,6..7 grace +1", "won 7"),
    ("n=3 votes=4..5,6..7 grace 3=6..7", "won 7"),
    // A round is lost as soon as no majority is possible.
    ("n=3 votes=b,b", "lost: busy"),
    ("n=3 votes=5,b,b", "lost: busy"),
    ("n=3 votes=5,b,-", "lost: busy"),
    ("n=3 votes=-,-", "lost: unreachable"),
    ("n=3 votes=q,-", "lost: unreachable"),
    ("n=3 votes=-,5,- 1=5", "lost: unreachable"),
    ("n=3 votes=-,5 1=5", "won 5"),
    // Nothing changes a verdict, and no node counts twice.
    ("n=3 votes=7,7 3=b", "won 7"),
    ("n=3 votes=7 1=7", "pending"),
    ("n=3 votes=7 9=7", "pending"),
    ("n=3 votes=b 1=7", "pending"),
    ("n=3 votes=5,7,- +3 +3", "won 7"),
    ("n=5 votes=5,7,7,-,b +1 +1", "won 7"),
    ("n=5 votes=5,7,8,-,- +1 +1", "pending"),
    // Ties and even numbers decide.
    ("n=4 votes=7,7", "pending"),
    ("n=4 votes=7,7,b,b", "lost: busy"),
    ("n=4 votes=7,7,b,7", "won 7"),
    ("n=4 votes=7,7,8,8", "raise 8 on 1 2"),
    ("n=4 votes=7,7,8,8 +1", "won 8"),
    ("n=4 votes=7,7,8,8 !1 !2", "lost: overtaken"),
    ("n=5 votes=7,7,8,8,-", "raise 8 on 1 2 5"),
    ("n=5 votes=7,b,7,b,7", "won 7"),
    ("n=5 votes=7,b,-,b", "lost: busy"),
    ("n=5 votes=-,-,q", "lost: unreachable"),
];

#[test]
fn the_table_reads_as_the_algorithm() {
    for (line, expected) in TABLE {
        assert_eq!(play(line), *expected, "{line}");
    }
}

#[test]
fn a_lease_counts_from_the_sending_and_only_a_won_round_has_one() {
    let (ttl, drift) = (Duration::from_secs(10), Drift::default());
    let mut round = round(1);
    assert_eq!(round.lease(ttl, drift, Moment::from_micros(1)), None);
    round.vote(0, granted(5));
    let lease = round.lease(ttl, drift, Moment::from_micros(1)).unwrap();
    assert_eq!(lease.until(), Moment::from_micros(9_898_000));
    assert_eq!(round.lease(ttl, drift, lease.until()), None, "it took as long as its lease");
}

#[test]
fn a_split_majority_needs_grace_until_it_is_decided() {
    let mut round = round(3);
    round.vote(0, granted(5));
    assert!(!round.is_split());
    round.vote(1, granted(6));
    assert!(round.is_split());
    round.grace_over();
    assert!(!round.is_split());
}

fn any_vote() -> impl Strategy<Value = Vote> {
    prop_oneof![
        4 => (5..8u64).prop_map(granted),
        1 => Just(Vote::Busy { last_fence: 9 }),
        1 => Just(Vote::Refused),
        1 => Just(Vote::Unknown),
    ]
}

/// Nodes in some order, each with its vote.
fn any_votes() -> impl Strategy<Value = Vec<(usize, Vote)>> {
    prop::collection::vec(any_vote(), 1..8).prop_map(|votes| votes.into_iter().enumerate().collect::<Vec<_>>())
}

fn last_word(nodes: usize, votes: &[(usize, Vote)]) -> Verdict {
    let mut round = round(nodes);
    votes.iter().fold(Verdict::Pending, |_, &(node, vote)| round.vote(node, vote))
}

/// Five nodes with clocks of their own, at a load that uses up tokens faster than time passes.
#[test]
fn tokens_that_are_ahead_of_the_time_are_granted_in_blocks() {
    const CLOCKS: [u64; 5] = [0, 60, 140, 25, 95];
    // Both are times in microseconds: a token is a microsecond of the fence.
    let (wanted, round_trip) = (NonZeroU32::new(100_000).unwrap(), 400);
    // The clock of the client is ahead of all.
    let client_ahead = 100_000;
    let (mut now, mut fences, mut blocks) = (1_780_000_000_000_000, [0; 5], Vec::new());
    for _ in 0..2000 {
        let mut round = round(5);
        let mut verdict = Verdict::Pending;
        let proposal = proposal(now + client_ahead, fences.into_iter().max().unwrap(), wanted);
        for (node, fence) in fences.iter_mut().enumerate() {
            let granted = next_proposed_block(*fence, proposal, Some(now + CLOCKS[node]), wanted).unwrap();
            *fence = granted.last().get();
            verdict = round.vote(node, Vote::Granted(granted));
        }
        if let Verdict::Raise { to, nodes } = verdict {
            now += round_trip;
            fences = [to.get(); 5];
            verdict = nodes.iter().fold(verdict, |_, node| round.raised(node, Raise::Acked));
        }
        let Verdict::Won(tokens) = verdict else { panic!("{verdict:?}") };
        blocks.push(tokens.count().get());
        // The tasks use two tokens a microsecond.
        now += round_trip + u64::from(tokens.count().get() / 2);
    }
    let granted: u32 = blocks[1000..].iter().sum();
    assert!(granted > 1000 * 300, "{granted} tokens in the second half: {:?}", &blocks[1990..]);
}

proptest! {
    #[test]
    fn the_order_of_the_votes_does_not_matter(
        (votes, shuffled) in any_votes().prop_flat_map(|votes| (Just(votes.clone()), Just(votes).prop_shuffle()))
    ) {
        match (last_word(votes.len(), &votes), last_word(votes.len(), &shuffled)) {
            (Verdict::Lost(_), Verdict::Lost(_)) => {}
            (one, other) => prop_assert_eq!(one, other),
        }
    }

    #[test]
    fn a_round_with_every_answer_is_decided(votes in any_votes(), acks in prop::collection::vec(any::<bool>(), 8)) {
        let mut round = round(votes.len());
        let mut verdict = Verdict::Pending;
        for (node, vote) in votes {
            verdict = round.vote(node, vote);
        }
        if let Verdict::Raise { nodes, .. } = verdict {
            for node in nodes.iter() {
                verdict = round.raised(node, if acks[node] { Raise::Acked } else { Raise::Refused });
            }
        }
        prop_assert!(matches!(verdict, Verdict::Won(_) | Verdict::Lost(_)), "{:?}", verdict);
    }
}
