//! The time that the checker takes for a long run.
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock::Clock;
use fencelock::backends::BootClock;
use fencelock_chaos::checker::check;
use fencelock_chaos::history::{History, HistoryLine, Op};
use std::time::Duration;

/// Eight keys with consecutive holds: an acquire, two writes, a renewal and a release for each.
fn a_million_operations() -> History {
    let mut history = History::default();
    let mut at = 0;
    while history.lines.len() < 1_000_000 {
        let (client, key) = (format!("w{}.{}", at % 5, at % 7), format!("key-{}", at % 8));
        let (holder, start) = (format!("{at:032x}"), at * 100);
        let line = |op, from, to| HistoryLine::new(&client, &key, op, start + from, start + to);
        let mut acquire = line(Op::Acquire, 0, 10).hold(&holder, Some(at + 1));
        acquire.valid_until_us = Some(start + 600);
        history.lines.push(acquire);
        for (seq, from) in [(0, 20), (1, 40)] {
            let mut write = line(Op::Write, from, from + 10).hold(&holder, Some(at + 1));
            write.seq = Some(at * 2 + seq);
            history.lines.push(write);
        }
        history.lines.push(line(Op::Renew, 60, 70).hold(&holder, None));
        history.lines.push(line(Op::Release, 80, 90).hold(&holder, None));
        at += 1;
    }
    history
}

#[test]
#[ignore = "a measurement, for an optimised build: cargo test -p fencelock-chaos --release --test checker_speed -- --ignored"]
fn a_million_operations_are_checked_within_five_seconds() {
    let history = a_million_operations();
    let began = BootClock.now();
    let results = check(&history);
    let took = BootClock.now().since(began);
    println!("{} operations in {took:?}", history.lines.len());
    assert!(results.is_good(), "{results}");
    assert!(took < Duration::from_secs(5), "{took:?}");
}
