use crate::dice::Dice;
use crate::fault::Fault;
use std::time::Duration;

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What.
    pub fault: Fault,
    /// To which node or worker.
    pub victim: usize,
    /// How long.
    pub lasts: Duration,
    /// How long the clients are left in peace before it.
    pub peace: Duration,
}

/// The schedule of a run. It depends on the seed and the numbers of nodes and workers alone.
///
/// Each round does every fault once, in an order of its own.
#[derive(Debug)]
pub struct Plan {
    dice: Dice,
    nodes: usize,
    workers: usize,
    left: Vec<Fault>,
    /// Of several nodes, one that forgot is out for a while. Until then nothing is done to another.
    weak: Option<(usize, Duration)>,
}

/// How long a node that has forgotten is kept out of a quorum, at most.
const QUARANTINE: Duration = Duration::from_secs(65);

impl Plan {
    /// The schedule of this seed.
    pub fn new(seed: u64, nodes: usize, workers: usize) -> Self {
        Self { dice: Dice::new(seed), nodes, workers, left: Vec::new(), weak: None }
    }

    fn refill(&mut self) {
        self.left = Fault::ALL.to_vec();
        self.dice.shuffle(&mut self.left);
    }

    fn node(&mut self, fault: Fault, takes: Duration) -> usize {
        let mut node = self.dice.below(self.nodes);
        if let Some((weak, left)) = self.weak {
            node = weak;
            self.weak = left.checked_sub(takes).map(|left| (weak, left));
        }
        if self.nodes > 1 && fault.is_forgetful() {
            self.weak = Some((node, QUARANTINE));
        }
        node
    }
}

impl Iterator for Plan {
    type Item = Step;

    /// There is always a next one.
    fn next(&mut self) -> Option<Step> {
        if self.left.is_empty() {
            self.refill();
        }
        let fault = self.left.pop()?;
        let lasts = match fault {
            Fault::RestartEmpty | Fault::RestartFromDisk | Fault::ForeignDelete | Fault::KillClient => Duration::ZERO,
            // Longer than the client waits for an answer.
            Fault::FreezeServer | Fault::Cut | Fault::BlackHole => self.dice.millis(500, 900),
            // On top of the lease.
            Fault::FreezeClient => self.dice.millis(100, 400),
            _ => self.dice.millis(400, 900),
        };
        let peace = self.dice.millis(100, 400);
        let victim =
            if fault.is_for_clients() { self.dice.below(self.workers) } else { self.node(fault, lasts + peace) };
        Some(Step { fault, victim, lasts, peace })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn steps(seed: u64, nodes: usize, count: usize) -> Vec<Step> {
        Plan::new(seed, nodes, 3).take(count).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule() {
        assert_eq!(steps(7, 3, 100), steps(7, 3, 100));
        assert_ne!(steps(7, 3, 100), steps(8, 3, 100));
    }

    #[test]
    fn every_round_has_every_fault() {
        let round = Fault::ALL.len();
        for steps in steps(1, 1, 3 * round).chunks(round) {
            let faults: BTreeSet<_> = steps.iter().map(|step| step.fault).collect();
            assert_eq!(faults.len(), round);
        }
    }

    #[test]
    fn while_a_node_is_out_no_other_is_touched() {
        let mut weak: Option<(usize, Duration)> = None;
        let mut chosen = BTreeSet::new();
        for step in steps(3, 5, 2000).into_iter().filter(|step| !step.fault.is_for_clients()) {
            chosen.insert(step.victim);
            if let Some((node, left)) = weak {
                assert_eq!(node, step.victim, "{step:?}");
                weak = left.checked_sub(step.lasts + step.peace).map(|left| (node, left));
            }
            if step.fault.is_forgetful() {
                weak = Some((step.victim, QUARANTINE));
            }
        }
        assert!(chosen.len() > 1);
    }
}
