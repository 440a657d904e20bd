use crate::report::TRIAL;
use crate::{
    Acquire, Backend, BoxFuture, Claim, ClearCompletion, Completion, Downgrade, Eviction, Fault, FencingToken, Finding,
    Holder, HolderId, Holding, Intent, Key, Mode, Owner, Release, Renew, Renewal, Resize, Ttl, Unknown,
    WriteCompletion,
};
use std::fmt::Debug;
use std::time::Duration;

/// How long a key of a trial lasts at most, if its program is killed.
const TTL: Duration = Duration::from_secs(4);

/// A trial of everything that a lock does: on a key that no other client uses, and each operation of the backend once.
///
/// A released lock leaves something, which the backend removes.
#[derive(Debug)]
pub struct Trial<'a> {
    backend: &'a dyn Backend,
    key: Key,
    holders: [Holder; 2],
    ttl: Ttl,
}

/// What a trial found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Tried {
    /// What works.
    pub works: Vec<&'static str>,
    /// What does not work: the feature, the operation that failed, and the cause.
    pub failures: Vec<(&'static str, &'static str, Unknown)>,
    /// Another client uses the key, so the rest was not tried.
    pub is_occupied: bool,
}

/// Why a part of the trial ended.
enum Stop {
    Failed(&'static str, Unknown),
    Occupied,
}

/// What is tried together, from a free key to a free key: its feature, what the finding says that works, and whether it is there.
type Part<'a> = (&'static str, &'static str, bool, BoxFuture<'a, Result<(), Stop>>);

impl<'a> Trial<'a> {
    /// A trial of `backend` with the key that is named, or with one that no program uses, with `tag` at its end.
    /// `fill` gives random bytes; without them there is none, but [`Trial::impossible`].
    pub fn new<E>(
        backend: &'a dyn Backend,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
        named: Option<&Key>,
        tag: &str,
    ) -> Option<Self> {
        let mut random = [[0; 16]; 3];
        fill(random.as_flattened_mut()).ok()?;
        let [name, ids @ ..] = random.map(HolderId::from_bytes);
        let own = || Key::new(format!("fencelock-doctor-{name}{tag}")).ok();
        let longest = backend.capabilities().longest_ttl.unwrap_or(TTL);
        let ttl = Ttl::new(TTL.min(longest)).unwrap_or_default();
        let holders = ids.map(|id| Holder { id, owner: Owner::from_text("fencelock-doctor") });
        Some(Self { backend, key: named.cloned().or_else(own)?, holders, ttl })
    }

    /// What is found without a trial.
    pub fn impossible() -> Finding {
        Finding::not_tried("the operating system returned no random numbers", "")
    }

    /// The key.
    pub const fn key(&self) -> &Key {
        &self.key
    }

    /// Ends the holds that it may have left; whether that is certain.
    pub async fn end_holds(&self) -> bool {
        let mut ended = true;
        for holder in &self.holders {
            ended &= self.backend.release(&self.key, &holder.id).await.is_ok();
        }
        ended
    }

    /// Tries each part. `clean` removes what the trial, or a part that failed, has left; if it cannot, the rest is not tried, and counts as
    /// failed.
    pub async fn run<'s>(&'s self, clean: &(dyn Fn() -> BoxFuture<'s, bool> + Sync)) -> Tried {
        let mut tried = Tried::default();
        let mut parts = self.parts().into_iter().filter(|(_, _, is_there, _)| *is_there);
        while let Some((feature, words, _, part)) = parts.next() {
            match part.await {
                Ok(()) => tried.works.push(words),
                Err(Stop::Occupied) => {
                    tried.is_occupied = true;
                    break;
                }
                Err(Stop::Failed(step, cause)) => {
                    tried.failures.push((feature, step, cause.clone()));
                    if !cause.is_permanent() || !clean().await {
                        // The same would happen to the rest.
                        tried.failures.extend(parts.map(|(feature, ..)| (feature, step, cause.clone())));
                        break;
                    }
                }
            }
        }
        if !tried.is_occupied {
            clean().await;
        }
        tried
    }

    fn parts(&self) -> [Part<'_>; 6] {
        let has = self.backend.capabilities();
        [
            ("exclusive_locks", "acquire, renew, inspect and release", true, Box::pin(self.exclusive())),
            ("exclusive_locks", "queue and hand-off", has.queues, Box::pin(self.queue())),
            ("once", "completions", has.completions, Box::pin(self.once())),
            ("shared_locks", "shared locks", has.modes.shared, Box::pin(self.shared())),
            ("semaphores", "semaphores", has.modes.permits, Box::pin(self.permits())),
            ("break", "break", has.evicts, Box::pin(self.breaking())),
        ]
    }

    async fn exclusive(&self) -> Result<(), Stop> {
        self.acquire(Mode::Exclusive).await?;
        self.renew().await?;
        self.inspect().await?;
        self.release(0).await?;
        // The first claim of a connection may be executed in another way than the next ones.
        self.acquire(Mode::Exclusive).await?;
        self.release(0).await
    }

    async fn queue(&self) -> Result<(), Stop> {
        self.acquire(Mode::Exclusive).await?;
        for intent in [Intent::Enqueue, Intent::Poll] {
            let queued = self.claim(1, intent, Mode::Exclusive).await;
            self.checked("wait in the queue", queued, |it| matches!(it, Acquire::Queued { .. }))?;
        }
        self.release(0).await?;
        let granted = self.claim(1, Intent::Poll, Mode::Exclusive).await;
        self.checked("hand over", granted, |it| matches!(it, Acquire::Granted { .. }))?;
        self.release(1).await
    }

