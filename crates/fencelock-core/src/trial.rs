use crate::finding::TRIAL;
use crate::{
    Acquire, Backend, BoxFuture, Claim, ClearCompletion, Completion, Downgrade, Eviction, Fault, FencingToken, Finding,
    Holder, HolderId, Intent, Key, Level, Mode, Owner, Release, Renew, Renewal, Resize, Ttl, Unknown, WriteCompletion,
};
use std::fmt::Debug;
use std::time::Duration;

/// How long a key of a trial lasts at most, if its program is killed.
const TTL: Duration = Duration::from_secs(4);

/// A trial of everything that a lock does: on a key that no other client uses, and each operation of the backend once.
///
/// It leaves what a released lock leaves, so the backend removes the rest.
#[derive(Debug)]
pub struct Trial<'a> {
    backend: &'a dyn Backend,
    key: &'a Key,
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

/// What is tried together, from a free key to a free key.
#[derive(Debug, Clone, Copy)]
enum Part {
    Exclusive,
    Queue,
    Once,
    Shared,
    Permits,
    Breaking,
}

impl Part {
    const ALL: [Self; 6] = [Self::Exclusive, Self::Queue, Self::Once, Self::Shared, Self::Permits, Self::Breaking];

    const fn feature(self) -> &'static str {
        match self {
            Self::Exclusive | Self::Queue => "exclusive_locks",
            Self::Once => "once",
            Self::Shared => "shared_locks",
            Self::Permits => "semaphores",
            Self::Breaking => "break",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Exclusive => "acquire, renew, inspect and release",
            Self::Queue => "queue and hand-off",
            Self::Once => "completions",
            Self::Shared => "shared locks",
            Self::Permits => "semaphores",
            Self::Breaking => "break",
        }
    }
}

impl<'a> Trial<'a> {
    /// Tries `backend` with this key and two new holder ids.
    pub fn new(backend: &'a dyn Backend, key: &'a Key, ids: [HolderId; 2]) -> Self {
        let longest = backend.capabilities().longest_ttl.unwrap_or(TTL);
        let ttl = Ttl::new(TTL.min(longest)).unwrap_or_default();
        let holders = ids.map(|id| Holder { id, owner: Owner::from_text("fencelock-doctor") });
        Self { backend, key, holders, ttl }
    }

    /// The key of a trial, and its holders: the key that is named, or one that no program uses, with `tag` at its end. `fill` gives
    /// random bytes.
    pub fn names<E>(
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
        named: Option<&Key>,
        tag: &str,
    ) -> Option<(Key, [HolderId; 2])> {
        let mut random = [[0; 16]; 3];
        fill(random.as_flattened_mut()).ok()?;
        let [name, first, second] = random.map(HolderId::from_bytes);
        let own = || Key::new(format!("fencelock-doctor-{name}{tag}")).ok();
        Some((named.cloned().or_else(own)?, [first, second]))
    }

