//! The locks of one request, while they are kept.

use super::session::Session;
use super::watched::Watched;
use super::{Done, Kept, Wanted, system_log};
use crate::args::OnLost;
use crate::context::CLOSING;
use crate::json::acquired;
use crate::plan::Plan;
use fencelock::{FencingToken, Guards, HeldAll, HolderId, ReleasedAll, Span};
use rustix::process::Signal;
use std::cell::{Cell, RefCell};
use std::future::pending;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

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
                        system_log::warn(&self.sentence("its lease is about to end and could not be renewed", watched));
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
        system_log::warn(&self.sentence(&why, watched));
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
