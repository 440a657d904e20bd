use super::Quorum;
use crate::{Moment, Renewal, Unknown};
use std::time::Duration;

/// The longest wait for a node, unless the user sets a longer limit.
const LONGEST_LIMIT: Duration = Duration::from_secs(1);
/// If a node takes this many times its usual time, it is assumed not to answer.
const TIMES_USUAL: u32 = 8;
/// After this many failures in a row a node is left out until a probe succeeds.
const FAILURES: u32 = 3;
const FIRST_PROBE: Duration = Duration::from_millis(100);
const RAREST_PROBE: Duration = Duration::from_secs(5);

/// The longest wait for a node, if no lease limits it.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// The time in which a loaded server renews several keys.
const PER_RENEWAL: Duration = Duration::from_millis(1);

/// How a call uses one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodePlan {
    /// The time limit for its reply: [`NodeHealth::limit`].
    pub limit: Duration,
    /// Why it is left out; `None` if it is used.
    pub left_out: Option<Unknown>,
}

/// The time limit for a node to renew all of these, given the limit for a single request, which is at most a tenth of the shortest lease.
///
/// The time for one key does not predict the time for thousands. But a caller that waits for all of them gives up after a
/// fifth of a lease, and a hold that depends on a silent node must not delay the results of the others.
pub fn renewal_limit(renewals: &[Renewal], for_one: impl FnOnce(Duration) -> Duration) -> Duration {
    let shortest = renewals.iter().map(|renewal| renewal.ttl.get()).min().unwrap_or_default();
    let least = PER_RENEWAL.saturating_mul(u32::try_from(renewals.len()).unwrap_or(u32::MAX));
    for_one(shortest / 10).max(least.min(REPLY_TIMEOUT).min(shortest / 6))
}

/// The health of a node, from its latest replies: how long to wait for it, and whether to send requests at all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct NodeHealth {
    failures: u32,
    cause: Option<Unknown>,
    /// The response time; the latest replies count most.
    usual: Option<Duration>,
    probe_at: Option<Moment>,
    probe_pause: Duration,
    /// A client has found that the node belongs to another set.
    reported: bool,
}

/// A change to be logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HealthChange {
    /// The node is left out until a probe succeeds.
    LeftOut,
    /// The node answers again.
    Recovered,
    /// The node refuses permanently. If a majority of the others continues without it, the log is the only sign.
    Refuses,
}

impl NodeHealth {
    /// The time limit for a reply, between `shortest` and `most`. Fast replies shorten it, except after a failure: the
    /// node may have become slower.
    pub fn limit(&self, most: Duration, shortest: Duration) -> Duration {
        let most = most.clamp(shortest, LONGEST_LIMIT.max(shortest));
        match self.usual {
            Some(usual) if self.failures == 0 => (usual * TIMES_USUAL).clamp(shortest, most),
            _ => most,
        }
    }

    /// Why a request to the node would fail now; `None` if it may succeed.
    pub fn down(&self) -> Option<&Unknown> {
        self.cause.as_ref().filter(|_| self.failures >= FAILURES)
    }

    /// Records a reply after `took`, or a failure.
    pub fn on_answer(&mut self, took: Duration, failure: Option<&Unknown>, now: Moment) -> Option<HealthChange> {
        // A refusal shows that the node is up. Requests continue, because a node does not report the end of its quarantine.
        if let Some(cause) = failure.filter(|cause| !cause.is_refusal()) {
            self.failures = self.failures.saturating_add(1);
            self.cause = Some(cause.clone());
            if self.failures != FAILURES {
                return None;
            }
            (self.probe_pause, self.probe_at) = (FIRST_PROBE, Some(now + FIRST_PROBE));
            return Some(HealthChange::LeftOut);
        }
        self.usual = Some(self.usual.map_or(took, |usual| (usual * 7 + took) / 8));
        let recovered = self.recover();
        if failure.is_some_and(Unknown::is_permanent) && !std::mem::replace(&mut self.reported, true) {
            return Some(HealthChange::Refuses);
        }
        recovered
    }