    async fn once(&self) -> Result<(), Stop> {
        let token = self.acquire(Mode::Exclusive).await?;
        let read = self.checked("read a completion", self.backend.read_completion(&self.key).await, |_| true)?;
        let (now, owner) = (read.now_micros, self.holders[0].owner.clone());
        let done = Completion::new(now.saturating_add(1), token, now, owner);
        let written = self.backend.write_completion(&self.key, &self.holders[0].id, &done).await;
        self.checked("store a completion", written, |it| *it == WriteCompletion::Written)?;
        self.release(0).await?;
        let cleared = self.backend.clear_completion(&self.key, &done).await;
        self.checked("remove a completion", cleared, |it| *it == ClearCompletion::Cleared).map(drop)
    }

    async fn shared(&self) -> Result<(), Stop> {
        self.acquire(Mode::Exclusive).await?;
        let downgraded = self.backend.downgrade(&self.renewal()).await;
        self.checked("downgrade", downgraded, |it| matches!(it, Downgrade::Downgraded { .. }))?;
        let shared = self.claim(1, Intent::Try, Mode::Shared).await;
        self.checked("share", shared, |it| matches!(it, Acquire::Granted { .. }))?;
        self.renew().await?;
        self.release(0).await?;
        self.release(1).await
    }

    async fn permits(&self) -> Result<(), Stop> {
        self.acquire(Mode::Permits { weight: 1, limit: 2 }).await?;
        self.renew().await?;
        self.checked("resize", self.backend.resize(&self.key, 3).await, |it| matches!(it, Resize::Resized(_)))?;
        self.release(0).await
    }

    async fn breaking(&self) -> Result<(), Stop> {
        self.acquire(Mode::Exclusive).await?;
        let Some(held) = self.inspect().await? else { return Ok(()) };
        self.checked("break", self.backend.evict(&held).await, |it| *it == Eviction::Evicted).map(drop)
    }

    async fn acquire(&self, mode: Mode) -> Result<FencingToken, Stop> {
        match self.checked("acquire", self.claim(0, Intent::Try, mode).await, |_| true)? {
            Acquire::Granted { tokens } => Ok(tokens.last()),
            Acquire::Busy(_) => Err(Stop::Occupied),
            other => Err(self.unexpected("acquire", &other)),
        }
    }

    async fn claim(&self, holder: usize, intent: Intent, mode: Mode) -> Result<Acquire, Unknown> {
        let claim = Claim::new(self.key.clone(), self.holders[holder].clone(), self.ttl, intent).with_mode(mode);
        self.backend.acquire(&claim).await.answer
    }

    fn renewal(&self) -> Renewal {
        Renewal::new(self.key.clone(), self.holders[0].id, self.ttl)
    }

    async fn renew(&self) -> Result<(), Stop> {
        match self.backend.renew(&[self.renewal()]).await.pop() {
            Some(answer) => self.checked("renew", answer, |it| matches!(it, Renew::Renewed { .. })).map(drop),
            None => Err(self.unexpected("renew", &"none")),
        }
    }

    async fn inspect(&self) -> Result<Option<Holding>, Stop> {
        let has = |seen: &Option<Holding>| seen.as_ref().is_some_and(|seen| seen.has(self.holders[0].id));
        self.checked("inspect", self.backend.inspect(&self.key).await, has)
    }

    async fn release(&self, holder: usize) -> Result<(), Stop> {
        let released = self.backend.release(&self.key, &self.holders[holder].id).await;
        self.checked("release", released, |it| *it == Release::Released).map(drop)
    }

    fn checked<T: Debug>(
        &self,
        step: &'static str,
        answer: Result<T, Unknown>,
        is_expected: impl Fn(&T) -> bool,
    ) -> Result<T, Stop> {
        let answer = answer.map_err(|cause| Stop::Failed(step, cause))?;
        if is_expected(&answer) { Ok(answer) } else { Err(self.unexpected(step, &answer)) }
    }

    fn unexpected(&self, step: &'static str, answer: &impl Debug) -> Stop {
        let why = format!("the answer is {answer:?}, although the key is used by this trial only");
        Stop::Failed(step, Unknown::new(self.backend.name(), Fault::Other, why))
    }
}

impl Tried {
    /// The features that do not work, with the reasons.
    pub fn reasons(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.failures.iter().map(|(feature, step, cause)| (*feature, format!("cannot {step}: {}", cause.causes())))
    }

    /// The finding, with this advice for the first failure.
    pub fn finding(&self, advice: impl Fn(Fault) -> &'static str) -> Finding {
        let Some((_, _, first)) = self.failures.first() else {
            if self.is_occupied {
                return Finding::not_tried("another client uses the key", "name a key that no program uses: --key KEY");
            }
            let text = format!("a lock was acquired and released; these work: {}", self.works.join(", "));
            return Finding::fine(TRIAL, text);
        };
        let mut nodes = self.failures.iter().flat_map(|(.., cause)| cause.nodes());
        if let Some(node) = nodes.find(|node| matches!(node.fault, Fault::Moved | Fault::Quarantined)) {
            return Finding::not_tried(format!("{}: {}", node.fault, node.detail), "run doctor again");
        }
        let mut reasons: Vec<_> = self.reasons().map(|(_, reason)| reason).collect();
        reasons.dedup();
        let advice = first.nodes().first().map_or("", |node| advice(node.fault));
        Finding::failure(TRIAL, reasons.join("; "), advice)
    }

    /// What to do about a failure, where nothing better is known.
    pub const fn advice(fault: Fault) -> &'static str {
        match fault {
            Fault::Denied => "give this user the rights that the book lists",
            Fault::Timeout | Fault::Unreachable => "check the server, and the network to it",
            _ => "correct what it names",
        }
    }
}
