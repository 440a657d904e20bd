use crate::driver;
use crate::driver::{ClientInner, acquire};
use crate::error::Error;
use crate::guard::Guard;
use crate::guards::{Guards, HeldAll};
use crate::lock::{run_ended, unless_busy};
use crate::run::RunError;
use crate::settings::{CheckedLock, LockSettings, OnWait, Waiting, setters};
use fencelock_core::engine::{LeaseSharing, WaitLimit};
use fencelock_core::{HolderId, Invalid, Key, KeySet, Mode, Occupied, TreePath};
use futures_util::future::join_all;
use std::future::{Future, IntoFuture};
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Locks on several keys that are not acquired yet. Await it, or call [`LockAll::try_acquire`] or [`LockAll::run`].
///
/// All of the locks are acquired, or none. If all keys are free, this takes one round trip. If a key is held, the claim waits in
/// its queue, and meanwhile only keys that sort before it, by their bytes, are held. So clients that lock the same keys never
/// deadlock, regardless of the order in which they pass them, and each key is granted in the order of the claims. Leases that are
/// held are renewed while the claim waits for the others. If one of them is lost, all are released and claimed again.
///
/// The first keys are held unused while the claim waits for the others, so lock only keys that belong together. Do not wait for several keys while you
/// hold another lock: two clients that do so can deadlock.
#[must_use = "the locks do nothing until they are awaited"]
#[derive(Debug, Clone)]
pub struct LockAll {
    client: Arc<ClientInner>,
    keys: Result<Keys, Invalid>,
    path: Option<TreePath>,
    pub(crate) settings: LockSettings,
}

/// The keys, and their modes if each has its own.
type Keys = (KeySet, Option<Vec<Mode>>);

fn each(locks: impl IntoIterator<Item = (Key, Mode)>) -> Result<Keys, Invalid> {
    // A key for each level, another one of the path, and the root.
    const MOST: usize = TreePath::MAX_LEVELS + 2;
    let (keys, modes): (Vec<_>, Vec<_>) = locks.into_iter().take(MOST + 1).unzip();
    Ok((KeySet::up_to(MOST, keys)?, Some(modes)))
}

impl LockAll {
    #[track_caller]
    pub(crate) fn new<K: AsRef<str>>(client: &Arc<ClientInner>, keys: impl IntoIterator<Item = K>) -> Self {
        let settings = LockSettings::requested_at(Location::caller());
        Self { client: Arc::clone(client), keys: KeySet::new(keys).map(|keys| (keys, None)), path: None, settings }
    }

    #[track_caller]
    pub(crate) fn each(client: &Arc<ClientInner>, locks: impl IntoIterator<Item = (Key, Mode)>) -> Self {
        Self { keys: each(locks), ..Self::new(client, [""; 0]) }
    }

    #[track_caller]
    pub(crate) fn path(client: &Arc<ClientInner>, path: Result<TreePath, Invalid>) -> Self {
        let keys = path.as_ref().map_err(Clone::clone).and_then(|path| each(path.locks(Mode::Exclusive)));
        Self { keys, path: path.ok(), ..Self::new(client, [""; 0]) }
    }

    /// Shared locks on all of the keys, unless each has a mode of its own; a shared lock on a path. See
    /// [`Lock::shared`](crate::Lock::shared).
    pub fn shared(mut self) -> Self {
        self.settings.mode = Mode::Shared;
        if let Some(path) = &self.path {
            self.keys = each(path.locks(Mode::Shared));
        }
        self
    }

    setters!(LockAll in settings);

    /// Waits for all locks, and acquires them.
    ///
    /// # Errors
    /// The errors of [`Lock::acquire`](crate::Lock::acquire). [`Error::Busy`] names the key that was held at the end of the wait. [`Error::Lost`] names a
    /// key that was lost while the others were waited for, if no time was left to start again. [`Error::Config`] also if there is
    /// no key, more than 16, or a key that is passed twice. With any error, the locks that were held are released before this
    /// returns, or in the background if that takes more than 250 ms.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the queue, and releases the locks that are held in the background.
    pub async fn acquire(self) -> Result<Guards, Error> {
        let (keys, requests) = self.check()?;
        // The future of a single claim is large, and this one contains it.
        let guards = Box::pin(acquire_all(&self.client, &keys, &requests)).await?;
        Ok(Guards::new(guards))
    }