    /// Whether a probe of a node that is left out is due. If so, none is due until [`NodeHealth::on_probe`].
    pub fn begin_probe(&mut self, now: Moment) -> bool {
        self.failures >= FAILURES && self.probe_at.take_if(|at| *at <= now).is_some()
    }

    /// Records the end of a probe: whether the node answered. A refusal is an answer.
    pub fn on_probe(&mut self, answered: bool, now: Moment) -> Option<HealthChange> {
        if answered {
            self.usual = None;
            return self.recover();
        }
        self.probe_pause = (self.probe_pause * 2).min(RAREST_PROBE);
        self.probe_at = Some(now + self.probe_pause);
        None
    }

    fn recover(&mut self) -> Option<HealthChange> {
        let was_down = self.failures >= FAILURES;
        (self.failures, self.cause, self.probe_at) = (0, None, None);
        was_down.then_some(HealthChange::Recovered)
    }
}

/// Selects the nodes to leave out of a call from those that are down. None if fewer than a majority are known to be
/// healthy.
pub fn left_out(size: Quorum, mut down: Vec<Option<Unknown>>) -> Vec<Option<Unknown>> {
    if down.iter().flatten().count() > size.spare() {
        down.fill(None);
    }
    down
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fault;

    const MS: Duration = Duration::from_millis(1);

    fn failure(fault: Fault) -> Unknown {
        Unknown::new("node", fault, "")
    }

    fn down() -> NodeHealth {
        let mut health = NodeHealth::default();
        let changes: Vec<_> =
            (0..4).map(|_| health.on_answer(MS, Some(&failure(Fault::Timeout)), Moment::default())).collect();
        assert_eq!(changes, [None, None, Some(HealthChange::LeftOut), None]);
        health
    }

    #[test]
    fn what_is_learnt_shortens_the_limit_and_a_failure_restores_it() {
        let mut health = NodeHealth::default();
        let (most, shortest) = (MS * 500, MS * 10);
        assert_eq!(health.limit(most, shortest), most);
        health.on_answer(MS * 5, None, Moment::default());
        assert_eq!(health.limit(most, shortest), MS * 40);
        assert_eq!(health.limit(most, MS * 100), MS * 100);
        health.on_answer(MS, Some(&failure(Fault::Timeout)), Moment::default());
        assert_eq!(health.limit(most, shortest), most);
        assert_eq!(health.limit(Duration::MAX, MS * 3000), MS * 3000);
    }

    #[test]
    fn a_node_that_is_down_is_probed_less_and_less_often_until_it_answers() {
        let mut health = down();
        let at = |ms: u32| Moment::default() + MS * ms;
        assert!(health.down().is_some() && !health.begin_probe(at(99)));
        assert!(health.begin_probe(at(100)) && !health.begin_probe(at(5000)), "one at a time");
        assert_eq!(health.on_probe(false, at(5000)), None);
        assert!(!health.begin_probe(at(5199)) && health.begin_probe(at(5200)));
        assert_eq!(health.on_probe(true, at(5201)), Some(HealthChange::Recovered));
        assert_eq!(health, NodeHealth { probe_pause: MS * 200, ..NodeHealth::default() });
    }

    #[test]
    fn a_node_that_refuses_is_well_and_reported_once() {
        let mut health = down();
        let refuses = failure(Fault::Misconfigured);
        assert_eq!(health.on_answer(MS, Some(&refuses), Moment::default()), Some(HealthChange::Refuses));
        assert_eq!(health.on_answer(MS, Some(&refuses), Moment::default()), None);
        assert_eq!(health.down(), None);
    }

    #[test]
    fn nodes_are_left_out_only_while_a_majority_remains() {
        let size = Quorum::new(3).unwrap();
        let down = |nodes: [bool; 3]| nodes.map(|down| down.then(|| failure(Fault::Timeout))).to_vec();
        let count = |nodes| left_out(size, down(nodes)).iter().flatten().count();
        assert_eq!((count([true, false, false]), count([true, true, false])), (1, 0));
    }
}
