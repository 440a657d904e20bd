//! The page beside the run that it was made of, and the runners that need nothing which the other tests do not need.
#![allow(missing_docs)]

use fencelock_bench::peers::{KNOWN, Peer, Run, Sale, docs, files, sell};
use fencelock_testkit::redis_or_skip;
use std::fs;
use std::io::Write as _;
use std::time::Duration;

/// Less than can be sold in the time, even where 20 others want the machine: the sale ends when nothing is left.
const STOCK: u64 = 60;
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn page_and_charts_are_what_the_last_run_becomes() {
    let run = fs::read_to_string(docs().join("benchmarks/peers.json")).expect("a run");
    let run: Run = serde_json::from_str(&run).expect("a run that can be read");
    assert!(run.measured.iter().any(|measured| measured.figures.is_ok()), "a run that has measured nothing");
    let page = fs::read_to_string(docs().join("performance.md")).expect("a page");
    for (name, text) in files(&run, &page).expect("a page and charts") {
        let there = fs::read_to_string(docs().join(name)).unwrap_or_default();
        assert!(there == text, "docs/en/{name} is not what the run becomes: ./scripts/bench-peers --render writes it");
    }
}

#[test]
fn another_run_becomes_another_page() {
    let run = fs::read_to_string(docs().join("benchmarks/peers.json")).expect("a run");
    let mut run: Run = serde_json::from_str(&run).expect("a run that can be read");
    let page = fs::read_to_string(docs().join("performance.md")).expect("a page");
    let before = files(&run, &page).expect("a page and charts");
    let figures = run.measured.iter_mut().filter_map(|measured| measured.figures.as_mut().ok());
    figures.for_each(|figures| figures.per_s *= 7.0);
    run.present[0].sale = Ok(Sale { sold: 10, oversold: 3 });
    let after = files(&run, &page).expect("a page and charts");
    assert!(after[0].1.contains("it does not exclude"), "{}", after[0].1);
    assert_ne!(before[0].1, after[0].1);
    assert_ne!(before[1].1, after[1].1);
}

#[test]
fn redis_py_sells_everything_once() {
    sells_everything_once("redis-py");
}

#[test]
fn php_by_hand_sells_everything_once() {
    sells_everything_once("php-way-six");
}

fn sells_everything_once(name: &str) {
    let Some(server) = redis_or_skip() else { return };
    let peer = KNOWN.iter().find(|peer| peer.name == name).expect("a peer");
    if let Err(missing) = peer.version() {
        return skip(peer, &missing);
    }
    let sale = sell(&server, peer, PATIENCE, STOCK).expect("a sale");
    assert_eq!(sale, Sale { sold: STOCK, oversold: 0 });
}

/// Aloud, and not where the tests have to have it.
fn skip(peer: &Peer, missing: &str) {
    let required = ["CI", "FENCELOCK_REQUIRE_PEERS"].iter().any(|name| std::env::var_os(name).is_some());
    assert!(!(peer.plain && required), "{}: {missing}", peer.title);
    // Not `eprintln`, which the test runner captures.
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: {missing}", peer.title);
}