    /// Acquires all locks if they are free and no client waits for them; `None` otherwise. The locks that were free are then
    /// released again.
    ///
    /// # Errors
    /// See [`LockAll::acquire`]; never [`Error::Busy`].
    ///
    /// # Cancel safety
    /// See [`LockAll::acquire`].
    pub async fn try_acquire(self) -> Result<Option<Guards>, Error> {
        unless_busy(self.wait(Duration::ZERO).acquire().await)
    }

    /// Continues the holds that [`Guards::into_holders`] released from their guards, in this or another process. `holders` are in
    /// the order of the keys.
    ///
    /// # Errors
    /// The errors of [`Lock::resume`](crate::Lock::resume); [`Error::Lost`] if one of the keys is no longer held by its holder, [`Error::Config`] also if
    /// there is not one holder for each key. With any error, the other locks are released in the
    /// background.
    ///
    /// # Cancel safety
    /// A hold that is not resumed yet continues without renewal until its lease ends; the others are released in the background.
    pub async fn resume(self, holders: impl IntoIterator<Item = HolderId>) -> Result<Guards, Error> {
        let (keys, requests) = self.check()?;
        let holders: Vec<_> = holders.into_iter().take(requests.len() + 1).collect();
        if holders.len() != keys.keys().len() {
            let (keys, holders) = (keys.keys().len(), holders.len());
            return Err(Invalid::new(format!("one holder for each of the {keys} keys is needed, not {holders}")).into());
        }
        let client = &self.client;
        let resumed = requests.iter().zip(holders).map(|(request, holder)| driver::resume(client, request, holder));
        let resumed = join_all(resumed);
        let guards = resumed.await.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(Guards::new(guards))
    }

    /// Runs `body` while all locks are held, releases them, and returns the result of the body. If one of them is lost, the body is
    /// dropped at its next await point. See [`Lock::run`](crate::Lock::run).
    ///
    /// # Errors
    /// See [`Lock::run`](crate::Lock::run), with the key of the first loss.
    ///
    /// # Cancel safety
    /// Dropping the future drops `body` and releases in the background.
    pub async fn run<T, E, F, B>(self, body: F) -> Result<T, RunError<T, E>>
    where
        F: FnOnce(HeldAll) -> B,
        B: Future<Output = Result<T, E>>,
    {
        let guards = self.acquire().await?;
        let ended = tokio::select! {
            biased;
            ended = body(guards.held()) => ended,
            loss = guards.lost() => return Err(Error::from(loss).into()),
        };
        run_ended(&guards.keys()[0].clone(), ended, guards.release().await)
    }

    /// The keys, and the claim of each.
    fn check(&self) -> Result<(KeySet, Vec<CheckedLock>), Error> {
        let (keys, modes) = self.keys.clone()?;
        let claim = |(position, key): (usize, &Key)| {
            let mut settings = self.settings.clone();
            settings.mode = modes.as_ref().map_or(settings.mode, |modes| modes[position]);
            settings.check(&self.client, key.clone())
        };
        let requests = keys.keys().iter().enumerate().map(claim).collect::<Result<_, _>>()?;
        Ok((keys, requests))
    }
}

impl IntoFuture for LockAll {
    type Output = Result<Guards, Error>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.acquire())
    }
}

/// How long the caller waits for the releases of keys that it does not acquire together. The rest continues in the background.
const RELEASE_LIMIT: Duration = Duration::from_millis(250);
/// Between two claims of a reader of a path that a writer is below of, or of that writer.
const BETWEEN_CLASSES: Duration = Duration::from_millis(100);