    /// Tries each part. `clean` removes what a part that failed has left; if it cannot, the rest is not tried, and counts as failed.
    pub async fn run(&self, clean: &(dyn Fn() -> BoxFuture<'a, bool> + Sync)) -> Tried {
        let mut tried = Tried::default();
        let mut parts = Part::ALL.into_iter().filter(|part| self.has(*part));
        while let Some(part) = parts.next() {
            match self.part(part).await {
                Ok(()) => tried.works.push(part.words()),
                Err(Stop::Occupied) => {
                    tried.is_occupied = true;
                    break;
                }
                Err(Stop::Failed(step, cause)) => {
                    let is_general = !cause.is_permanent();
                    tried.failures.push((part.feature(), step, cause.clone()));
                    if is_general || !clean().await {
                        // The same would happen to the rest.
                        tried.failures.extend(parts.map(|part| (part.feature(), step, cause.clone())));
                        break;
                    }
                }
            }
        }
        tried
    }

    fn has(&self, part: Part) -> bool {
        let has = self.backend.capabilities();
        match part {
            Part::Exclusive => true,
            Part::Queue => has.queues,
            Part::Once => self.backend.completions().is_some(),
            Part::Shared => has.modes.shared,
            Part::Permits => has.modes.permits,
            Part::Breaking => has.evicts,
        }
    }

    async fn part(&self, part: Part) -> Result<(), Stop> {
        match part {
            Part::Exclusive => self.exclusive().await,
            Part::Queue => self.queue().await,
            Part::Once => self.once().await,
            Part::Shared => self.shared().await,
            Part::Permits => self.permits().await,
            Part::Breaking => self.breaking().await,
        }
    }

    async fn exclusive(&self) -> Result<(), Stop> {
        self.acquire(Mode::Exclusive).await?;
        self.renew().await?;
        let seen = self.backend.inspect(self.key).await.map_err(failed("inspect"))?;
        if !seen.as_ref().is_some_and(|seen| seen.has(self.holders[0].id)) {
            return Err(self.unexpected("inspect", &seen));
        }
        self.release(0).await?;
        // The first claim of a connection may be executed in another way than the next ones.
        self.acquire(Mode::Exclusive).await?;
        self.release(0).await
    }

    async fn queue(&self) -> Result<(), Stop> {
        self.acquire(Mode::Exclusive).await?;
        for intent in [Intent::Enqueue, Intent::Poll] {
            match self.claim(1, intent, Mode::Exclusive).await.map_err(failed("wait in the queue"))? {
                Acquire::Queued { .. } => {}
                other => return Err(self.unexpected("wait in the queue", &other)),
            }
        }
        self.release(0).await?;
        match self.claim(1, Intent::Poll, Mode::Exclusive).await.map_err(failed("hand over"))? {
            Acquire::Granted { .. } => self.release(1).await,
            other => Err(self.unexpected("hand over", &other)),
        }
    }

    async fn once(&self) -> Result<(), Stop> {
        let tokens = self.acquire(Mode::Exclusive).await?;
        let read = self.backend.read_completion(self.key).await.map_err(failed("read a completion"))?;
        let (now, owner) = (read.now_micros, self.holders[0].owner.clone());
        let done = Completion::new(now.saturating_add(1), tokens, now, owner);
        let written = self.backend.write_completion(self.key, &self.holders[0].id, &done).await;
        match written.map_err(failed("store a completion"))? {
            WriteCompletion::Written => {}
            other @ WriteCompletion::NotHeld => return Err(self.unexpected("store a completion", &other)),
        }
        self.release(0).await?;
        match self.backend.clear_completion(self.key, &done).await.map_err(failed("remove a completion"))? {
            ClearCompletion::Cleared => Ok(()),
            other => Err(self.unexpected("remove a completion", &other)),
        }
    }

    async fn shared(&self) -> Result<(), Stop> {
        self.acquire(Mode::Exclusive).await?;
        let renewal = Renewal::new(self.key.clone(), self.holders[0].id, self.ttl);
        match self.backend.downgrade(&renewal).await.map_err(failed("downgrade"))? {
            Downgrade::Downgraded { .. } => {}
            other => return Err(self.unexpected("downgrade", &other)),
        }
        match self.claim(1, Intent::Try, Mode::Shared).await.map_err(failed("share"))? {
            Acquire::Granted { .. } => {}
            other => return Err(self.unexpected("share", &other)),
        }
        self.renew().await?;
        self.release(0).await?;
        self.release(1).await
    }

    async fn permits(&self) -> Result<(), Stop> {
        self.acquire(Mode::Permits { weight: 1, limit: 2 }).await?;
        self.renew().await?;
        match self.backend.resize(self.key, 3).await.map_err(failed("resize"))? {
            Resize::Resized(_) => self.release(0).await,
            other => Err(self.unexpected("resize", &other)),
        }
    }

    async fn breaking(&self) -> Result<(), Stop> {
        self.acquire(Mode::Exclusive).await?;
        let seen = self.backend.inspect(self.key).await.map_err(failed("inspect"))?;
        let Some(held) = &seen else { return Err(self.unexpected("inspect", &seen)) };
        match self.backend.evict(held).await.map_err(failed("break"))? {
            Eviction::Evicted => Ok(()),
            other => Err(self.unexpected("break", &other)),
        }
    }

    async fn acquire(&self, mode: Mode) -> Result<FencingToken, Stop> {
        match self.claim(0, Intent::Try, mode).await.map_err(failed("acquire"))? {
            Acquire::Granted { tokens } => Ok(tokens.last()),
            Acquire::Busy(_) => Err(Stop::Occupied),
            other => Err(self.unexpected("acquire", &other)),
        }
    }

    async fn claim(&self, holder: usize, intent: Intent, mode: Mode) -> Result<Acquire, Unknown> {
        let claim = Claim::new(self.key.clone(), self.holders[holder].clone(), self.ttl, intent).with_mode(mode);
        self.backend.acquire(&claim).await.answer
    }

    async fn renew(&self) -> Result<(), Stop> {
        let renewal = [Renewal::new(self.key.clone(), self.holders[0].id, self.ttl)];
        match self.backend.renew(&renewal).await.pop() {
            Some(Ok(Renew::Renewed { .. })) => Ok(()),
            Some(Err(cause)) => Err(Stop::Failed("renew", cause)),
            other => Err(self.unexpected("renew", &other)),
        }
    }

    async fn release(&self, holder: usize) -> Result<(), Stop> {
        match self.backend.release(self.key, &self.holders[holder].id).await.map_err(failed("release"))? {
            Release::Released => Ok(()),
            other => Err(self.unexpected("release", &other)),
        }
    }

    fn unexpected(&self, step: &'static str, answer: &impl Debug) -> Stop {
        let why = format!("the answer is {answer:?}, although the key is used by this trial only");
        Stop::Failed(step, Unknown::new(self.backend.name(), Fault::Other, why))
    }
}

/// The causes without the name of the node, so that they are the same on all nodes.
fn words(cause: &Unknown) -> String {
    let each = cause.nodes().iter().map(|node| match node.detail.as_str() {
        "" => node.fault.to_string(),
        detail => format!("{}: {detail}", node.fault),
    });
    each.collect::<Vec<_>>().join("; ")
}

fn failed(step: &'static str) -> impl FnOnce(Unknown) -> Stop {
    move |cause| Stop::Failed(step, cause)
}

impl Tried {
    /// The features that do not work, with the reasons.
    pub fn reasons(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.failures.iter().map(|(feature, step, cause)| (*feature, format!("cannot {step}: {}", words(cause))))
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
        let mut causes: Vec<(&Unknown, Vec<&str>)> = Vec::new();
        for (_, step, cause) in &self.failures {
            match causes.iter_mut().find(|(known, _)| *known == cause) {
                Some((_, steps)) if steps.contains(step) => {}
                Some((_, steps)) => steps.push(step),
                None => causes.push((cause, vec![step])),
            }
        }
        let texts = causes.iter().map(|(cause, steps)| format!("cannot {}: {}", steps.join(", "), words(cause)));
        let advice = first.nodes().first().map_or("", |node| advice(node.fault));
        Finding::new(Level::Failure, TRIAL, texts.collect::<Vec<_>>().join("; "), advice)
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
