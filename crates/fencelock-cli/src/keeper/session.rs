//! The locks of a session: of all owners that one process has, on one backend.

use super::above::conflict;
use super::watched::Watched;
use super::{Awaited, Done, Kept, Wanted};
use crate::args::OnLost;
use crate::check_open_files;
use crate::commands::run::{Acquired, claim_locks, wait_for_full_lease};
use crate::context::CLOSING;
use crate::exit::{Exit, Failure};
use crate::json::acquired;
use crate::plan::Plan;
use crate::progress::Progress;
use fencelock::{Client, FencingToken, Guards, HeldAll, HolderId, ReleasedAll, Span};
use rustix::process::{Signal, getpid};
use std::cell::{Cell, RefCell};
use std::future::pending;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

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
        pending().await
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

// The locks of one request, while they are kept.

#[derive(Debug)]
pub(super) struct Hold {
    pub(super) owner: String,
    pub(super) plan: Plan,
    label: Option<String>,
    /// In the order of the request. That of a slot has its number.
    pub(super) keys: Vec<String>,
    holders: Vec<HolderId>,
    fences: Vec<FencingToken>,
    slot: Option<u32>,
    held: HeldAll,
    since: Instant,
    pub(super) lost: RefCell<Option<String>>,
    /// The process was sent TERM.
    signalled: Cell<bool>,
    orders: UnboundedSender<Order>,
}

/// To release the locks, or to break them, by somebody.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) breaker: Option<String>,
    pub(super) reply: oneshot::Sender<Done>,
}

/// What ends the hold, or announces its end.
enum Due {
    /// The lease is about to end.
    Ending,
    Lost(String),
    MaxHold,
}

impl Hold {
    pub(super) fn new(wanted: &Wanted, guards: &Guards, slot: Option<u32>) -> (Self, UnboundedReceiver<Order>) {
        let (orders, received) = unbounded_channel();
        let hold = Self {
            owner: wanted.owner.clone(),
            plan: wanted.plan.clone(),
            label: wanted.label.clone(),
            keys: guards.keys().into_iter().map(ToString::to_string).collect(),
            holders: guards.holders(),
            fences: guards.fencing_tokens(),
            slot,
            held: guards.held(),
            since: Instant::now(),
            lost: RefCell::default(),
            signalled: Cell::default(),
            orders,
        };
        (hold, received)
    }

    pub(super) fn has(&self, key: &str, holder: HolderId) -> bool {
        self.keys.iter().zip(&self.holders).any(|(held, of)| held == key && *of == holder)
    }

