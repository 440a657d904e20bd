use fencelock_core::quorum::Settings;
use fencelock_core::{Acquire, Downgrade, Fault, FencingToken, Moment, Raise, Release, Renew, Span, Unknown};
use std::time::Duration;

/// A request is cancelled this long after it has timed out, because no reply is expected any more.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(5);

/// One call to all nodes of a quorum, as a state machine without I/O: [`super::ClaimCall`], [`super::ReleaseCall`],
/// [`super::RenewCall`] and [`super::DowngradeCall`].
///
/// A driver reports what happened, and carries out the actions that the call adds to `out`, in order, until the call
/// [is over](Call::is_over). That is later than its [result](CallAction::Done): requests and releases continue in the
/// background. The driver reuses the list of actions.
pub(crate) trait Call {
    /// The result for the caller.
    type Output;

    /// Sends the first requests.
    fn start(&mut self, now: Moment, out: &mut Vec<CallAction<Self::Output>>);

    /// The answer of a node to [`CallAction::Send`].
    fn on_reply(&mut self, node: usize, reply: NodeReply, now: Moment, out: &mut Vec<CallAction<Self::Output>>);

    /// A timer set by [`CallAction::SetTimer`] has fired.
    fn on_timer(&mut self, timer: CallTimer, now: Moment, out: &mut Vec<CallAction<Self::Output>>);

    /// The caller has received the result.
    fn on_taken(&mut self) {}

    /// The caller has stopped waiting for the result.
    fn on_dropped(&mut self, now: Moment, out: &mut Vec<CallAction<Self::Output>>);

    /// Whether no request and no timer is left.
    fn is_over(&self) -> bool;

    /// The greatest fence that any node has reported.
    fn last_fence(&self) -> u64 {
        0
    }
}

/// A request to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NodeRequest {
    /// The claim. It proposes the same tokens to every node.
    Claim,
    /// [`Request::Raise`](crate::Request::Raise) to this token.
    Raise(FencingToken),
    /// The batch of renewals.
    Renew,
    /// The downgrade. It proposes the same token to every node.
    Downgrade,
    /// A release of the lock of the call's holder.
    Release,
    /// Wait until no claim of this holder is in flight to the node.
    ClaimEnd,
    /// [`crate::Backend::watch`].
    Watch,
}

/// The answer to a [`NodeRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NodeReply {
    /// To [`NodeRequest::Claim`].
    Claim(Result<Acquire, Unknown>),
    /// To [`NodeRequest::Raise`].
    Raise(Result<Raise, Unknown>),
    /// To [`NodeRequest::Renew`], in the order of the batch.
    Renew(Vec<Result<Renew, Unknown>>),
    /// To [`NodeRequest::Downgrade`].
    Downgrade(Result<Downgrade, Unknown>),
    /// To [`NodeRequest::Release`].
    Release(Result<Release, Unknown>),
    /// To [`NodeRequest::ClaimEnd`].
    ClaimEnd,
    /// To [`NodeRequest::Watch`]. The call ignores the result.
    Watch,
}

/// A timer of one call. Setting it again moves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallTimer {
    /// For the call as a whole.
    Call,
    /// For the raise of this node.
    Raise(usize),
    /// For any other request to this node.
    Node(usize),
}

/// What the driver of a [`Call`] must do.
#[derive(Debug, Clone)]
pub(crate) enum CallAction<T> {
    /// Send a request and report the answer to [`Call::on_reply`].
    Send {
        /// To this node.
        node: usize,
        /// The request.
        request: NodeRequest,
    },
    /// Stop waiting for the reply to the request of this timer. A late reply has no effect.
    Cancel(CallTimer),
    /// Set this timer, so that [`Call::on_timer`] is called after this time, or stop it.
    SetTimer {
        /// The timer.
        timer: CallTimer,
        /// Duration from now; `None` stops the timer.
        after: Option<Duration>,
    },
    /// A node has answered in time, or has failed to: [`super::NodeHealth`].
    Health {
        /// The node.
        node: usize,
        /// Why it failed; `None` if it answered.
        failure: Option<Unknown>,
    },
    /// The result, once. Report whether the caller has received it: [`Call::on_taken`] or [`Call::on_dropped`].
    Done(T),
}

/// The node has not answered within `limit`.
pub(crate) fn no_answer(settings: &Settings, node: usize, limit: Duration) -> Unknown {
    Unknown::new(&*settings.names[node], Fault::Timeout, format!("timeout {}", Span(limit)))
}

/// Sends a request and sets the timer of the node.
pub(crate) fn send<T>(node: usize, request: NodeRequest, limit: Duration, out: &mut Vec<CallAction<T>>) {
    out.push(CallAction::Send { node, request });
    let timer = if matches!(request, NodeRequest::Raise(_)) { CallTimer::Raise(node) } else { CallTimer::Node(node) };
    out.push(CallAction::SetTimer { timer, after: Some(limit) });
}

pub(crate) fn stop<T>(timer: CallTimer, out: &mut Vec<CallAction<T>>) {
    out.push(CallAction::SetTimer { timer, after: None });
}
