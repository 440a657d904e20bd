//! Clients that each want several keys, and a server with a queue for each key. They go through the rounds of `lock_all`, and decide
//! by production's [`KeySet`] which key is claimed next and which are kept.

use fencelock_core::KeySet;

/// How the clients of a search behave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// As production does.
    Production,
    /// Each client claims its keys in the order in which its caller named them.
    OwnOrder,
    /// A client joins the queues one after another and does not wait for a grant in between.
    WaitsInAllQueues,
    /// A client whose lease is lost keeps the other keys and waits for the lost one again.
    RetakesLostKeyAlone,
    /// The leases are not checked when the last claim is granted.
    LastGrantUnchecked,
    /// A refused claim releases nothing.
    KeepsOnRefusal,
    /// Of the keys that are tried at the same time, all that are granted are kept, also those after a refused one.
    KeepsLaterKeys,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) rule: Rule,
    /// The keys of each client, in the order in which its caller names them.
    pub(crate) wants: &'static [&'static [&'static str]],
    /// Whether a try may find a free key. Otherwise it is answered as if all keys were busy, which is always possible.
    pub(crate) tries: bool,
    /// How many leases are lost.
    pub(crate) losses: u8,
    /// Whether the wait of a client may end.
    pub(crate) bounded: bool,
    /// Whether a client learns of a grant or a loss in the same step. Otherwise any step may come before.
    pub(crate) at_once: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    /// A try of this key by the client arrives. The keys of a try arrive in any order.
    Try(usize, usize),
    /// All tries are answered: the client keeps some of the keys, and releases the others.
    ReceiveTries(usize),
    /// The release of a key that was tried and not kept arrives.
    Return(usize, usize),
    /// The client sends its next claim.
    Claim(usize),
    /// It receives the grant of its claim.
    ReceiveGrant(usize),
    /// The server forgets that the client holds this key.
    Lose(usize, usize),
    ReceiveLoss(usize),
    /// The wait of the client is over.
    TimeOut(usize),
    /// The client releases all keys, because it cannot get the others.
    GiveBack(usize),
    /// The client finds that it holds all keys.
    Enter(usize),
    /// It releases all of them after its work.
    Leave(usize),
}

/// What the client does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    /// It tries all remaining keys.
    Try,
    /// It claims the first of the remaining keys, and waits for it.
    Claim,
    Release {
        again: bool,
    },
    Granted,
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Client {
    keys: KeySet,
    /// The number of keys that are held: the first ones in the order of claims.
    held: usize,
    step: Step,
    rounds: u32,
    /// The key of the claim that is not answered.
    claimed: Option<usize>,
    /// The keys that were tried, and whether they were granted. Their answers have not been received.
    tried: Vec<(usize, bool)>,
    /// A lease was lost, and the client does not know it yet.
    lost: bool,
    inside: bool,
    over: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    names: Vec<&'static str>,
    /// The holder of each key, then those who wait for it.
    queues: Vec<Vec<usize>>,
    clients: Vec<Client>,
    losses: u8,
}

/// Added to the number of a client: its try of a key whose release it has sent.
const RETURNED: usize = 100;

impl World {
    pub(crate) fn new(setting: &Setting) -> Self {
        let mut names: Vec<_> = setting.wants.concat();
        names.sort_unstable();
        names.dedup();
        let client = |keys: &&[&str]| {
            let keys = KeySet::new(*keys).unwrap();
            let (claimed, tried) = (None, Vec::new());
            Client {
                keys,
                held: 0,
                step: Step::Try,
                rounds: 1,
                claimed,
                tried,
                lost: false,
                inside: false,
                over: false,
            }
        };
        let clients = setting.wants.iter().map(client).collect();
        let mut world = Self { queues: vec![Vec::new(); names.len()], names, clients, losses: setting.losses };
        world.refuse_tries(setting);
        world
    }

    pub(crate) fn acts(&self, setting: &Setting) -> Vec<Act> {
        (0..self.clients.len()).flat_map(|who| self.acts_of(who, setting)).collect()
    }

