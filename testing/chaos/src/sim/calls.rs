//! Drives the calls of a client: sends requests, sets timers, and reports replies.

use super::Mutant;
use super::client::Timer;
use super::coverage::Coverage;
use super::machines::{Call, CallAction, CallTimer, NodeReply, NodeRequest};
use super::message::{Reply, Request, RequestBody, Response};
use super::running::{Done, Kind, Link, Of, Running};
use super::world::{Event, World};
use fencelock_core::engine::HoldId;
use fencelock_core::quorum::{NodeHealth, NodePlan, left_out};
use fencelock_core::{Acquire, Intent, Moment, NodeSet, Raise, Unknown};
use std::time::Duration;

/// How long to wait for the reply to a probe.
const PROBE_LIMIT_US: u64 = 5_000_000;

#[derive(Debug)]
pub(super) enum Happened {
    Started,
    Replied(usize, NodeReply),
    Fired(CallTimer),
    Dropped,
}

fn report<C: Call>(call: &mut C, happened: Happened, now: Moment) -> Vec<CallAction<C::Output>> {
    let mut out = Vec::new();
    match happened {
        Happened::Started => call.start(now, &mut out),
        Happened::Replied(node, reply) => call.on_reply(node, reply, now, &mut out),
        Happened::Fired(timer) => call.on_timer(timer, now, &mut out),
        Happened::Dropped => call.on_dropped(now, &mut out),
    }
    out
}

