//! Completions on a quorum: written to a majority, read from a majority.

use super::Quorum;
use super::calls::patience;
use super::inspection::faults;
use fencelock_core::quorum::{CompletionVerdict, CompletionVotes};
use fencelock_core::{
    ClearCompletion, Completion, CompletionRead, CountedSuccess, Fault, HolderId, Key, NodeFault, NodeVote, Outcome,
    Span, Tally, Unknown, WriteCompletion, once,
};

pub(crate) async fn read_stored(quorum: &Quorum, key: &Key) -> Result<CompletionRead, Unknown> {
    check_completions(quorum, key)?;
    quorum.enter().await?;
    let mut answers = quorum.send_to_all(key, patience, |node| {
        let key = key.clone();
        async move { node.as_backend().read_completion(&key).await }
    });
    let (mut votes, mut causes) = (CompletionVotes::new(quorum.settings.size), Vec::new());
    while let Some((node, answer)) = answers.recv().await {
        let read = known(answer, &mut causes)?;
        match votes.vote(node, read) {
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
    holder: HolderId,
    completion: &Completion,
) -> Result<WriteCompletion, Unknown> {
    check_completions(quorum, key)?;
    let mut answers = quorum.send_to_all(key, patience, |node| {
        let (key, completion) = (key.clone(), completion.clone());
        async move { node.as_backend().write_completion(&key, &holder, &completion).await }
    });
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
    let mut answers = quorum.send_to_all(key, patience, |node| {
        let (key, completion) = (key.clone(), done.stored());
        async move { node.restore_completion(&key, &completion).await }
    });
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
    let mut answers = quorum.send_to_all(key, patience, |node| {
        let key = key.clone();
        async move { node.as_backend().read_completion(&key).await }
    });
    while let Some((_, answer)) = answers.recv().await {
        answer?;
    }
    let mut answers = quorum.send_to_all(key, patience, |node| {
        let (key, seen) = (key.clone(), seen.clone());
        async move { node.as_backend().clear_completion(&key, &seen).await }
    });
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
            causes.extend(faults(&cause));
            Ok(None)
        }
    }
}

fn check_completions(quorum: &Quorum, key: &Key) -> Result<(), Unknown> {
    if has_completions(quorum) { Ok(()) } else { Err(once::unsupported(quorum.settings.backend.clone(), key)) }
}

pub(crate) fn has_completions(quorum: &Quorum) -> bool {
    quorum.nodes.iter().all(|node| node.backend.completions().is_some())
}

fn clocks_differ(quorum: &Quorum, apart: std::time::Duration) -> Unknown {
    let detail = format!(
        "the clocks of the nodes are {} apart, so the window is unknown: set them, for example with chrony",
        Span(apart)
    );
    Unknown::new(quorum.settings.backend.clone(), Fault::Other, detail)
}
