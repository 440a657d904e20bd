//! The messages of hand-offs. Each may arrive at any later time, twice, or never.

use crate::client::{Belief, Phase, TTL_MS};
use crate::world::{HAND_OFF_MS, Rule, World};
use fencelock_model::{Delivery, HandOff, Name};

/// The messages that one call sends.
#[derive(Debug, Default)]
pub(crate) struct Outbox(Vec<HandOff>);

impl Outbox {
    pub(crate) fn send(&mut self, hand_off: HandOff) -> Delivery {
        self.0.push(hand_off);
        Delivery::Received
    }
}

impl World {
    /// A message matters until its client no longer waits, or has received a later reply.
    pub(crate) fn deliver_later(&mut self, sent: Outbox) {
        for HandOff { to, fence, .. } in sent.0 {
            let Name::Holder(holder) = to else { continue };
            let client = usize::try_from(holder).ok().and_then(|number| self.clients.get_mut(number.checked_sub(1)?));
            if let Some(client) = client.filter(|client| client.phase == Phase::Waiting && !client.stopped) {
                client.notified = Some(fence);
            }
        }
    }

    /// A claim was answered with a position in the queue.
    pub(crate) fn queued(&mut self, i: usize, rule: Rule) {
        let now_ms = self.now_us / 1000;
        let client = &mut self.clients[i];
        (client.phase, client.asked_ms) = (Phase::Waiting, now_ms);
        // Its message is not newer than the reply.
        client.notified.take_if(|_| rule != Rule::BelievesStaleMessages);
    }

    /// Until when a message lets this client hold the key, if it believes it now.
    pub(crate) fn notified_until_ms(&self, i: usize, rule: Rule) -> Option<u64> {
        let (client, now_ms) = (&self.clients[i], self.now_us / 1000);
        let (from_ms, ttl_ms) = match rule {
            Rule::CountsFromTheMessage => (now_ms, HAND_OFF_MS),
            Rule::TakesMessagesForLeases => (client.asked_ms, TTL_MS),
            _ => (client.asked_ms, HAND_OFF_MS),
        };
        let until_ms = Some(from_ms + ttl_ms).filter(|until| *until >= now_ms)?;
        (client.notified.is_some() && client.phase == Phase::Waiting && !client.stopped).then_some(until_ms)
    }

    /// The message arrives.
    pub(crate) fn receive(&mut self, i: usize, rule: Rule) {
        let Some(until_ms) = self.notified_until_ms(i, rule) else { return };
        let mode = self.clients[i].kind.mode();
        self.token = self.token.max(self.clients[i].notified.unwrap_or_default());
        self.clients[i].phase = Phase::Holding(Belief { mode, until_ms, downgrading: false });
    }

    /// Forgets messages that cannot matter any more.
    pub(crate) fn forget_messages(&mut self, rule: Rule) {
        for i in 0..self.clients.len() {
            let (now_ms, client) = (self.now_us / 1000, &self.clients[i]);
            let waits = client.phase == Phase::Waiting && !client.stopped;
            let is_over = client.asked_ms + HAND_OFF_MS < now_ms;
            if !waits || is_over && rule == Rule::Production {
                self.clients[i].notified = None;
                self.clients[i].asked_ms = 0;
            }
        }
    }
}
