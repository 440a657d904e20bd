//! Tests the generated page, and the runners that need no additional packages.
#![allow(missing_docs)]

use fencelock_bench::peers::{KNOWN, Peer, Run, Sale, docs, files, sell};
use fencelock_testkit::redis_or_skip;
use std::fs;
use std::io::Write as _;
use std::time::Duration;

/// Less than can be sold in the time, even on a busy machine: the sale ends when the stock is empty.
const STOCK: u64 = 60;
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn page_and_charts_match_the_last_run() {
    let run = fs::read_to_string(docs().join("benchmarks/peers.json")).expect("a run");
    let run: Run = serde_json::from_str(&run).expect("a readable run");
    assert!(run.measured.iter().any(|measured| measured.figures.is_ok()), "the run has no measurement");
    let page = fs::read_to_string(docs().join("performance.md")).expect("a page");
    for (name, text) in files(&run, &page).expect("a page and charts") {
        let there = fs::read_to_string(docs().join(name)).unwrap_or_default();
        assert!(there == text, "docs/en/{name} does not match the run; update it with ./scripts/bench-peers --render");
    }
}

#[test]
fn another_run_results_in_another_page() {
    let run = fs::read_to_string(docs().join("benchmarks/peers.json")).expect("a run");
    let mut run: Run = serde_json::from_str(&run).expect("a readable run");
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
fn redis_py_sells_each_item_once() {
    sells_everything_once("redis-py");
}

#[test]
fn php_without_a_library_sells_each_item_once() {
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

/// Reports a skipped peer, unless it is required.
fn skip(peer: &Peer, missing: &str) {
    let required = ["CI", "FENCELOCK_REQUIRE_PEERS"].iter().any(|name| std::env::var_os(name).is_some());
    assert!(!(peer.plain && required), "{}: {missing}", peer.title);
    // The test runner captures `eprintln`.
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: {missing}", peer.title);
}
