//! Clients that want to do the work of a window, and the nodes of a backend. The clients decide by production's [`judge`] and
//! [`Completion::merge`], a quorum by production's [`CompletionVerdict`] and [`Tally`].
//!
//! [`judge`]: fencelock_core::once::judge

use crate::parts::{Client, Fact, Job, Message, Node, Step, kept_until, later, window_of};
use crate::setting::{Act, Rule, Setting};
use fencelock_core::once::Runs;
use fencelock_core::quorum::CompletionVerdict;
use fencelock_core::{Completion, CompletionRead, NodeVote, Outcome, Owner, Quorum, Tally, WriteCompletion};

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    clients: Vec<Client>,
    nodes: Vec<Node>,
    messages: Vec<Message>,
    /// The time, in steps.
    time: u64,
    tokens: u64,
    attempts: u8,
    ticks: u8,
    steps_back: u8,
    losses: u8,
    drops: u8,
    /// The runs that counted, and what was reported as done, in order.
    pub(crate) done: Vec<Fact>,
    pub(crate) reported: Vec<Fact>,
}

const SECOND: u64 = 1_000_000;

impl World {
    pub(crate) fn new(setting: &Setting) -> Self {
        let client = Client {
            job: None,
            token: 0,
            held: false,
            replies: Vec::new(),
            granted: Vec::new(),
            node_votes: Vec::new(),
            sent: false,
            ran: false,
            after_reports: 0,
        };
        Self {
            clients: vec![client; setting.clients],
            nodes: vec![Node::default(); setting.nodes],
            messages: Vec::new(),
            time: 4,
            tokens: 1,
            attempts: setting.attempts,
            ticks: setting.ticks,
            steps_back: setting.steps_back,
            losses: setting.losses,
            drops: setting.drops,
            done: Vec::new(),
            reported: Vec::new(),
        }
    }

    fn quorum(&self) -> Quorum {
        Quorum::new(self.nodes.len()).unwrap()
    }

    pub(crate) fn acts(&self, setting: &Setting) -> Vec<Act> {
        let mut acts: Vec<Act> = (0..self.clients.len()).flat_map(|who| self.acts_of(who, setting)).collect();
        for number in 0..self.messages.len() {
            acts.push(Act::Arrive(number, false));
            if self.drops > 0 {
                acts.extend([Act::Drop(number), Act::Arrive(number, true)]);
            }
        }
        for (number, node) in self.nodes.iter().enumerate() {
            if node.holder.is_some_and(|holder| !self.clients[holder].held) {
                acts.push(Act::Expire(number));
            }
            if node.stored.as_ref().is_some_and(|stored| kept_until(stored.until_micros) <= self.now(setting)) {
                acts.push(Act::Forget(number));
            }
        }
        if self.ticks > 0 {
            acts.push(Act::Tick);
        }
        if self.steps_back > 0 {
            acts.push(Act::StepBack);
        }
        acts
    }

    fn acts_of(&self, who: usize, setting: &Setting) -> Vec<Act> {
        let client = &self.clients[who];
        let Some(job) = &client.job else {
            let begin = [Act::Begin(who, false), Act::Begin(who, true)];
            let many = if self.attempts == 0 { 0 } else { 1 + usize::from(setting.peeks) };
            return begin[..many].to_vec();
        };
        let mut acts = Vec::new();
        match &job.step {
            Step::Read | Step::ReadAgain => {
                // The nodes reply in one order, which keeps the search small. Writes arrive in every order.
                if let Some(node) = (0..self.nodes.len()).find(|node| client.replies[*node].is_none()) {
                    acts.push(Act::Read(who, node, true));
                    // A client that waits for a node that does not reply is like one that is late.
                    if self.nodes.len() > 1 && self.drops > 0 {
                        acts.push(Act::Read(who, node, false));
                    }
                }
            }
            Step::Acquire => {
                let free = |node: &usize| self.nodes[*node].holder.is_none() && !client.granted[*node];
                acts.extend((0..self.nodes.len()).filter(free).map(|node| Act::Grant(who, node)));
                // Attempts that get in each other's way give up.
                acts.push(Act::End(who));
            }
            Step::Write | Step::Confirm(_) if !client.sent => acts.push(Act::Send(who)),
            Step::Write | Step::Confirm(_) if self.drops > 0 || !client.held => acts.push(Act::TimeOut(who)),
            Step::Write | Step::Confirm(_) => {}
            Step::Run => acts.extend([Act::Succeed(who), Act::Fail(who)]),
            Step::Done | Step::AlreadyDone(_) | Step::GiveUp => acts.push(Act::End(who)),
        }
        if client.held && self.losses > 0 {
            acts.push(Act::Lapse(who));
        }
        acts
    }

