//! The guard of a writer that becomes that of a reader: what `Guard::downgrade` does.

use crate::coverage::Coverage;
use crate::mutants::Mutant;
use crate::network::{Call, Reply};
use crate::task::certain;
use crate::user::{DowngradeWait, GuardDowngrade};
use crate::world::World;
use fencelock_core::engine::Downgrading;
use fencelock_core::{RenewalPlan, Unknown};

impl World {
    pub(crate) fn downgrade(&mut self, user: usize) {
        let client = self.client_of(user);
        let Some(guard) = self.users[user].guard.clone() else { return };
        let (hold, tenure) = (guard.grant.hold, guard.grant.tenure);
        let Some((tenure, renewal)) = self.call(client, |engine, cx| engine.downgrade(hold, tenure, cx)) else {
            // It is over, so the call fails, and its guard is dropped.
            return self.drop_guard(user);
        };
        if let Some(guard) = &mut self.users[user].guard {
            guard.grant.tenure = tenure;
        }
        self.send_downgrade(user, renewal);
    }

    fn send_downgrade(&mut self, user: usize, renewal: fencelock_core::Renewal) {
        let op = self.send(self.client_of(user), Call::Downgrade(renewal.clone()));
        let limit = self.now + RenewalPlan::answer_limit(renewal.ttl.get());
        let wait = DowngradeWait::Answer { op, limit };
        self.users[user].downgrading = Some(GuardDowngrade { renewal, sent: self.now, wait });
    }

    /// The time for the answer is over, or it is time for the next request.
    pub(crate) fn downgrade_due(&mut self, user: usize) -> bool {
        let now = self.now;
        let Some(GuardDowngrade { renewal, wait, .. }) = self.users[user].downgrading.clone() else { return false };
        match wait {
            DowngradeWait::Answer { op, limit } if limit <= now => {
                self.give_up_request(self.client_of(user), op);
                self.downgrade_answered(user, Err(crate::network::unknown()));
            }
            DowngradeWait::Again(at) if at <= now => {
                self.cover(Coverage::DowngradedAgain);
                self.send_downgrade(user, renewal);
            }
            _ => return false,
        }
        true
    }

    pub(crate) fn downgrade_answered(&mut self, user: usize, answer: Result<Reply, Unknown>) {
        let client = self.client_of(user);
        let answer = match answer {
            Ok(Reply::Downgrade(answer)) => Ok(answer),
            Ok(reply) => unreachable!("{reply:?} to a downgrade"),
            Err(cause) => Err(cause),
        };
        let (Some(downgrading), Some(guard)) = (self.users[user].downgrading.take(), self.users[user].guard.clone())
        else {
            return;
        };
        let (hold, before, sent) = (guard.grant.hold, guard.grant.tenure, downgrading.sent);
        match self.call(client, |engine, cx| engine.downgrade_answered(hold, before, sent, answer, cx)) {
            Downgrading::Done(tenure) => {
                self.cover(Coverage::Downgraded);
                if tenure.fence <= before.fence {
                    self.break_down(format!("user {user} reads with token {} after {}", tenure.fence, before.fence));
                }
                self.ledger.last_fence = self.ledger.last_fence.max(tenure.fence.get());
                let until = certain(sent, guard.ttl);
                if let Some((_, known)) = self.ledger.certain.iter_mut().find(|(known, _)| *known == guard.holder) {
                    *known = until.max(*known);
                }
                if let Some(guard) = &mut self.users[user].guard {
                    guard.grant.tenure = tenure;
                }
            }
            Downgrading::Again(at) => {
                let wait = DowngradeWait::Again(at);
                self.users[user].downgrading = Some(GuardDowngrade { wait, ..downgrading });
            }
            Downgrading::Over | Downgrading::Refused(_) => {
                self.cover(Coverage::DowngradeLost);
                self.drop_guard(user);
            }
        }
    }

    /// The future is dropped, and its guard with it.
    pub(crate) fn give_up_downgrade(&mut self, user: usize) {
        let Some(downgrading) = self.users[user].downgrading.take() else { return };
        self.cover(Coverage::DowngradeGivenUp);
        if let DowngradeWait::Answer { op, .. } = downgrading.wait {
            self.give_up_request(self.client_of(user), op);
        }
        self.drop_guard(user);
    }

    /// Whether a user that downgrades still counts as a writer, which only a mutant does.
    pub(crate) fn writes_on(&self, user: usize) -> bool {
        self.mutant == Some(Mutant::WritesUntilTheReply) && self.users[user].downgrading.is_some()
    }
}
