//! The locks of a session: of all owners that one process has, on one backend.

use super::above::conflict;
use super::hold::{Hold, Order, release_quietly};
use super::watched::Watched;
use super::{Awaited, Done, Kept, Wanted};
use crate::check_open_files;
use crate::commands::run::{Acquired, claim_locks, wait_for_full_lease};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::progress::Progress;
use fencelock::{Client, Guards, HolderId};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{oneshot, watch};
use tokio::time::sleep;

/// How soon a request that waits for an earlier one shows what that one waits for.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Session {
    pub(super) watched: Watched,
    client: Client,
    /// Of the URL of this client.
    options: String,
    /// Also those that are lost: they are shown until the process ends.
    holds: RefCell<Vec<Rc<Hold>>>,
    /// Requests that wait for their locks.
    pending: RefCell<Vec<Rc<Pending>>>,
    /// Either has changed.
    changed: watch::Sender<()>,
    /// The process has ended.
    ended: watch::Sender<bool>,
}

#[derive(Debug)]
struct Pending {
    owner: String,
    plan: Plan,
    progress: Arc<Progress>,
    /// The backend did not answer, so its wait has ended.
    unreachable: RefCell<Option<Failure>>,
}

/// What a request gets.
#[allow(clippy::large_enum_variant, reason = "there is one, and it is matched right away")]
pub(super) enum Grant {
    New(New),
    /// Its owner has these locks already.
    Already(Rc<Hold>),
}

/// New locks. Dropping them gives them back.
pub(super) struct New {
    pub(super) hold: Rc<Hold>,
    guards: Guards,
    orders: UnboundedReceiver<Order>,
    /// Others of the same owner are answered when these locks are kept, or claim for themselves when they are not.
    entered: Entered,
}

impl New {
    /// Nobody needs them.
    pub(super) async fn give_back(self) {
        release_quietly(Some(self.guards)).await;
    }
}

/// What is to be done for a request.
enum Turn {
    Claim,
    Already(Rc<Hold>),
    /// An earlier request for the same locks.
    After(Rc<Pending>),
}

impl Session {
    pub(super) fn new(watched: Watched, client: Client, options: String) -> Self {
        let (changed, ended) = (watch::Sender::new(()), watch::Sender::new(false));
        Self { watched, client, options, holds: RefCell::default(), pending: RefCell::default(), changed, ended }
    }

    /// The process has ended: nobody needs the locks any more.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Waits for the end of the process. Cancel safe.
    pub(super) async fn ended(&self) {
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// Acquires the locks. Dropping the future leaves nothing behind.
    pub(super) async fn acquire(self: &Rc<Self>, wanted: &Wanted, progress: &Arc<Progress>) -> Result<Grant, Failure> {
        let acquired = tokio::select! {
            biased;
            () = self.ended() => {
                let Watched { pid, command, .. } = &self.watched;
                let why = format!("process {pid} ({command}) has ended, so the lock was not acquired for it");
                Err(Failure::new(Exit::Usage, why))
            }
            acquired = self.acquire_in_turn(wanted, progress) => acquired,
        };
        progress.clear();
        acquired
    }

    async fn acquire_in_turn(self: &Rc<Self>, wanted: &Wanted, progress: &Arc<Progress>) -> Result<Grant, Failure> {
        // They may say what a lock is worth, such as acks=1.
        if wanted.options != self.options {
            let shown = |options: &str| if options.is_empty() { "none".to_owned() } else { options.to_owned() };
            let (theirs, here) = (shown(&self.options), shown(&wanted.options));
            let why = format!(
                "the locks of process {} ({}) are kept with other options of the URL: {theirs}, and here {here}; give the same to all \
                 scripts of a session",
                self.watched.pid, self.watched.command
            );
            return Err(Failure::new(Exit::Usage, why));
        }
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            match self.turn(wanted)? {
                Turn::Already(hold) => return Ok(Grant::Already(hold)),
                Turn::Claim => break,
                Turn::After(first) => {
                    let left = wanted.plan.wait.map(|wait| wait.saturating_sub(progress.waited()));
                    let status = first.progress.last();
                    if left == Some(Duration::ZERO) {
                        let held = status.map(|status| format!(", {}", status.position())).unwrap_or_default();
                        let why = "an earlier request of the same owner waits for it";
                        return Err(Failure::new(Exit::Busy, format!("{}: {why}{held}", wanted.plan.keys.join(", "))));
                    }
                    if let Some(status) = &status {
                        progress.waiting(status);
                    }
                    tokio::select! {
                        _ = changed.changed() => {}
                        () = sleep(left.unwrap_or(LOOK).min(LOOK)) => {}
                    }
                    // Its silence was theirs. With a limit, only the limit counts.
                    let silent = first.unreachable.borrow().clone();
                    if let Some(silent) = silent.filter(|_| left.is_none()) {
                        return Err(silent);
                    }
                }
            }
        }
        check_open_files()?;
        let pending = Pending {
            owner: wanted.owner.clone(),
            plan: wanted.plan.clone(),
            progress: Arc::clone(progress),
            unreachable: RefCell::default(),
        };
        let entered = Entered::new(self, pending);
        let claimed = tokio::select! {
            biased;
            claimed = claim_locks(&wanted.plan, &self.client, progress) => claimed.map_err(|error| {
                let failure = Failure::from(error);
                entered.pending.unreachable.replace(Some(failure.clone()).filter(|failure| failure.exit == Exit::Unreachable));
                failure
            })?,
            refused = self.taken_meanwhile(wanted, changed) => return Err(refused),
        };
        let (guards, slot) = match claimed {
            Acquired::Guards(guards) => (guards, None),
            Acquired::Slot(guards, slot) => (guards, Some(slot)),
            Acquired::Begun(_) => return Err(Failure::new(Exit::Usage, "a window is for `run`")),
        };
        wait_for_full_lease(&guards, wanted.plan.rules.grace).await?;
        let (hold, orders) = Hold::new(wanted, &guards, slot);
        Ok(Grant::New(New { hold: Rc::new(hold), guards, orders, entered }))
    }