impl World<'_> {
    /// Starts a call for a holder.
    pub(super) fn call(&mut self, client: usize, kind: Kind, holder: u128, proposal: u64) {
        self.numbers += 1;
        let sent = vec![self.now; self.nodes.len()];
        let (id, link) = (self.numbers, Link { holder, proposal, sent, ..Link::default() });
        self.clients[client].memory.calls.insert(id, Some(Box::new(Running { kind, link })));
        self.happen(client, id, Happened::Started);
    }

    pub(super) fn happen(&mut self, client: usize, id: u64, happened: Happened) {
        let Some(mut running) = self.clients[client].memory.calls.get_mut(&id).and_then(Option::take) else { return };
        let Running { kind, link } = &mut *running;
        let now = self.clients[client].clock.moment(self.now);
        let done = match kind {
            Kind::Claim { call, sent, .. } => {
                let now = if self.scenario.is(Mutant::ValidityFromReply) { *sent } else { now };
                let out = report(call, happened, now);
                let done = self.carry_out(client, id, link, out).map(Done::Claim);
                if done.is_some() {
                    call.on_taken();
                }
                let seen = &mut self.clients[client].memory.seen;
                *seen = call.last_fence().max(*seen);
                done
            }
            Kind::Renew { call, .. } => {
                let out = report(call, happened, now);
                self.carry_out(client, id, link, out).map(Done::Renew)
            }
            Kind::Downgrade { call, .. } => {
                let out = report(call, happened, now);
                let done = self.carry_out(client, id, link, out).map(Done::Downgrade);
                let seen = &mut self.clients[client].memory.seen;
                *seen = call.last_fence().max(*seen);
                done
            }
            Kind::Release { call, .. } => {
                let out = report(call, happened, now);
                self.carry_out(client, id, link, out).map(Done::Release)
            }
        };
        let is_over = match kind {
            Kind::Claim { call, .. } => call.is_over(),
            Kind::Renew { call, .. } => call.is_over(),
            Kind::Downgrade { call, .. } => call.is_over(),
            Kind::Release { call, .. } => call.is_over(),
        };
        if let Some(done) = &done {
            link.reported = true;
            self.notice_result(kind, link, done);
        }
        let result = done.map(|done| (kind.result(), done));
        let calls = &mut self.clients[client].memory.calls;
        if is_over {
            calls.remove(&id);
        } else if let Some(call) = calls.get_mut(&id) {
            *call = Some(running);
        }
        if let Some((of, done)) = result {
            self.on_done(client, of, done);
        }
    }

    fn carry_out<T>(&mut self, client: usize, id: u64, link: &mut Link, out: Vec<CallAction<T>>) -> Option<T> {
        let mut result = None;
        for action in out {
            match action {
                CallAction::Send { node, request } => self.send_for(client, id, link, node, request),
                CallAction::Cancel(CallTimer::Node(node)) => self.claim_ended(client, link, node),
                CallAction::Cancel(_) => {}
                CallAction::SetTimer { timer, after } => self.set_timer(client, id, link, timer, after),
                CallAction::Health { node, failure } => {
                    let took = Duration::from_micros(self.now - link.sent[node]);
                    let client = &mut self.clients[client];
                    let now = client.clock.moment(self.now);
                    client.memory.health[node].on_answer(took, failure.as_ref(), now);
                }
                CallAction::Done(done) => result = Some(done),
            }
        }
        result
    }

    fn set_timer(&mut self, client: usize, call: u64, link: &mut Link, timer: CallTimer, after: Option<Duration>) {
        link.timers.retain(|(_, other)| *other != timer);
        let Some(after) = after else { return };
        let clock = self.clients[client].clock;
        let at = clock.when(clock.moment(self.now) + after, self.now);
        link.timers.push((at, timer));
        self.set_alarm(client, call, link);
    }

    /// One queued event per call is enough: most timers are stopped before they fire.
    fn set_alarm(&mut self, client: usize, call: u64, link: &mut Link) {
        let Some((at, _)) = link.timers.iter().min() else { return };
        if link.alarm.is_none_or(|alarm| *at < alarm) {
            link.alarm = Some(*at);
            self.after(*at - self.now, client, Timer::Call(call));
        }
    }

    pub(super) fn call_timer(&mut self, client: usize, id: u64) {
        loop {
            let Some(running) = self.running(client, id) else { return };
            let Some(due) = running.link.timers.iter().min().copied().filter(|(at, _)| *at <= self.now) else { break };
            self.running(client, id).into_iter().for_each(|running| running.link.timers.retain(|timer| *timer != due));
            self.happen(client, id, Happened::Fired(due.1));
        }
        let calls = &mut self.clients[client].memory.calls;
        let Some(mut running) = calls.get_mut(&id).and_then(Option::take) else { return };
        running.link.alarm = None;
        self.set_alarm(client, id, &mut running.link);
        self.clients[client].memory.calls.insert(id, Some(running));
    }

    fn running(&mut self, client: usize, id: u64) -> Option<&mut Running> {
        self.clients[client].memory.calls.get_mut(&id)?.as_deref_mut()
    }

    fn send_for(&mut self, client: usize, call: u64, link: &mut Link, node: usize, message: NodeRequest) {
        link.sent[node] = self.now;
        let body = match message {
            NodeRequest::Claim => {
                link.claiming.insert(node);
                RequestBody::Claim { proposal: link.proposal, mode: self.clients[client].memory.mode }
            }
            NodeRequest::Raise(to) => {
                link.raises = true;
                self.trace(|| format!("c{client} raises n{node} to {to}"));
                RequestBody::Raise { to }
            }
            NodeRequest::Renew => RequestBody::Renew,
            NodeRequest::Release => RequestBody::Release,
            NodeRequest::Watch => RequestBody::Watch,
            NodeRequest::Downgrade => RequestBody::Downgrade { proposal: link.proposal },
            NodeRequest::ClaimEnd => {
                link.waiting.insert(node);
                return;
            }
        };
        // Without rollback, the call releases nothing: of the calls that release, only a claim has a proposal.
        if self.scenario.is(Mutant::NoRollback) && link.proposal > 0 && matches!(body, RequestBody::Release) {
            return;
        }
        let request = self.request(client, call, link.holder, body);
        let reply = match body {
            // Nodes send no notifications in the simulation.
            RequestBody::Watch => NodeReply::Watch,
            RequestBody::Raise { .. } if self.scenario.is(Mutant::NoRound2) => NodeReply::Raise(Ok(Raise::Acked)),
            _ => return self.send(node, request),
        };
        self.queue.put(self.now, Event::AtClient(Box::new(Response { node, request, reply: Reply::Node(reply) })));
    }

    pub(super) fn request(&self, client: usize, call: u64, holder: u128, body: RequestBody) -> Request {
        Request { client, life: self.clients[client].life, call, key: self.clients[client].key, holder, body }
    }

    /// A claim has ended at a node, so releases that wait for it are sent.
    fn claim_ended(&mut self, client: usize, link: &mut Link, node: usize) {
        if !link.claiming.contains(node) {
            return;
        }
        link.claiming.remove(node);
        let waits = |running: &Running| running.link.holder == link.holder && running.link.waiting.contains(node);
        for id in self.calls_where(client, waits) {
            if let Some(running) = self.running(client, id) {
                running.link.waiting.remove(node);
            }
            self.happen(client, id, Happened::Replied(node, NodeReply::ClaimEnd));
        }
    }

    /// The nodes that have a claim of this holder in flight.
    pub(super) fn claiming(&self, client: usize, holder: u128) -> NodeSet {
        let calls = self.clients[client].memory.calls.values().flatten();
        calls.filter(|running| running.link.holder == holder).flat_map(|running| running.link.claiming.iter()).collect()
    }

    /// Drops the call for a downgrade that no task waits for.
    pub(super) fn drop_downgrade(&mut self, client: usize, of: HoldId) {
        let is_downgrade = |running: &Running| {
            matches!(running.kind, Kind::Downgrade { hold, .. } if hold == of) && !running.link.reported
        };
        for id in self.calls_where(client, is_downgrade) {
            self.happen(client, id, Happened::Dropped);
        }
    }

    /// Drops the claim of a task whose user has given up.
    pub(super) fn drop_claims(&mut self, client: usize, of: u64) {
        self.clients[client].memory.direct.retain(|_, it| !matches!(it, Of::Claim(task) if *task == of));
        let is_claim = |running: &Running| {
            matches!(running.kind, Kind::Claim { task, .. } if task == of) && !running.link.reported
        };
        for id in self.calls_where(client, is_claim) {
            self.happen(client, id, Happened::Dropped);
        }
    }

    fn calls_where(&self, client: usize, which: impl Fn(&Running) -> bool) -> Vec<u64> {
        let calls = self.clients[client].memory.calls.iter();
        calls.filter(|(_, running)| running.as_deref().is_some_and(&which)).map(|(id, _)| *id).collect()
    }

    /// Sends a claim or a renewal to the one server, as a client without a quorum does.
    pub(super) fn ask(&mut self, client: usize, of: Of, holder: u128, body: RequestBody, limit: Duration) {
        self.numbers += 1;
        let request = self.request(client, self.numbers, holder, body);
        self.clients[client].memory.direct.insert(request.call, of);
        self.after(u64::try_from(limit.as_micros()).unwrap_or(u64::MAX), client, Timer::Unanswered(request.call));
        self.send(0, request);
    }

    fn answer_direct(&mut self, client: usize, request: Request, reply: Reply) {
        match (reply, request.body) {
            (Reply::Node(reply), _) => self.direct_done(client, request.call, Some(reply)),
            (Reply::Yours, RequestBody::Queue(mut queueing))
                if self.clients[client].memory.direct.contains_key(&request.call) =>
            {
                queueing.intent = Intent::Poll;
                self.send(0, Request { body: RequestBody::Queue(queueing), ..request });
            }
            _ => {}
        }
    }

    /// The reply to such a request; `None` if it is late.
    pub(super) fn direct_done(&mut self, client: usize, call: u64, reply: Option<NodeReply>) {
        if let Some(of) = self.clients[client].memory.direct.remove(&call) {
            let done = of.done(reply);
            self.on_done(client, of, done);
        }
    }

    pub(super) fn on_response(&mut self, response: Response) {
        let Response { node, request, reply } = response;
        let Request { client, call: id, .. } = request;
        if id == Request::PROBE {
            return self.probed(client, node, true);
        }
        if self.shares.queues() && !matches!(request.body, RequestBody::Release) {
            return self.answer_direct(client, request, reply);
        }
        let calls = &mut self.clients[client].memory.calls;
        let Some(mut running) = calls.get_mut(&id).and_then(Option::take) else { return };
        let reply = match reply {
            Reply::Node(NodeReply::Claim(answer)) => self.claim_replied(client, node, &mut running, answer),
            Reply::Node(reply) => Some(reply),
            Reply::Yours => {
                self.confirm(node, request, &running.link);
                None
            }
        };
        self.clients[client].memory.calls.insert(id, Some(running));
        if let Some(reply) = reply {
            self.happen(client, id, Happened::Replied(node, reply));
        }
    }

    /// A repeated claim does not return the remaining TTL and the fence, so the client polls for them.
    fn confirm(&mut self, node: usize, request: Request, link: &Link) {
        if let (RequestBody::Claim { proposal, mode } | RequestBody::Confirm { proposal, mode }, true) =
            (request.body, link.claiming.contains(node))
        {
            self.send(node, Request { body: RequestBody::Confirm { proposal, mode }, ..request });
        }
    }

    fn claim_replied(
        &mut self,
        client: usize,
        node: usize,
        running: &mut Running,
        answer: Result<Acquire, Unknown>,
    ) -> Option<NodeReply> {
        let Running { kind, link } = running;
        if !link.claiming.contains(node) {
            return None;
        }
        let lost = matches!(kind, Kind::Claim { call, .. } if call.defeat().is_some());
        let mut reply = NodeReply::Claim(answer);
        match &reply {
            NodeReply::Claim(Ok(Acquire::Granted { .. })) if lost => self.covered.saw(Coverage::LateGrant),
            NodeReply::Claim(Ok(Acquire::Granted { .. })) => link.granted = Some(reply.clone()),
            NodeReply::Claim(Ok(Acquire::Busy(_))) if self.scenario.is(Mutant::MajorityOff) => {
                reply = link.granted.clone().unwrap_or(reply);
            }
            _ => {}
        }
        self.claim_ended(client, link, node);
        Some(reply)
    }

    fn notice_result(&mut self, kind: &Kind, link: &Link, done: &Done) {
        let (Kind::Claim { call, .. }, Done::Claim(result)) = (kind, done) else { return };
        if link.raises {
            self.covered.saw(Coverage::Raise);
        }
        match (call.defeat(), result) {
            (Some(defeat), _) => self.notice_defeat(defeat),
            (None, Ok(_)) if !link.raises => self.covered.saw(Coverage::EqualGrants),
            (None, Ok(_)) => {}
            (None, Err(_)) => self.covered.saw(Coverage::TooLate),
        }
    }

    /// The time limit for each node, and which nodes are left out.
    pub(super) fn plan(&mut self, client: usize, limit: impl Fn(&NodeHealth) -> Duration) -> Vec<NodePlan> {
        let health = &self.clients[client].memory.health;
        let left_out = left_out(self.settings.size, health.iter().map(|health| health.down().cloned()).collect());
        let plan = health.iter().zip(left_out).map(|(health, left_out)| NodePlan { limit: limit(health), left_out });
        let plan: Vec<NodePlan> = plan.collect();
        for (node, _) in plan.iter().enumerate().filter(|(_, plan)| plan.left_out.is_some()) {
            self.probe(client, node);
        }
        plan
    }

    fn probe(&mut self, client: usize, node: usize) {
        let now = self.clients[client].clock.moment(self.now);
        let memory = &mut self.clients[client].memory;
        if memory.health[node].begin_probe(now) {
            memory.probing.insert(node);
            let probe = self.request(client, Request::PROBE, 0, RequestBody::Watch);
            self.send(node, probe);
            self.after(PROBE_LIMIT_US, client, Timer::Probe { node });
        }
    }

    pub(super) fn probed(&mut self, client: usize, node: usize, answered: bool) {
        let now = self.clients[client].clock.moment(self.now);
        let memory = &mut self.clients[client].memory;
        if memory.probing.contains(node) {
            memory.probing.remove(node);
            memory.health[node].on_probe(answered, now);
        }
    }
}