    fn acts_of(&self, who: usize, setting: &Setting) -> Vec<Act> {
        let client = &self.clients[who];
        let mut acts = self.returns_of(who);
        if client.over {
            return acts;
        }
        if client.inside {
            acts.push(Act::Leave(who));
            return acts;
        }
        let has_all = self.keys_of(who).iter().all(|key| self.holds(who, *key));
        match (client.step, client.claimed) {
            (Step::Try, _) if client.tried.len() == client.remaining().len() => acts.push(Act::ReceiveTries(who)),
            (Step::Try, _) => {
                let untried =
                    self.remaining(who).into_iter().filter(|key| client.tried.iter().all(|(tried, _)| tried != key));
                acts.extend(untried.map(|key| Act::Try(who, key)));
            }
            (Step::Claim, None) => acts.push(Act::Claim(who)),
            (Step::Claim, Some(key)) if self.holds(who, key) => acts.push(Act::ReceiveGrant(who)),
            (Step::Claim, Some(_)) if setting.bounded => acts.push(Act::TimeOut(who)),
            (Step::Granted, _) if has_all || !setting.rule.waits_for_rest() => acts.push(Act::Enter(who)),
            (Step::Release { .. }, _) => acts.push(Act::GiveBack(who)),
            _ => {}
        }
        if client.lost {
            acts.push(Act::ReceiveLoss(who));
        }
        if self.losses > 0 && !has_all {
            let held = self.keys_of(who).into_iter().filter(|key| self.holds(who, *key));
            acts.extend(held.map(|key| Act::Lose(who, key)));
        }
        acts
    }

    /// `Err` says what is broken.
    pub(crate) fn act(&mut self, act: Act, setting: &Setting) -> Result<(), String> {
        match act {
            Act::Try(who, key) => {
                let is_free = self.queues[key].is_empty();
                if is_free {
                    self.queues[key].push(who);
                }
                self.clients[who].tried.push((key, is_free));
            }
            Act::ReceiveTries(who) => self.on_tried(who, setting.rule),
            Act::Return(who, key) => self.queues[key].retain(|holder| *holder != who + RETURNED),
            Act::Claim(who) => {
                let key = self.next_key(who, setting.rule);
                if !self.queues[key].contains(&who) {
                    self.queues[key].push(who);
                }
                self.clients[who].claimed = Some(key);
                if setting.rule == Rule::WaitsInAllQueues {
                    self.on_granted(who);
                }
            }
            Act::ReceiveGrant(who) => self.on_granted(who),
            Act::Lose(who, key) => self.lose(who, key, setting),
            Act::ReceiveLoss(who) => self.on_lost(who),
            Act::TimeOut(who) => {
                self.give_claim_up(who);
                if setting.rule == Rule::KeepsOnRefusal {
                    self.clients[who].over = true;
                } else {
                    self.clients[who].give_up(false);
                }
                self.check_refused(who)?;
            }
            Act::GiveBack(who) => {
                self.release_all(who);
                self.clients[who].on_released();
                self.check_refused(who)?;
            }
            Act::Enter(who) => self.enter(who, setting)?,
            Act::Leave(who) => {
                self.release_all(who);
                self.clients[who].over = true;
            }
        }
        if setting.at_once {
            self.receive(setting);
        }
        self.refuse_tries(setting);
        Ok(())
    }

    fn refuse_tries(&mut self, setting: &Setting) {
        for client in self.clients.iter_mut().filter(|client| !setting.tries && client.step == Step::Try) {
            client.on_tried(|_| false);
        }
    }

    /// Whether every client has finished.
    pub(crate) fn is_over(&self) -> bool {
        self.clients.iter().all(|client| client.over)
    }

    /// How many rounds the clients have begun.
    pub(crate) fn rounds(&self) -> u32 {
        self.clients.iter().map(|client| client.rounds).sum()
    }

    fn next_key(&self, who: usize, rule: Rule) -> usize {
        let client = &self.clients[who];
        self.keys_of(who)[if rule == Rule::OwnOrder { client.held } else { client.remaining()[0] }]
    }

    /// In the order in which the caller named them.
    fn keys_of(&self, who: usize) -> Vec<usize> {
        let index = |key: &fencelock_core::Key| self.names.iter().position(|name| *key == *name).unwrap();
        self.clients[who].keys.keys().iter().map(index).collect()
    }

    fn holds(&self, who: usize, key: usize) -> bool {
        self.queues[key].first() == Some(&who)
    }

    /// The keys that are not held, in the order of claims.
    fn remaining(&self, who: usize) -> Vec<usize> {
        let keys = self.keys_of(who);
        self.clients[who].remaining().iter().map(|position| keys[*position]).collect()
    }

    fn returns_of(&self, who: usize) -> Vec<Act> {
        let keys = (0..self.queues.len()).filter(|key| self.queues[*key].contains(&(who + RETURNED)));
        keys.map(|key| Act::Return(who, key)).collect()
    }