    /// Every script of an owner may ask for its locks. Another request of the same owner for one of the keys would wait for that one.
    fn turn(&self, wanted: &Wanted) -> Result<Turn, Failure> {
        if wanted.plan.nested_ok {
            return Ok(Turn::Claim);
        }
        if let Some(same) = self.own(&wanted.owner).into_iter().find(|hold| is_same(&hold.plan, &wanted.plan)) {
            return Ok(Turn::Already(same));
        }
        self.check(wanted)?;
        let pending = self.pending.borrow();
        let earlier = pending.iter().find(|one| one.owner == wanted.owner && is_same(&one.plan, &wanted.plan));
        Ok(earlier.map_or(Turn::Claim, |earlier| Turn::After(Rc::clone(earlier))))
    }

    fn check(&self, wanted: &Wanted) -> Result<(), Failure> {
        let kept: Vec<_> = self.own(&wanted.owner).iter().map(|hold| hold.kept(&self.watched)).collect();
        let Some((_, key)) = conflict(&kept.iter().collect::<Vec<_>>(), Awaited::from(&wanted.plan)) else {
            return Ok(());
        };
        let Watched { pid, command, .. } = &self.watched;
        let whose = if wanted.owner.is_empty() { String::new() } else { format!(", owner {}", wanted.owner) };
        let why = format!(
            "{key} is already held for process {pid} ({command}{whose}), until it ends, by a request with other options: waiting \
             would never end; `fencelock release` releases it"
        );
        Err(Failure::new(Exit::Usage, why))
    }

    /// Waits until the same owner gets a lock that is in the way of a request.
    async fn taken_meanwhile(&self, wanted: &Wanted, mut changed: watch::Receiver<()>) -> Failure {
        while !wanted.plan.nested_ok && changed.changed().await.is_ok() {
            if let Err(refused) = self.check(wanted) {
                return refused;
            }
        }
        std::future::pending().await
    }

    /// The locks of an owner. Doubtful ones are not held.
    fn own(&self, owner: &str) -> Vec<Rc<Hold>> {
        self.holds.borrow().iter().filter(|hold| hold.owner == owner && hold.is_held()).cloned().collect()
    }

    /// Keeps new locks until the process ends, somebody releases them, or they have to be given back.
    pub(super) async fn keep(&self, new: New) {
        let New { hold, guards, orders, entered } = new;
        self.holds.borrow_mut().push(Rc::clone(&hold));
        drop(entered);
        hold.keep(guards, orders, self).await;
        self.holds.borrow_mut().retain(|one| !Rc::ptr_eq(one, &hold));
        self.changed.send_replace(());
    }

    pub(super) fn kept(&self) -> Vec<Kept> {
        self.holds.borrow().iter().map(|hold| hold.kept(&self.watched)).collect()
    }

    /// Releases the locks of a request. `breaker` is who breaks them.
    pub(super) async fn release(&self, key: &str, holder: HolderId, breaker: Option<String>) -> Done {
        let found = self.holds.borrow().iter().find(|hold| hold.has(key, holder)).cloned();
        match found {
            Some(hold) => order(&hold, breaker).await,
            None => Done::refused(vec![key.to_owned()], "it is held by another holder"),
        }
    }

    /// Releases all locks of an owner, at the same time.
    pub(super) async fn release_all(&self, owner: &str) -> Vec<Done> {
        let all: Vec<_> = self.holds.borrow().iter().filter(|hold| hold.owner == owner).cloned().collect();
        let orders: Vec<_> = all.iter().map(|hold| order(hold, None)).collect();
        let mut done = Vec::new();
        for order in orders {
            done.push(order.await);
        }
        done
    }
}

fn order(hold: &Hold, breaker: Option<String>) -> impl Future<Output = Done> {
    let (reply, done) = oneshot::channel();
    hold.order(Order { breaker, reply });
    let ended = Done::refused(hold.keys.clone(), "its process has ended, or somebody else has released it");
    async move { done.await.unwrap_or(ended) }
}

/// Whether these are requests for the same locks.
fn is_same(one: &Plan, other: &Plan) -> bool {
    let what = |plan: &Plan| (plan.mode, plan.slots, plan.rules.max_hold, plan.rules.on_lost);
    one.keys == other.keys && what(one) == what(other)
}

/// A request among the pending ones.
struct Entered {
    session: Rc<Session>,
    pending: Rc<Pending>,
}

impl Entered {
    fn new(session: &Rc<Session>, pending: Pending) -> Self {
        let pending = Rc::new(pending);
        session.pending.borrow_mut().push(Rc::clone(&pending));
        Self { session: Rc::clone(session), pending }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.session.pending.borrow_mut().retain(|one| !Rc::ptr_eq(one, &self.pending));
        self.session.changed.send_replace(());
    }
}