    /// `Err` says what is broken.
    pub(crate) fn act(&mut self, act: Act, setting: &Setting) -> Result<(), &'static str> {
        match act {
            Act::Begin(who, peeks) => self.begin(who, peeks, setting),
            Act::Read(who, node, answers) => self.read(who, node, answers, setting),
            Act::Grant(who, node) => self.grant(who, node, setting),
            Act::Lapse(who) => {
                self.losses -= 1;
                self.clients[who].held = false;
                // A client that sees the loss stops, unless a reply arrives first.
                if !matches!(self.step(who), Step::Write) {
                    self.fail(who);
                }
            }
            Act::Expire(node) => self.nodes[node].holder = None,
            Act::Send(who) => self.send(who, setting),
            Act::Arrive(number, again) => self.arrive(number, again, setting),
            Act::Drop(number) => {
                self.drops -= 1;
                self.messages.swap_remove(number);
            }
            Act::TimeOut(who) => self.time_out(who, setting),
            Act::Succeed(who) => self.with_job(who, Job::on_success),
            Act::Fail(who) => self.fail(who),
            Act::End(who) => self.end(who),
            Act::Forget(node) => self.nodes[node].stored = None,
            Act::Tick => {
                self.ticks -= 1;
                self.time += 1;
            }
            Act::StepBack => {
                self.steps_back -= 1;
                self.time -= 1;
            }
        }
        if matches!(setting.rule, Rule::Production | Rule::NoConfirmation | Rule::OneNodeIsEnough) {
            self.forget_messages_without_effect(self.now(setting));
        }
        self.messages.sort_by_key(|message| (message.from, message.token, message.node, message.restores));
        self.check(setting)
    }

    fn step(&self, who: usize) -> Step {
        self.clients[who].job.as_ref().map_or(Step::GiveUp, |job| job.step.clone())
    }

    fn with_job(&mut self, who: usize, change: impl FnOnce(&mut Job)) {
        if let Some(job) = &mut self.clients[who].job {
            change(job);
        }
        self.clients[who].sent = false;
    }

    fn fail(&mut self, who: usize) {
        self.with_job(who, Job::on_failure);
    }

    fn begin(&mut self, who: usize, peeks: bool, setting: &Setting) {
        self.attempts -= 1;
        let nodes = self.nodes.len();
        let client = &mut self.clients[who];
        *client = Client {
            job: Some(Job::new(who, setting)),
            token: self.tokens,
            replies: vec![None; nodes],
            granted: vec![false; nodes],
            node_votes: vec![None; nodes],
            held: false,
            sent: false,
            ran: false,
            after_reports: 0,
        };
        self.tokens += 1;
        if !peeks {
            self.with_job(who, Job::on_unread);
        }
    }

    fn now(&self, setting: &Setting) -> u64 {
        self.time * setting.step * SECOND
    }

    fn read(&mut self, who: usize, node: usize, answers: bool, setting: &Setting) {
        let read = CompletionRead::new(self.nodes[node].stored.clone(), self.now(setting));
        if !answers {
            self.drops -= 1;
        }
        let quorum = self.quorum();
        self.clients[who].replies[node] = Some(answers.then_some(read));
        let replies: Vec<_> = self.clients[who].replies.iter().flatten().cloned().collect();
        match CompletionVerdict::of(quorum, &replies) {
            CompletionVerdict::Pending => return,
            CompletionVerdict::Read(read) => {
                let token = self.clients[who].token;
                self.with_job(who, |job| job.on_read(&read, token, owner(who)));
            }
            CompletionVerdict::Unknown | CompletionVerdict::ClocksDiffer(_) => self.with_job(who, Job::on_unread),
        }
        self.clients[who].replies.fill(None);
    }

    fn grant(&mut self, who: usize, node: usize, setting: &Setting) {
        self.nodes[node].holder = Some(who);
        self.clients[who].granted[node] = true;
        // While it acquires, its lease is running.
        self.clients[who].held = true;
        let holds = (0..self.nodes.len()).filter(|node| self.nodes[*node].holder == Some(who)).count();
        if holds < self.quorum().majority() {
            return;
        }
        // A later grant has a greater token.
        let (token, now) = (self.tokens, self.now(setting));
        self.tokens += 1;
        self.clients[who].token = token;
        self.clients[who].after_reports = self.reported.len();
        self.with_job(who, |job| {
            job.step = Step::ReadAgain;
            if setting.rule == Rule::NoReadUnderLock {
                job.on_read(&CompletionRead::new(None, now), token, owner(who));
            }
        });
    }

    fn send(&mut self, who: usize, setting: &Setting) {
        let Some(Job { step, completion, .. }) = &self.clients[who].job else { return };
        let (completion, restores) = match (step, completion) {
            (Step::Write, Some(completion)) => (completion.clone(), false),
            (Step::Confirm(done), _) => (done.stored(), true),
            _ => return,
        };
        if restores && setting.rule == Rule::NoConfirmation {
            self.with_job(who, Job::on_confirmed);
            return;
        }
        if !restores && setting.rule == Rule::ReleaseFirst {
            self.release(who);
            self.clients[who].held = true;
        }
        self.clients[who].sent = true;
        self.clients[who].node_votes.fill(None);
        let token = self.clients[who].token;
        for node in 0..self.nodes.len() {
            self.messages.push(Message { from: who, token, node, completion: completion.clone(), restores });
        }
    }

    fn arrive(&mut self, number: usize, again: bool, setting: &Setting) {
        let message = if again {
            self.drops -= 1;
            self.messages[number].clone()
        } else {
            self.messages.swap_remove(number)
        };
        let Message { from, token, node, completion, restores } = message;
        let (client_token, now) = (self.clients[from].token, self.now(setting));
        let stored = &mut self.nodes[node];
        let unchecked = restores || matches!(setting.rule, Rule::LateWriteCounts | Rule::ReleaseFirst);
        let holds = unchecked || (stored.holder == Some(from) && client_token == token);
        if holds {
            stored.stored = Some(match stored.stored.take() {
                Some(before) if setting.rule == Rule::NoMerge => later(before, completion, now),
                Some(before) if setting.rule != Rule::WriteReplaces => before.merge(completion, now),
                _ => completion,
            });
        }
        let client = &mut self.clients[from];
        if !client.sent || client_token != token || client.node_votes[node].is_some() {
            return;
        }
        client.node_votes[node] = Some(if holds { NodeVote::Ours } else { NodeVote::Absent });
        self.count(from, setting);
    }

    /// A message that changes nothing at its node, and whose reply nobody waits for. So it stays: a client that has lost the key
    /// on a node gets it back there only under another token, and a completion is replaced only by a later one.
    fn forget_messages_without_effect(&mut self, now: u64) {
        let (clients, nodes) = (&self.clients, &self.nodes);
        self.messages.retain(|message| {
            let (client, node) = (&clients[message.from], &nodes[message.node]);
            let same = client.token == message.token;
            let awaited = same && client.sent && client.node_votes[message.node].is_none();
            let holds = same && node.holder == Some(message.from);
            let refused = !(message.restores || holds);
            let merged = |stored: &Completion| stored.clone().merge(message.completion.clone(), now) == *stored;
            // A completion that is forgotten would be stored again.
            let changes_nothing = self.ticks == 0 && node.stored.as_ref().is_some_and(merged);
            awaited || !(refused || changes_nothing)
        });
    }

    fn count(&mut self, who: usize, setting: &Setting) {
        let (mut tally, mut outcome) = (Tally::new(self.quorum()), Outcome::Pending);
        for (node, standing) in self.clients[who].node_votes.iter().enumerate() {
            if let Some(standing) = standing {
                outcome = tally.vote(node, *standing);
            }
        }
        if setting.rule == Rule::OneNodeIsEnough && self.clients[who].node_votes.contains(&Some(NodeVote::Ours)) {
            outcome = Outcome::Ours;
        }
        let held = self.clients[who].held || setting.rule == Rule::LateWriteCounts;
        match (outcome, self.step(who)) {
            (Outcome::Pending | Outcome::Unknown, _) => {}
            (Outcome::Ours, Step::Confirm(_)) => self.with_job(who, Job::on_confirmed),
            (Outcome::Ours, _) => self.with_job(who, |job| job.on_written(WriteCompletion::Written, held)),
            _ => self.with_job(who, |job| job.on_written(WriteCompletion::NotHeld, held)),
        }
    }

    fn time_out(&mut self, who: usize, setting: &Setting) {
        let counts = setting.rule == Rule::UnknownWriteCounts && matches!(self.step(who), Step::Write);
        self.with_job(who, |job| {
            if counts {
                job.on_written(WriteCompletion::Written, true);
            } else {
                job.on_failure();
            }
        });
    }

    fn release(&mut self, who: usize) {
        for node in &mut self.nodes {
            if node.holder == Some(who) {
                node.holder = None;
            }
        }
    }

    fn end(&mut self, who: usize) {
        if let Step::AlreadyDone(done) = self.step(who) {
            let granted = done.completion.granted_micros;
            self.reported.push(Fact { granted, until: done.until_micros });
        }
        self.release(who);
        let client = &mut self.clients[who];
        (client.job, client.held, client.sent) = (None, false, false);
    }

    /// Notes what counts, and checks it.
    fn check(&mut self, setting: &Setting) -> Result<(), &'static str> {
        for (who, client) in self.clients.iter_mut().enumerate() {
            let Some(Job { step, completion: Some(completion), .. }) = &client.job else { continue };
            let (window, granted) = (window_of(who, setting), completion.granted_micros);
            let until = window.end_of(granted);
            // A backend may forget a run after the windows that were named for it. A clock that was set back makes it a later one.
            let repeats = |fact: &Fact| fact.granted >= window.begin_of(granted) && granted < fact.until;
            if *step == Step::Run && self.reported[..client.after_reports].iter().any(repeats) {
                return Err("work is run after it was reported as done");
            }
            let counts = if setting.runs == Runs::Start { Step::Run } else { Step::Done };
            if *step != counts || client.ran {
                continue;
            }
            client.ran = true;
            if self.done.iter().any(repeats) {
                return Err("twice in one window");
            }
            self.done.push(Fact { granted, until });
            self.done.sort_unstable();
        }
        Ok(())
    }
}

fn owner(who: usize) -> Owner {
    Owner::from_text(["a", "b", "c"][who])
}