    fn on_tried(&mut self, who: usize, rule: Rule) {
        let granted: Vec<_> = std::mem::take(&mut self.clients[who].tried);
        let granted = |key: &usize| granted.contains(&(*key, true));
        let keys = self.remaining(who);
        let kept = self.clients[who].on_tried(|index| granted(&keys[index]));
        if rule != Rule::KeepsLaterKeys {
            for key in keys.into_iter().skip(kept).filter(granted) {
                self.begin_release(who, key);
            }
        }
    }

    /// The release of the key is on its way.
    fn begin_release(&mut self, who: usize, key: usize) {
        for holder in self.queues[key].iter_mut().filter(|holder| **holder == who) {
            *holder += RETURNED;
        }
    }

    fn on_granted(&mut self, who: usize) {
        self.clients[who].claimed = None;
        self.clients[who].held += 1;
        self.clients[who].goes_on(true);
    }

    fn lose(&mut self, who: usize, key: usize, setting: &Setting) {
        self.losses -= 1;
        self.queues[key].remove(0);
        if setting.rule == Rule::RetakesLostKeyAlone {
            self.queues[key].push(who);
        } else if self.clients[who].claimed == Some(key) {
            // The claim is not answered yet: it waits on, at the end of the queue.
            self.queues[key].push(who);
        } else {
            self.clients[who].lost = true;
        }
    }

    fn on_lost(&mut self, who: usize) {
        self.give_claim_up(who);
        for (key, _) in std::mem::take(&mut self.clients[who].tried) {
            self.begin_release(who, key);
        }
        self.clients[who].lost = false;
        self.clients[who].give_up(true);
    }

    fn give_claim_up(&mut self, who: usize) {
        if let Some(key) = self.clients[who].claimed.take() {
            self.queues[key].retain(|waiter| *waiter != who);
        }
    }

    fn release_all(&mut self, who: usize) {
        for queue in &mut self.queues {
            queue.retain(|waiter| *waiter != who);
        }
        self.clients[who].lost = false;
    }

    fn enter(&mut self, who: usize, setting: &Setting) -> Result<(), String> {
        if self.clients[who].lost && setting.rule != Rule::LastGrantUnchecked {
            self.on_lost(who);
            return Ok(());
        }
        self.clients[who].inside = true;
        let missing = self.keys_of(who).into_iter().find(|key| !self.holds(who, *key));
        missing.map_or(Ok(()), |key| Err(format!("client {who} enters without {}", self.names[key])))
    }

    /// A client that was refused has nothing left at the server.
    fn check_refused(&mut self, who: usize) -> Result<(), String> {
        let client = &mut self.clients[who];
        client.over |= client.step == Step::Refused;
        let left = client.over && self.queues.iter().any(|queue| queue.contains(&who));
        if left { Err(format!("client {who} was refused and leaves a key behind")) } else { Ok(()) }
    }

    /// The clients learn everything that has happened.
    fn receive(&mut self, setting: &Setting) {
        while let Some(act) =
            self.acts(setting).into_iter().find(|act| matches!(act, Act::ReceiveGrant(_) | Act::ReceiveLoss(_)))
        {
            match act {
                Act::ReceiveGrant(who) => self.on_granted(who),
                Act::ReceiveLoss(who) => {
                    self.on_lost(who);
                    self.release_all(who);
                    self.clients[who].on_released();
                }
                _ => {}
            }
        }
    }
}

impl Client {
    /// The positions of the keys that are not held, in the order of claims.
    fn remaining(&self) -> &[usize] {
        &self.keys.claim_order()[self.held..]
    }

    fn goes_on(&mut self, tries: bool) {
        self.step = match self.remaining() {
            [] => Step::Granted,
            [_, _, ..] if tries => Step::Try,
            _ => Step::Claim,
        };
    }

    /// Returns how many of the remaining keys are kept.
    fn on_tried(&mut self, granted: impl Fn(usize) -> bool) -> usize {
        let kept = KeySet::kept((0..self.remaining().len()).map(granted));
        self.held += kept;
        self.goes_on(false);
        kept
    }

    /// After a refusal, a loss changes nothing.
    fn give_up(&mut self, again: bool) {
        if !matches!(self.step, Step::Release { .. } | Step::Refused) {
            self.step = Step::Release { again };
            if self.held == 0 {
                self.on_released();
            }
        }
    }

    fn on_released(&mut self) {
        let Step::Release { again } = self.step else { return };
        self.held = 0;
        if again {
            self.rounds += 1;
            self.goes_on(true);
        } else {
            self.step = Step::Refused;
        }
    }
}

impl Rule {
    /// The clients claim without waiting, or wait again for a lost key, so the rest is still on its way.
    const fn waits_for_rest(self) -> bool {
        matches!(self, Self::WaitsInAllQueues | Self::RetakesLostKeyAlone)
    }
}
