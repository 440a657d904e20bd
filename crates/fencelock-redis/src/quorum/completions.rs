//! Completions on a quorum: written to a majority, read from a majority.

use super::Quorum;
use super::calls::patience;
use fencelock_core::quorum::CompletionVerdict;
use fencelock_core::{
    ClearCompletion, Completion, CompletionRead, CountedSuccess, Fault, HolderId, Key, NodeFault, NodeVote, Outcome,
    Request, Span, Tally, Unknown, WriteCompletion,
};

pub(crate) async fn read_stored(quorum: &Quorum, key: &Key) -> Result<CompletionRead, Unknown> {
    quorum.enter().await?;
    let mut answers = quorum.send_to_all(key, patience, Request::ReadCompletion(key));
    let (mut replies, mut causes) = (Vec::new(), Vec::new());
    while let Some((_, answer)) = answers.recv().await {
        replies.push(known(answer, &mut causes)?);
        match CompletionVerdict::of(quorum.settings.size, &replies) {
            CompletionVerdict::Pending => {}
            CompletionVerdict::Read(read) => return Ok(read),
            CompletionVerdict::Unknown => break,
            CompletionVerdict::ClocksDiffer(apart) => return Err(clocks_differ(quorum, apart)),
        }
    }
    Err(Unknown::of_nodes(causes))
}

/// A node counts only if it confirms that the holder holds the key.
pub(crate) async fn write_stored(
    quorum: &Quorum,
    key: &Key,
    holder: &HolderId,
    completion: &Completion,
) -> Result<WriteCompletion, Unknown> {
    let mut answers = quorum.send_to_all(key, patience, Request::WriteCompletion(key, holder, completion));
    let (mut tally, mut causes) = (Tally::new(quorum.settings.size), Vec::new());
    while let Some((node, answer)) = answers.recv().await {
        let standing = match known(answer, &mut causes)? {
            Some(WriteCompletion::Written) => NodeVote::Ours,
            Some(WriteCompletion::NotHeld) => NodeVote::Absent,
            None => NodeVote::Unknown,
        };
        match tally.vote(node, standing) {
            Outcome::Ours => return Ok(WriteCompletion::Written),
            Outcome::Absent | Outcome::Taken => return Ok(WriteCompletion::NotHeld),
            Outcome::Pending | Outcome::Unknown => {}
        }
    }
    Err(Unknown::of_nodes(causes))
}

/// Writes a completion to the nodes again, until a majority has it.
pub(crate) async fn confirm_stored(quorum: &Quorum, key: &Key, done: &CountedSuccess) -> Result<(), Unknown> {
    let completion = done.stored();
    let mut answers = quorum.send_to_all::<()>(key, patience, Request::RestoreCompletion(key, &completion));
    let (mut confirmed, mut causes) = (0, Vec::new());
    while let Some((_, answer)) = answers.recv().await {
        confirmed += usize::from(known(answer, &mut causes)?.is_some());
        if confirmed >= quorum.settings.size.majority() {
            return Ok(());
        }
    }
    Err(Unknown::of_nodes(causes))
}

/// Every node must answer: a later read would find a completion that is left on one node, and restore it.
pub(crate) async fn clear_stored(quorum: &Quorum, key: &Key, seen: &Completion) -> Result<ClearCompletion, Unknown> {
    // If a node is unreachable, nothing is removed.
    let mut answers = quorum.send_to_all::<CompletionRead>(key, patience, Request::ReadCompletion(key));
    while let Some((_, answer)) = answers.recv().await {
        answer?;
    }
    let mut answers = quorum.send_to_all::<ClearCompletion>(key, patience, Request::ClearCompletion(key, seen));
    let (mut seen_by, mut causes) = (Vec::new(), Vec::new());
    while let Some((_, answer)) = answers.recv().await {
        seen_by.extend(known(answer, &mut causes)?);
    }
    if seen_by.len() < quorum.nodes.len() {
        return Err(Unknown::of_nodes(causes));
    }
    // If one node has another completion, a later run has written it.
    let any = [ClearCompletion::Changed, ClearCompletion::Cleared].into_iter().find(|answer| seen_by.contains(answer));
    Ok(any.unwrap_or(ClearCompletion::Absent))
}

/// `None` if the node did not answer. A completion that a node cannot read is an error of the call.
fn known<T>(answer: Result<T, Unknown>, causes: &mut Vec<NodeFault>) -> Result<Option<T>, Unknown> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(cause) if cause.nodes().iter().any(|node| node.fault == Fault::Unsupported) => Err(cause),
        Err(cause) => {
            causes.extend_from_slice(cause.nodes());
            Ok(None)
        }
    }
}

fn clocks_differ(quorum: &Quorum, apart: std::time::Duration) -> Unknown {
    let detail = format!(
        "the clocks of the nodes are {} apart, so the window is unknown: set them, for example with chrony",
        Span(apart)
    );
    Unknown::new(quorum.settings.backend.clone(), Fault::Other, detail)
}
