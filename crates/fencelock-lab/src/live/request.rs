//! The requests of each worker.

use super::{CONCURRENCY, Load, WorkloadKind};

/// The initial balance.
pub(super) const BALANCE: i64 = 1000;
/// The two payments from an account.
const AMOUNTS: [i64; 2] = [500, 300];

/// A purchase or a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    /// The account, from 0. Each has its own lock.
    pub(super) account: u32,
    /// The amount.
    pub(super) amount: i64,
}

impl Load {
    /// The number of accounts.
    pub(super) fn accounts(&self) -> u32 {
        match self.workload {
            WorkloadKind::Stock => 1,
            WorkloadKind::Bank => self.requests.div_ceil(2),
        }
    }

    /// The initial value of each account.
    pub(super) fn start(&self) -> i64 {
        match self.workload {
            WorkloadKind::Stock => i64::from(self.stock),
            WorkloadKind::Bank => BALANCE,
        }
    }

    /// The requests of one worker. Two workers of different processes serve the same account at the same time.
    pub(super) fn requests_of(&self, process: u32, worker: u32) -> Vec<Request> {
        let (workers, number) = (self.processes * CONCURRENCY, worker * self.processes + process);
        let every = |first: u32, step: u32, end: u32| (first..end).step_by(step.max(1) as usize);
        match self.workload {
            WorkloadKind::Stock => {
                every(number, workers, self.requests).map(|_| Request { account: 0, amount: 1 }).collect()
            }
            WorkloadKind::Bank => {
                let amount = AMOUNTS[number as usize % 2];
                every(number / 2, workers / 2, self.accounts()).map(|account| Request { account, amount }).collect()
            }
        }
    }

    /// The number of requests of a process.
    pub(super) fn share(&self, process: u32) -> u64 {
        (0..CONCURRENCY).map(|worker| self.requests_of(process, worker).len() as u64).sum()
    }

    /// Whether another holder follows the `number`-th entry.
    pub(super) fn is_followed(&self, number: i64) -> bool {
        match self.workload {
            WorkloadKind::Stock => number < i64::from(self.requests),
            WorkloadKind::Bank => number == 1,
        }
    }

    /// Whether the process of the `number`-th entry, from 1, is killed. The choice does not depend on the
    /// speed of processes, and occurs while stock is left.
    pub(super) fn is_crash_victim(&self, account: u32, number: i64) -> bool {
        self.crash
            && match self.workload {
                WorkloadKind::Stock => number == i64::from(self.stock.min(self.requests).clamp(1, 4)),
                WorkloadKind::Bank => account == 0 && number == 1,
            }
    }

    /// Whether the holder of the `number`-th entry, from 1, is slow.
    pub(super) fn is_slow_holder(&self, account: u32, number: i64) -> bool {
        self.sleep.is_some()
            && match self.workload {
                WorkloadKind::Stock => number % 10 == 1,
                WorkloadKind::Bank => account.is_multiple_of(4) && number == 1,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn load(workload: WorkloadKind, processes: u32, requests: u32) -> Load {
        let work = Duration::ZERO;
        Load { workload, processes, requests, stock: 1, work, ttl: work, sleep: None, crash: false, pause: false }
    }

    #[test]
    fn every_request_belongs_to_one_process() {
        for processes in 1..6 {
            let load = load(WorkloadKind::Stock, processes, 1001);
            assert_eq!((0..processes).map(|process| load.share(process)).sum::<u64>(), 1001);
        }
    }

    #[test]
    fn both_payments_of_an_account_run_in_different_workers() {
        for processes in 1..6 {
            let load = load(WorkloadKind::Bank, processes, 200);
            let workers = (0..processes).flat_map(|process| (0..CONCURRENCY).map(move |worker| (process, worker)));
            let mut paid = vec![Vec::new(); 100];
            for (process, worker) in workers {
                for request in load.requests_of(process, worker) {
                    paid[request.account as usize].push((request.amount, process, worker));
                }
            }
            for mut pair in paid {
                pair.sort_unstable();
                assert_eq!(pair.iter().map(|(amount, ..)| *amount).collect::<Vec<_>>(), [300, 500]);
            }
        }
    }
}