/// An acquisition of several keys.
struct Attempt<'a> {
    client: &'a Arc<ClientInner>,
    keys: &'a KeySet,
    /// In the order in which the caller passed the keys. Their wait is for all of them together.
    requests: &'a [CheckedLock],
    wait: WaitLimit,
}

/// Acquires all keys, or none. The guards are in the order in which the caller passed the keys. Dropping the future releases the keys
/// that are held in the background.
///
/// Four rules prevent deadlocks and partly held guards:
///
/// - A claim that waits is sent when all earlier keys are held and no later one is, in the same order by all clients. It waits
///   in the queue of its own key.
/// - Before a claim waits, the keys that are not held are tried at the same time, so that free keys cost one round trip. Of the
///   keys that are granted, those before the first refused one are kept. The others are released: a client that waited for a
///   key and held a later one could deadlock.
/// - While a claim is not answered, the leases already held are watched. If one is lost, the claim is cancelled, all keys are
///   released, and the first key is claimed again if the wait is not over.
/// - A claim that is refused releases all keys.
///
/// An acquisition that does not wait claims one key after another. Then one of several clients that try the same keys at the
/// same time always succeeds.
async fn acquire_all(client: &Arc<ClientInner>, keys: &KeySet, requests: &[CheckedLock]) -> Result<Vec<Guard>, Error> {
    let wait = WaitLimit::new(requests[0].options.wait, client.clock.now());
    let attempt = Attempt { client, keys, requests, wait };
    let mut rounds = 0_u32;
    loop {
        let mut held = Vec::new();
        let Err(error) = attempt.round(&mut held).await else { return Ok(attempt.granted(held)) };
        let again = error.is_lost() && wait.allows_another_round(client.clock.now());
        if error.is_lost() {
            tracing::debug!(%error, "lost while the other keys were waited for");
        }
        // A release that is not confirmed in time continues in the background.
        let _ = timeout(RELEASE_LIMIT, Guards::new(held).release()).await;
        if !again {
            return Err(error.after(wait.waited(client.clock.now()), rounds));
        }
        rounds = rounds.saturating_add(1);
    }
}

