//! The requests of each worker.

use super::{CONCURRENCY, Load, WorkloadKind};

/// The initial balance.
pub(super) const BALANCE: i64 = 1000;
/// The two payments from an account, or the two transfers of a pair.
const AMOUNTS: [i64; 2] = [500, 300];

/// With readers, one of so many workers buys.
const READERS_AND_BUYER: u32 = 4;

/// A purchase, a payment, a transfer, or a query of the stock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    /// The account, from 0. Each has its own lock.
    pub(super) account: u32,
    /// The amount.
    pub(super) amount: i64,
    /// The account that receives the amount, if it is a transfer.
    pub(super) to: Option<u32>,
    /// Whether it reads and changes nothing.
    pub(super) is_reader: bool,
}

impl Request {
    pub(super) const fn of(account: u32, amount: i64) -> Self {
        Self { account, amount, to: None, is_reader: false }
    }

    /// The accounts that it changes, and by how much each decreases.
    pub(super) fn changes(&self) -> impl Iterator<Item = (u32, i64)> {
        std::iter::once((self.account, self.amount)).chain(self.to.map(|to| (to, -self.amount)))
    }

    /// The number of the pair of requests that start together.
    pub(super) const fn pair(&self) -> u32 {
        if self.to.is_some() { self.account / 2 } else { self.account }
    }
}

impl Load {
    /// The number of accounts.
    pub(super) fn accounts(&self) -> u32 {
        match self.workload {
            WorkloadKind::Stock | WorkloadKind::Readers | WorkloadKind::Pool => 1,
            WorkloadKind::Bank => self.requests.div_ceil(2),
            WorkloadKind::Transfers => self.requests.div_ceil(2) * 2,
        }
    }

    /// The initial value of each account.
    pub(super) fn start(&self) -> i64 {
        match self.workload {
            WorkloadKind::Stock | WorkloadKind::Readers => i64::from(self.stock),
            WorkloadKind::Bank | WorkloadKind::Transfers => BALANCE,
            WorkloadKind::Pool => 0,
        }
    }

    /// The requests of one worker. Two workers of different processes serve the same account at the same time.
    pub(super) fn requests_of(&self, process: u32, worker: u32) -> Vec<Request> {
        let (workers, number) = (self.processes * CONCURRENCY, worker * self.processes + process);
        let every = |first: u32, step: u32, end: u32| (first..end).step_by(step.max(1) as usize);
        let amount = AMOUNTS[number as usize % 2];
        let pairs = || every(number / 2, workers / 2, self.requests.div_ceil(2));
        match self.workload {
            WorkloadKind::Stock => every(number, workers, self.requests).map(|_| Request::of(0, 1)).collect(),
            WorkloadKind::Readers => {
                let request = Request { is_reader: !worker.is_multiple_of(READERS_AND_BUYER), ..Request::of(0, 1) };
                every(number, workers, self.requests).map(|_| request).collect()
            }
            WorkloadKind::Pool => every(number, workers, self.requests).map(|_| Request::of(0, 0)).collect(),
            WorkloadKind::Bank => pairs().map(|account| Request::of(account, amount)).collect(),
            WorkloadKind::Transfers => {
                let (from, to) = (number % 2, 1 - number % 2);
                pairs()
                    .map(|pair| Request { to: Some(2 * pair + to), ..Request::of(2 * pair + from, amount) })
                    .collect()
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
            WorkloadKind::Bank | WorkloadKind::Transfers => number == 1,
            _ => number < i64::from(self.requests),
        }
    }

    /// Whether the process of the `number`-th entry, from 1, is killed. The choice does not depend on the
    /// speed of processes, and occurs while stock is left.
    pub(super) fn is_crash_victim(&self, account: u32, number: i64) -> bool {
        let first = |most: u32| i64::from(most.min(self.requests).clamp(1, 4));
        self.crash
            && match self.workload {
                WorkloadKind::Stock | WorkloadKind::Readers => number == first(self.stock),
                WorkloadKind::Bank | WorkloadKind::Transfers => account == 0 && number == 1,
                // Each of them takes a permit with it.
                WorkloadKind::Pool => {
                    (first(self.requests)..first(self.requests) + i64::from(self.permits)).contains(&number)
                }
            }
    }

    /// The permits of a pool.
    pub(super) fn pool(&self) -> Option<u32> {
        (self.workload == WorkloadKind::Pool).then(|| self.permits.into())
    }

    /// The greatest number of processes that are killed.
    pub fn crashes(&self) -> u32 {
        match self.workload {
            _ if !self.crash => 0,
            WorkloadKind::Pool => self.permits.into(),
            _ => 1,
        }
    }

    /// Whether the holder of the `number`-th entry, from 1, is slow.
    pub(super) fn is_slow_holder(&self, account: u32, number: i64) -> bool {
        self.sleep.is_some()
            && match self.workload {
                WorkloadKind::Bank | WorkloadKind::Transfers => account.is_multiple_of(4) && number == 1,
                _ => number % 10 == 1,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn load(workload: WorkloadKind, processes: u32, requests: u32) -> Load {
        let work = Duration::ZERO;
        let (sleep, crash, pause) = (None, false, false);
        Load { workload, processes, requests, stock: 1, permits: 3, work, ttl: work, sleep, crash, pause }
    }

    #[test]
    fn every_request_belongs_to_one_process() {
        for processes in 1..6 {
            let load = load(WorkloadKind::Stock, processes, 1001);
            assert_eq!((0..processes).map(|process| load.share(process)).sum::<u64>(), 1001);
        }
    }

    #[test]
    fn the_users_that_are_killed_take_every_permit_with_them() {
        let load = Load { crash: true, ..load(WorkloadKind::Pool, 4, 400) };
        let victims = (1..=400).filter(|number| load.is_crash_victim(0, *number)).count();
        assert_eq!((victims, load.crashes(), Load { crash: false, ..load }.crashes()), (3, 3, 0));
    }

    #[test]
    fn every_process_has_readers_and_buyers() {
        let load = load(WorkloadKind::Readers, 3, 240);
        for process in 0..3 {
            let requests = (0..CONCURRENCY).flat_map(|worker| load.requests_of(process, worker));
            let (readers, buyers): (Vec<_>, Vec<_>) = requests.partition(|request| request.is_reader);
            assert_eq!((readers.len(), buyers.len()), (60, 20));
        }
    }

    #[test]
    fn the_transfers_of_a_pair_go_opposite_ways_in_different_workers() {
        for processes in 1..6 {
            let load = load(WorkloadKind::Transfers, processes, 200);
            let workers = (0..processes).flat_map(|process| (0..CONCURRENCY).map(move |worker| (process, worker)));
            let mut pairs = vec![Vec::new(); 100];
            for (process, worker) in workers {
                for request in load.requests_of(process, worker) {
                    pairs[request.pair() as usize].push((request, (process, worker)));
                }
            }
            for mut pair in pairs {
                pair.sort_unstable_by_key(|(request, _)| request.account);
                let [(first, by), (second, other)] = pair[..] else { panic!("{pair:?}") };
                assert_eq!((first.to, second.to), (Some(second.account), Some(first.account)));
                assert_eq!((first.amount, second.amount), (500, 300));
                assert_ne!(by, other);
            }
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
