use crate::fault::Fault;
use crate::form::Form;
use crate::luck::Luck as _;
use fastrand::Rng;
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

/// The schedule of a run. It depends on the seed, the form and the number of workers alone.
///
/// Each round does every fault of the form once, in an order of its own.
#[derive(Debug)]
pub struct Plan {
    rng: Rng,
    form: Form,
    workers: usize,
    left: Vec<Fault>,
}

impl Plan {
    /// The schedule of this seed.
    pub fn new(seed: u64, form: Form, workers: usize) -> Self {
        Self { rng: Rng::with_seed(seed), form, workers, left: Vec::new() }
    }

    fn refill(&mut self) {
        self.left = self.form.faults();
        self.rng.shuffle(&mut self.left);
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
            Fault::RestartEmpty
            | Fault::RestartFromDisk
            | Fault::Failover
            | Fault::ForeignDelete
            | Fault::KillClient => Duration::ZERO,
            // Longer than the client waits for an answer.
            Fault::FreezeServer | Fault::PauseServer | Fault::Cut | Fault::BlackHole => self.rng.millis(500, 900),
            // About as long as a lease.
            Fault::ClockFast | Fault::ClockSlow => self.rng.millis(900, 1200),
            // On top of the lease.
            Fault::FreezeClient => self.rng.millis(100, 400),
            _ => self.rng.millis(400, 900),
        };
        let peace = self.rng.millis(100, 400);
        let victims = if fault.is_for_clients() { self.workers } else { self.form.nodes() };
        let victim = self.rng.usize(..victims);
        Some(Step { fault, victim, lasts, peace })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const FIVE: Form = Form::Quorum(5);

    fn steps(seed: u64, form: Form, count: usize) -> Vec<Step> {
        Plan::new(seed, form, 3).take(count).collect()
    }

    #[test]
    fn the_same_seed_gives_the_same_schedule() {
        let form = Form::Quorum(3);
        assert_eq!(steps(7, form, 100), steps(7, form, 100));
        assert_ne!(steps(7, form, 100), steps(8, form, 100));
    }

    #[test]
    fn every_round_has_every_fault() {
        for form in [Form::Single, Form::Replica, Form::Quorum(3)] {
            let round = form.faults().len();
            for steps in steps(1, form, 3 * round).chunks(round) {
                let faults: BTreeSet<_> = steps.iter().map(|step| step.fault).collect();
                assert_eq!(faults.len(), round);
            }
        }
    }

    #[test]
    fn nodes_forget_also_while_another_is_in_quarantine() {
        let forgetful: Vec<_> = steps(3, FIVE, 2000).into_iter().filter(|step| step.fault.is_forgetful()).collect();
        let nodes: BTreeSet<_> = forgetful.iter().map(|step| step.victim).collect();
        assert_eq!(nodes.len(), 5);
        assert!(forgetful.windows(2).any(|pair| pair[0].victim != pair[1].victim));
    }
}
