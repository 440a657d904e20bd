//! The calls of a quorum as state machines without I/O: what `fencelock-redis` does with its nodes in async functions.

mod call;
mod claim_call;
mod downgrade_call;
mod raises;
mod release_call;
mod renew_call;

pub(crate) use call::{Call, CallAction, CallTimer, NodeReply, NodeRequest};
pub(crate) use claim_call::ClaimCall;
pub(crate) use downgrade_call::DowngradeCall;
pub(crate) use release_call::ReleaseCall;
pub(crate) use renew_call::RenewCall;
