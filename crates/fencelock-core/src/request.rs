use crate::{
    Acquire, BackendReport, Claim, ClaimReply, ClearCompletion, Completion, CompletionRead, CountedSuccess, Downgrade,
    Eviction, Fault, FencingToken, Finding, HolderId, Holding, Key, Raise, Release, Renew, Renewal, Resize, Unknown,
    WriteCompletion,
};
use std::future::Future;
use std::pin::Pin;

/// A boxed future for trait objects.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a [`Backend`](crate::Backend) can be asked. Each request has one kind of [`Reply`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Request<'a> {
    /// Claims a key, in one of [`Capabilities::modes`](crate::Capabilities::modes). An implementation that opens a connection first
    /// says when it has sent the claim, or that it has not: [`ClaimReply`].
    ///
    /// A quorum proposes the token to grant to its nodes, in microseconds since 1970, if the time and the last grant of the node allow it:
    /// [`crate::next_proposed_block`]. Nodes with the same proposal usually grant the same token.
    Claim(&'a Claim, Option<u64>),
    /// Renews many leases. The answers have the order of the renewals. They come together, so a caller sends the
    /// renewals of each [group](crate::Backend::renewal_group) in a request of their own.
    Renew(&'a [Renewal]),
    /// Releases a hold, or leaves the queue.
    Release(&'a Key, &'a HolderId),
    /// The holding of a key; `None` if it is free.
    Inspect(&'a Key),
    /// Requests one [`crate::Event::Changed`] when the current hold of the key ends; immediately if it is free. The event
    /// is a hint: it may be late or missing. If a backend cannot do this, the client inspects the key once a second.
    Watch(&'a Key),
    /// Turns an exclusive hold into a shared one with a new fencing token, without a moment in which the key is free. Shared
    /// claims at the head of the queue are granted with it. The holder must treat its hold as shared from the moment at which it
    /// sends the request, and use the old token for nothing after that. A quorum proposes the new token, as for a claim: a node
    /// that ignores that needs one more round trip to agree with the others.
    Downgrade(&'a Renewal, Option<u64>),
    /// Changes the limit of a semaphore that is in use, in one step. All holders stay, even if they use more permits than the new
    /// limit: then nothing is granted until enough are returned. Where waiters form a queue, they wait for permits of the resized
    /// semaphore from then on, and those that now fit are granted; a waiter that wants more permits than the new limit
    /// leaves the queue. A new claim with the old limit is refused like any other limit. Nothing but a semaphore that is
    /// in use is changed.
    Resize(&'a Key, u32),
    /// Sets the token of this holder's hold to this one, unless the holder was granted a greater one, and raises the
    /// fence of the key to it: [`crate::raise_fence`]. Other holders of a shared lock keep their tokens.
    Raise(&'a Key, &'a HolderId, FencingToken),
    /// The held keys, in any order. A key that is acquired or released concurrently may or may not be included.
    List,
    /// Ends the holds that are listed, if none has ended since; renewals do not count. It may list one of several shared
    /// holders; then the others keep the key. The listeners of this object get [`Event::Changed`](crate::Event::Changed).
    Evict(&'a Holding),
    /// Tries what a lock does, and takes it back: [`crate::Trial`] with a key that no program uses, or with this one. It returns findings,
    /// also if it was not tried. Whatever is written is removed, and expires within 5 s if this program is killed. Nothing else is
    /// written: no directory, and no marker of a server that may have lost its locks.
    TryOut(Option<&'a Key>),
    /// Checks what the guarantees of the backend depend on: what it consists of, what works there, and a [`Finding`] for each check.
    /// It only reads.
    Diagnose,
    /// Reads the completion of a key, and the time of the backend.
    ReadCompletion(&'a Key),
    /// [Merges](Completion::merge) a completion into the stored one, if the holder holds the key exclusively, in one step. It stays
    /// until [`Completion::KEPT`] after its end at least. Anything else that is stored there is an error, and is not changed.
    WriteCompletion(&'a Key, &'a HolderId, &'a Completion),
    /// Makes sure that no later read before the end of this success misses its completion. A backend with one node stores it again if it
    /// would [forget it before](CountedSuccess::outlasts_its_completion); one that never forgets needs nothing for that.
    ConfirmCompletion(&'a Key, &'a CountedSuccess),
    /// Removes the completion that was read, or that of an earlier run. One of a later run is not changed.
    ClearCompletion(&'a Key, &'a Completion),
    /// [Merges](Completion::merge) a completion that was read, here or from another node, into the stored one. No hold is needed:
    /// the run that it belongs to held the key when the completion was written there.
    RestoreCompletion(&'a Key, &'a Completion),
}

impl<'a> Request<'a> {
    /// The key of a request about one key.
    pub const fn key(self) -> Option<&'a Key> {
        match self {
            Self::Claim(Claim { key, .. }, _)
            | Self::Release(key, _)
            | Self::Inspect(key)
            | Self::Watch(key)
            | Self::Downgrade(Renewal { key, .. }, _)
            | Self::Resize(key, _)
            | Self::Raise(key, ..)
            | Self::Evict(Holding { key, .. })
            | Self::ReadCompletion(key)
            | Self::WriteCompletion(key, ..)
            | Self::ConfirmCompletion(key, _)
            | Self::ClearCompletion(key, _)
            | Self::RestoreCompletion(key, _) => Some(key),
            Self::TryOut(key) => key,
            Self::Renew(_) | Self::List | Self::Diagnose => None,
        }
    }

    /// The reply of a backend that does not know this request. Nothing was changed.
    pub fn unsupported(self, backend: impl Into<String>) -> Reply {
        let why = match self {
            Self::Watch(_) => "this backend sends no events",
            Self::Downgrade(..) => "no lock is downgraded here",
            Self::Resize(..) => "no semaphore is resized here",
            Self::List => "this backend does not list its locks",
            Self::Evict(_) => {
                let why = "this backend cannot end the hold of another client: stop its process";
                return Eviction::Refused(why.to_owned()).into();
            }
            Self::TryOut(_) => return vec![Finding::not_tried("this backend does not support a trial", "")].into(),
            Self::Diagnose => return BackendReport::default().into(),
            Self::ReadCompletion(key)
            | Self::WriteCompletion(key, ..)
            | Self::ConfirmCompletion(key, _)
            | Self::ClearCompletion(key, _)
            | Self::RestoreCompletion(key, _) => &format!(
                "it does not store completions, and {key} needs one to run once per window: use another backend"
            ),
            _ => "this backend does not know this request",
        };
        Unknown::new(backend, Fault::Unsupported, why).into()
    }
}

/// The reply to a [`Request`]. What it contains converts to it, and so does a `Result` of that.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Reply {
    /// The request may have been executed, unless [`Unknown::changed_nothing`].
    Unknown(Unknown),
    /// To a watch, and to a completion that is confirmed or restored.
    Done(()),
    /// To a claim.
    Claim(ClaimReply),
    /// To many renewals.
    Renew(Vec<Result<Renew, Unknown>>),
    /// To a release.
    Release(Release),
    /// To an inspection.
    Inspect(Box<Option<Holding>>),
    /// To a downgrade.
    Downgrade(Downgrade),
    /// To another limit.
    Resize(Resize),
    /// To a raise.
    Raise(Raise),
    /// To a list.
    List(Vec<Holding>),
    /// To an eviction.
    Evict(Eviction),
    /// To a trial.
    Findings(Vec<Finding>),
    /// To a diagnosis.
    Report(Box<BackendReport>),
    /// To the read of a completion.
    Completion(CompletionRead),
    /// To the write of a completion.
    Written(WriteCompletion),
    /// To the removal of a completion.
    Cleared(ClearCompletion),
}

impl Reply {
    /// A future for [`Backend::call`](crate::Backend::call). It has the size of that of `answer`.
    pub fn of<'a, T: Into<Self>, F: Future<Output = T> + Send + 'a>(
        answer: impl FnOnce() -> F + Send + 'a,
    ) -> BoxFuture<'a, Self> {
        Box::pin(async { answer().await.into() })
    }

    fn into_unknown(self) -> Unknown {
        match self {
            Self::Unknown(cause) => cause,
            _ => Unknown::new("backend", Fault::Other, "the reply belongs to another request"),
        }
    }
}

macro_rules! kinds {
    ($($kind:ident($type:ty) $(by $put:path, $take:tt)?;)*) => {$(
        impl From<$type> for Reply {
            fn from(answer: $type) -> Self {
                Self::$kind($($put)?(answer))
            }
        }

        impl TryFrom<Reply> for $type {
            type Error = Unknown;

            fn try_from(reply: Reply) -> Result<Self, Unknown> {
                match reply {
                    Reply::$kind(answer) => Ok($($take)? answer),
                    other => Err(other.into_unknown()),
                }
            }
        }
    )*};
}

// Rare and large ones are boxed: every claim would move their size.
kinds! {
    Done(());
    Claim(ClaimReply);
    Renew(Vec<Result<Renew, Unknown>>);
    Release(Release);
    Inspect(Option<Holding>) by Box::new, *;
    Downgrade(Downgrade);
    Resize(Resize);
    Raise(Raise);
    List(Vec<Holding>);
    Evict(Eviction);
    Findings(Vec<Finding>);
    Report(BackendReport) by Box::new, *;
    Completion(CompletionRead);
    Written(WriteCompletion);
    Cleared(ClearCompletion);
}

impl From<Acquire> for Reply {
    fn from(answer: Acquire) -> Self {
        Self::Claim(Ok(answer).into())
    }
}

impl From<Unknown> for Reply {
    fn from(cause: Unknown) -> Self {
        Self::Unknown(cause)
    }
}

impl<T: Into<Self>> From<Result<T, Unknown>> for Reply {
    fn from(answer: Result<T, Unknown>) -> Self {
        answer.map_or_else(Self::Unknown, Into::into)
    }
}

/// What a caller gets for a reply.
pub trait FromReply {
    /// The answer to one request, or to so `many` renewals.
    fn from_reply(reply: Reply, many: usize) -> Self;
}

impl<T: TryFrom<Reply, Error = Unknown>> FromReply for Result<T, Unknown> {
    fn from_reply(reply: Reply, _: usize) -> Self {
        T::try_from(reply)
    }
}

impl FromReply for ClaimReply {
    fn from_reply(reply: Reply, _: usize) -> Self {
        Self::try_from(reply).unwrap_or_else(|cause| Err(cause).into())
    }
}

impl FromReply for Vec<Result<Renew, Unknown>> {
    fn from_reply(reply: Reply, many: usize) -> Self {
        Self::try_from(reply).unwrap_or_else(|cause| vec![Err(cause); many])
    }
}

impl FromReply for Vec<Finding> {
    fn from_reply(reply: Reply, _: usize) -> Self {
        Self::try_from(reply).unwrap_or_else(|cause| vec![Finding::not_tried(cause.to_string(), "")])
    }
}

impl FromReply for BackendReport {
    fn from_reply(reply: Reply, _: usize) -> Self {
        Self::try_from(reply).unwrap_or_else(|cause| Self::unreachable(cause.to_string(), "", ""))
    }
}