    /// Not if that is doubtful, or about to end.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_held() && self.lost.borrow().is_none()
    }

    pub(super) fn order(&self, order: Order) {
        // If it has ended, the order is dropped, which is its answer.
        let _ = self.orders.send(order);
    }

    pub(super) fn kept(&self, watched: &Watched) -> Kept {
        Kept {
            owner: self.owner.clone(),
            pid: watched.pid,
            command: watched.command.clone(),
            label: self.label.clone(),
            keys: self.keys.clone(),
            mode: self.plan.mode,
            lost: self.lost.borrow().clone(),
        }
    }

    /// One line for each lock, as without `--while-pid`.
    pub(super) fn answer(&self, watched: &Watched, as_json: bool) -> String {
        let left = self.held.remaining();
        let locks = self.held.keys().into_iter().zip(&self.holders).zip(&self.fences);
        let lines = locks.map(|((key, holder), fence)| {
            if as_json {
                let mut answer = acquired(key, (*holder, *fence, self.plan.mode), self.plan.ttl, left);
                (answer["while_pid"], answer["slot"]) = (watched.pid.into(), self.slot.into());
                answer["name"] = Some(&*self.owner).filter(|owner| !owner.is_empty()).into();
                return format!("{answer}\n");
            }
            self.slot.map_or_else(|| format!("{holder}\n"), |slot| format!("{holder} {slot}\n"))
        });
        lines.collect()
    }

    /// Until the process ends, or somebody releases the locks. A lost lock is shown until then.
    pub(super) async fn keep(&self, guards: Guards, mut orders: UnboundedReceiver<Order>, session: &Session) {
        let (mut guards, watched) = (Some(guards), &session.watched);
        loop {
            tokio::select! {
                biased;
                () = session.ended() => break,
                due = self.due(guards.as_ref()) => match due {
                    Due::Ending => {
                        self.signal(watched);
                        warn(&self.sentence("its lease is about to end and could not be renewed", watched));
                    }
                    Due::Lost(why) => {
                        guards = None;
                        self.lose(why, watched);
                    }
                    Due::MaxHold => {
                        let is_over = self.lost.borrow().is_some();
                        if !is_over {
                            self.lose(format!("--max-hold {} is reached", Span(self.plan.rules.max_hold.unwrap_or_default())), watched);
                        }
                        // It may clean up before others get the lock.
                        if is_over || !self.signalled.get() {
                            release_quietly(guards.take()).await;
                        }
                    }
                },
                Some(Order { breaker, reply }) = orders.recv() => {
                    if let Some(who) = &breaker
                        && guards.is_some()
                    {
                        // The process learns of it before others get the lock.
                        self.lose(format!("it was broken by {who}"), watched);
                    }
                    let _ = reply.send(self.release(guards.take()).await);
                    if breaker.is_none() {
                        return;
                    }
                }
            }
        }
        release_quietly(guards).await;
    }

    /// What is next for the held locks.
    async fn due(&self, guards: Option<&Guards>) -> Due {
        let Some(guards) = guards else { return pending().await };
        let ending = async {
            if self.plan.rules.on_lost == OnLost::Warn || self.signalled.get() || guards.remaining() == Duration::MAX {
                return pending().await;
            }
            while guards.remaining() > self.plan.rules.grace {
                sleep(guards.remaining().saturating_sub(self.plan.rules.grace)).await;
            }
        };
        let max_hold = async {
            match self.plan.rules.max_hold {
                Some(max) => {
                    let grace = if self.lost.borrow().is_some() { self.plan.rules.grace } else { Duration::ZERO };
                    sleep((max + grace).saturating_sub(self.since.elapsed())).await;
                }
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            loss = guards.lost() => Due::Lost(loss.to_string()),
            () = max_hold => Due::MaxHold,
            () = ending => Due::Ending,
        }
    }

    fn lose(&self, why: String, watched: &Watched) {
        if self.plan.rules.on_lost == OnLost::Term {
            self.signal(watched);
        }
        warn(&self.sentence(&why, watched));
        self.lost.replace(Some(why));
    }

    fn signal(&self, watched: &Watched) {
        if !self.signalled.replace(true) {
            // It may have ended.
            let _ = watched.signal(Signal::TERM);
        }
    }

    fn sentence(&self, why: &str, Watched { pid, command, .. }: &Watched) -> String {
        let then = match self.plan.rules.on_lost {
            OnLost::Term => "sent TERM to it",
            OnLost::Warn => "it continues and may overlap the next holder",
        };
        format!("{}, held for process {pid} ({command}): {why}; {then}", self.keys.join(", "))
    }

    async fn release(&self, guards: Option<Guards>) -> Done {
        let Some(guards) = guards else {
            return Done::refused(self.keys.clone(), self.lost.borrow().as_deref().unwrap_or_default());
        };
        let (released, why) = match timeout(CLOSING, guards.release()).await {
            Ok(Ok(ReleasedAll::Released)) => (Some(true), None),
            Ok(Ok(ReleasedAll::AlreadyLost { losses })) => {
                let why: Vec<_> = losses.iter().map(ToString::to_string).collect();
                (Some(false), Some(why.join(", ")))
            }
            Ok(Err(error)) => (None, Some(format!("{error:#}"))),
            Err(_) => (None, Some(format!("no reply within {}", Span(CLOSING)))),
        };
        Done { keys: self.keys.clone(), released, why }
    }
}

pub(super) async fn release_quietly(guards: Option<Guards>) {
    if let Some(guards) = guards {
        let _ = timeout(CLOSING, guards.release()).await;
    }
}

/// The socket of the system log (syslog(3)).
const SOCKET: &str = "/dev/log";
/// A warning of a user process.
const PRIORITY: u32 = 1 << 3 | 4;

/// Writes a warning to the system log, where there is one: a keeper has no other output.
pub(super) fn warn(text: &str) {
    send(text, Path::new(SOCKET));
}

fn send(text: &str, socket: &Path) {
    let Ok(sender) = UnixDatagram::unbound() else { return };
    // A full log must not delay what follows.
    if sender.set_nonblocking(true).is_ok() {
        let process = getpid().as_raw_nonzero();
        let _ = sender.send_to(format!("<{PRIORITY}>fencelock[{process}]: {text}").as_bytes(), socket);
    }
}

#[cfg(test)]
mod system_log_tests {
    use super::*;

    #[test]
    fn the_log_receives_a_warning_and_a_missing_log_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        send("lost", &path);
        let log = UnixDatagram::bind(&path).unwrap();
        send("k: lost", &path);
        let mut line = [0; 64];
        let length = log.recv(&mut line).unwrap();
        let wanted = format!("<12>fencelock[{}]: k: lost", std::process::id());
        assert_eq!(std::str::from_utf8(&line[..length]), Ok(&*wanted));
    }
}
