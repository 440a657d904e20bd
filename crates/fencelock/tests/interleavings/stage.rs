//! One schedule: what can happen next, and doing it.

use crate::checks;
use crate::network::{Network, What};
use crate::scenarios::{Coverage, Mutant, Script};
use crate::user::User;
use fencelock::{Client, Drift};
use fencelock_testkit::SplitMix;
use std::collections::BTreeSet;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

/// No request is under way for longer: the client allows a second for stragglers.
const ARRIVAL: Duration = Duration::from_millis(900);
/// Time passes at most this long without anything to be seen.
const QUIET: Duration = Duration::from_secs(2);
/// How often time may pass until something happens, an act may follow another before any task has run, and a packet may get lost.
const TIMES: u32 = 3;
const HASTE: u32 = 3;
const LOSSES: u32 = 2;
/// More acts than any schedule needs.
const MANY: usize = 400;

/// One thing that happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Deliver(usize, What),
    Lose(usize, What),
    Acquire(usize),
    Cancel(usize),
    Drop(usize),
    Release(usize),
    GiveUpRelease(usize),
    Leave(usize),
    Time,
}

pub(crate) struct Stage {
    pub(crate) network: Arc<Network>,
    pub(crate) users: Vec<User>,
    pub(crate) trace: Vec<Act>,
    pub(crate) covered: BTreeSet<Coverage>,
    pub(crate) lost_packets: u32,
    times: u32,
    haste: u32,
}

impl Stage {
    pub(crate) fn new(script: &Script, mutant: Option<Mutant>, seed: u64) -> Self {
        let network = Network::new(mutant);
        let open = |number: usize| {
            let (backend, clock) = (Arc::clone(&network), Arc::new(network.clock));
            let rng = SplitMix::new(seed << 8 | number as u64);
            Client::builder().clock(clock, Drift::default()).rng(rng).backend(backend).unwrap()
        };
        let shared = open(script.parts.len());
        let client = |number| if script.apart { open(number) } else { shared.clone() };
        let users = script.parts.iter().enumerate().map(|(number, part)| User::new(*part, client(number))).collect();
        Self {
            network,
            users,
            trace: Vec::new(),
            covered: BTreeSet::new(),
            lost_packets: 0,
            times: TIMES,
            haste: HASTE,
        }
    }

    /// From the first act to the last check.
    pub(crate) async fn perform(&mut self, choices: &mut SplitMix) -> Result<(), String> {
        for user in 0..self.users.len() {
            if self.users[user].part.ready {
                self.act(Act::Acquire(user));
                self.until("the users of the prelude are answered", Duration::ZERO, |stage| {
                    stage.network.packets().is_empty()
                })
                .await?;
            }
        }
        loop {
            settle().await;
            checks::after_act(self)?;
            // Several acts before any task has run.
            loop {
                let acts = self.acts();
                if acts.is_empty() {
                    return checks::wind_down(self).await;
                }
                if self.trace.len() > MANY {
                    return Err("it never ends".into());
                }
                let act = acts[choices.index(acts.len())];
                if act == Act::Time {
                    self.times -= 1;
                    self.trace.push(act);
                    self.pass(QUIET).await;
                    break;
                }
                self.act(act);
                if self.haste == 0 || choices.index(2) == 0 {
                    break;
                }
                self.haste -= 1;
            }
        }
    }

    /// Everything that can happen now.
    fn acts(&self) -> Vec<Act> {
        let mut acts = Vec::new();
        for (index, user) in self.users.iter().enumerate() {
            let part = user.part;
            let mut may = |yes: bool, act: Act| acts.extend(yes.then_some(act));
            may(!user.requested && user.client.is_some(), Act::Acquire(index));
            may(part.cancels && user.acquiring.is_some(), Act::Cancel(index));
            may(part.drops && user.guard.is_some(), Act::Drop(index));
            may(part.releases && user.guard.is_some(), Act::Release(index));
            may(part.gives_up_release && user.releasing.is_some(), Act::GiveUpRelease(index));
            may(part.leaves && user.requested && user.client.is_some(), Act::Leave(index));
        }
        for (index, what) in self.network.packets().into_iter().enumerate() {
            acts.push(Act::Deliver(index, what));
            if self.lost_packets < LOSSES {
                acts.push(Act::Lose(index, what));
            }
        }
        if self.times > 0 && self.request_limit() > Duration::ZERO {
            acts.push(Act::Time);
        }
        acts
    }

    /// How long time may pass before the oldest request must have arrived.
    fn request_limit(&self) -> Duration {
        let now = self.network.now();
        self.network.oldest_request().map_or(QUIET, |sent| (sent + ARRIVAL).since(now))
    }

    fn act(&mut self, act: Act) {
        self.trace.push(act);
        self.covered.extend(checks::covered(self, act));
        match act {
            Act::Deliver(packet, _) => self.network.deliver(packet),
            Act::Lose(packet, _) => {
                self.lost_packets += 1;
                self.network.lose(packet);
            }
            Act::Acquire(user) => self.users[user].acquire(&self.network),
            Act::Cancel(user) => self.users[user].cancel(),
            Act::Drop(user) => self.users[user].drop_guard(),
            Act::Release(user) => self.users[user].release(&self.network),
            Act::GiveUpRelease(user) => self.users[user].give_up_release(),
            Act::Leave(user) => self.users[user].client = None,
            Act::Time => {}
        }
    }

    /// Lets time pass until something can be seen, for at most `limit`.
    async fn pass(&self, limit: Duration) {
        let limit = limit.min(self.request_limit());
        // What rang before has been seen.
        let _ = pin!(self.network.activity.notified()).poll(&mut Context::from_waker(Waker::noop()));
        let _ = tokio::time::timeout(limit, self.network.activity.notified()).await;
    }

    /// Runs without further faults until a condition holds. `Err` if it does not hold in time.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        within: Duration,
        so: impl Fn(&mut Self) -> bool,
    ) -> Result<(), String> {
        let end = self.network.now() + within;
        loop {
            settle().await;
            checks::after_act(self)?;
            if so(self) {
                return Ok(());
            }
            if let Some(what) = self.network.packets().first() {
                self.act(Act::Deliver(0, *what));
                continue;
            }
            let left = end.since(self.network.now());
            if left.is_zero() {
                return Err(format!("not within {within:?}: {what}"));
            }
            self.trace.push(Act::Time);
            self.pass(left.min(QUIET)).await;
        }
    }
}

/// Every task does what it can at this moment. A turn of the runtime runs all that are ready, and those they wake.
async fn settle() {
    for _ in 0..3 {
        tokio::task::yield_now().await;
    }
}
