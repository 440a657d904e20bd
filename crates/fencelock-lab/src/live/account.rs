//! Who asks for what.

use super::{HANDS, Load, Story};

/// The balance before anybody has paid.
pub(super) const BALANCE: i64 = 1000;
/// The two payments from an account.
const AMOUNTS: [i64; 2] = [500, 300];

/// Someone who wants a piece, or to pay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Request {
    /// Which number it is about, counted from 0. Each has a lock of its own.
    pub(super) account: u32,
    /// What it takes away from it.
    pub(super) amount: i64,
}

impl Load {
    /// How many numbers there are.
    pub(super) fn accounts(&self) -> u32 {
        match self.story {
            Story::Stock => 1,
            Story::Bank => self.requests.div_ceil(2),
        }
    }

    /// What each of them is at first.
    pub(super) fn start(&self) -> i64 {
        match self.story {
            Story::Stock => i64::from(self.stock),
            Story::Bank => BALANCE,
        }
    }

    /// The requests of one hand of a process. Two hands of different processes serve the same account at the same time.
    pub(super) fn requests_of(&self, process: u32, hand: u32) -> Vec<Request> {
        let (hands, number) = (self.processes * HANDS, hand * self.processes + process);
        let every = |first: u32, step: u32, end: u32| (first..end).step_by(step.max(1) as usize);
        match self.story {
            Story::Stock => every(number, hands, self.requests).map(|_| Request { account: 0, amount: 1 }).collect(),
            Story::Bank => {
                let amount = AMOUNTS[number as usize % 2];
                every(number / 2, hands / 2, self.accounts()).map(|account| Request { account, amount }).collect()
            }
        }
    }

    /// How many requests a process has.
    pub(super) fn share(&self, process: u32) -> u64 {
        (0..HANDS).map(|hand| self.requests_of(process, hand).len() as u64).sum()
    }

    /// Whether somebody comes after the holder that enters as the `number`-th, so that it may be waited for.
    pub(super) fn is_followed(&self, number: i64) -> bool {
        match self.story {
            Story::Stock => number < i64::from(self.requests),
            Story::Bank => number == 1,
        }
    }

    /// Whether the process of the holder that enters as the `number`-th, counted from 1, is killed. It is the same one whichever
    /// process is the fastest, and comes while there is something to sell.
    pub(super) fn is_doomed(&self, account: u32, number: i64) -> bool {
        self.crash
            && match self.story {
                Story::Stock => number == i64::from(self.stock.min(self.requests).clamp(1, 4)),
                Story::Bank => account == 0 && number == 1,
            }
    }

    /// Whether the holder that enters as the `number`-th, counted from 1, sleeps.
    pub(super) fn is_sleeper(&self, account: u32, number: i64) -> bool {
        self.sleep.is_some()
            && match self.story {
                Story::Stock => number % 10 == 1,
                Story::Bank => account.is_multiple_of(4) && number == 1,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn load(story: Story, processes: u32, requests: u32) -> Load {
        let work = Duration::ZERO;
        Load { story, processes, requests, stock: 1, work, ttl: work, sleep: None, crash: false, pause: false }
    }

    #[test]
    fn every_request_is_somebodys() {
        for processes in 1..6 {
            let load = load(Story::Stock, processes, 1001);
            assert_eq!((0..processes).map(|process| load.share(process)).sum::<u64>(), 1001);
        }
    }

    #[test]
    fn from_every_account_500_and_300_are_paid_by_different_hands() {
        for processes in 1..6 {
            let load = load(Story::Bank, processes, 200);
            let hands = (0..processes).flat_map(|process| (0..HANDS).map(move |hand| (process, hand)));
            let mut paid = vec![Vec::new(); 100];
            for (process, hand) in hands {
                for request in load.requests_of(process, hand) {
                    paid[request.account as usize].push((request.amount, process, hand));
                }
            }
            for mut pair in paid {
                pair.sort_unstable();
                assert_eq!(pair.iter().map(|(amount, ..)| *amount).collect::<Vec<_>>(), [300, 500]);
            }
        }
    }
}