impl Attempt<'_> {
    /// Claims all keys. What it holds is in the order of the claims, also if it fails: with [`Error::Lost`] if a key was lost while the
    /// others were claimed.
    async fn round(&self, held: &mut Vec<Guard>) -> Result<(), Error> {
        let Self { keys, requests, .. } = self;
        // The errors of the keys that were busy when they were tried last, in the order in which the caller passed the keys.
        let mut busy = vec![None; keys.keys().len()];
        let mut rest_is_tried = !self.wait.is_try();
        loop {
            // The other leases were not watched while the last reply was in flight.
            views(held).check()?;
            match &keys.claim_order()[held.len()..] {
                [] => return Ok(()),
                rest @ [_, _, ..] if rest_is_tried => {
                    rest_is_tried = false;
                    let tried = while_held(held, self.try_all(rest)).await?;
                    let kept = KeySet::kept(tried.iter().map(|tried| matches!(tried, Some(Ok(_)))));
                    for (index, (key, tried)) in rest.iter().zip(tried).enumerate() {
                        busy[*key] = match tried {
                            Some(Ok(guard)) if index < kept => {
                                held.push(guard);
                                None
                            }
                            // Any other error is found again by the claim that follows. A guard that is not kept is dropped.
                            Some(Err(error)) if error.is_busy() => Some(error),
                            _ => None,
                        };
                    }
                }
                [key, ..] => match while_held(held, self.claim(*key)).await? {
                    Ok(guard) => {
                        held.push(guard);
                        (busy[*key], rest_is_tried) = (None, !self.wait.is_try());
                    }
                    Err(error) => {
                        let is_over = self.wait.is_over(self.client.clock.now());
                        let better = error.of_claim(requests[0].options.ttl.get()).replaces_earlier(is_over);
                        let reported = busy.into_iter().flatten().next().filter(|_| !better);
                        return Err(reported.unwrap_or(error));
                    }
                },
            }
        }
    }

    /// Tries several keys at the same time; `None` if the wait has ended before the reply.
    async fn try_all(&self, keys: &[usize]) -> Vec<Option<Result<Guard, Error>>> {
        let attempt = self.client.telemetry.attempt(self.requests[keys[0]].options.mode);
        let within = self.wait.left(self.client.clock.now()).unwrap_or(Duration::MAX);
        let try_one = async |key: &usize| {
            timeout(within, acquire(self.client, self.request_for(*key, Some(Duration::ZERO)))).await.ok()
        };
        let tried = join_all(keys.iter().map(try_one)).await;
        // A key that is refused is claimed again, and that claim counts.
        attempt.ended(&Ok(()));
        tried
    }

    /// Claims this key, and waits for it. A backend refuses to queue readers of a path behind writers below it, and these behind readers,
    /// so they ask again.
    async fn claim(&self, key: usize) -> Result<Guard, Error> {
        loop {
            let request = self.request_for(key, self.wait.left(self.client.clock.now()));
            let (name, options, on_wait) = (request.key.clone(), &request.options, request.callbacks.on_wait.clone());
            let attempt = self.client.telemetry.attempt(options.mode);
            let claimed = acquire(self.client, request).await;
            attempt.ended(&claimed);
            if TreePath::of_key(name.as_str()).is_none() || !claimed.as_ref().is_err_and(Error::is_mode_conflict) {
                return claimed;
            }
            let now = self.client.clock.now();
            if let Ok(Some(seen)) = self.client.backend.inspect(&name).await {
                let Occupied { holders, expiry, held_for, .. } = seen.into();
                let waited = self.wait.waited(now);
                if self.wait.is_try() || self.wait.is_over(now) {
                    return Err(Error::Busy { key: name, holders, expires_in: expiry, waited, attempts: 1 });
                }
                if let Some(on_wait) = on_wait {
                    on_wait(&Waiting { key: name, ahead: None, holders, expiry, held_for, waited: Duration::ZERO });
                }
            }
            sleep(BETWEEN_CLASSES).await;
        }
    }

    fn request_for(&self, key: usize, wait: Option<Duration>) -> CheckedLock {
        let mut request = self.requests[key].clone();
        request.options.wait = wait;
        // The limit begins when all keys are held, so that a long wait for one of them does not use it up.
        if request.options.max_hold.take().is_some() && request.options.mode == Mode::Shared {
            // The end of these holds would end all readers that share the lease.
            request.options.lease_sharing = LeaseSharing::Never;
        }
        let before = self.wait.waited(self.client.clock.now());
        let on_wait = request.callbacks.on_wait.take();
        request.callbacks.on_wait = on_wait.map(|on_wait| -> OnWait {
            Arc::new(move |waiting| on_wait(&Waiting { waited: before + waiting.waited, ..waiting.clone() }))
        });
        request
    }

    /// The guards in the order in which the caller passed the keys.
    fn granted(&self, held: Vec<Guard>) -> Vec<Guard> {
        let mut guards: Vec<_> = self.keys.claim_order().iter().zip(held).collect();
        guards.sort_unstable_by_key(|(position, _)| **position);
        let guards: Vec<_> = guards.into_iter().map(|(_, guard)| guard).collect();
        if let Some(max_hold) = self.requests[0].options.max_hold {
            for guard in &guards {
                guard.limit_hold(max_hold);
            }
        }
        guards
    }
}

fn views(held: &[Guard]) -> HeldAll {
    Guards::new(held.iter().map(Guard::held).collect())
}

/// The claims, unless a lease that is held is lost before they are answered.
async fn while_held<T>(held: &[Guard], claims: impl Future<Output = T>) -> Result<T, Error> {
    let held = views(held);
    tokio::select! {
        biased;
        loss = held.lost() => Err(loss.into()),
        claimed = claims => Ok(claimed),
    }
}
