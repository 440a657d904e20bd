//! Tests the generated page, and the runners that need no additional packages.
#![allow(missing_docs)]

use fencelock_bench::peers::{Cell, Figures, KNOWN, Measured, PAGE, Peer, Run, Sale, docs, files, sell, stored};
use fencelock_load::{Audit, LoadMode, Workload};
use fencelock_testkit::redis_or_skip;
use std::fs;
use std::io::Write as _;
use std::time::Duration;

/// Less than can be sold in the time, even on a busy machine: the sale ends when the stock is empty.
const STOCK: u64 = 60;
const TIMEOUT: Duration = Duration::from_secs(60);

fn last_run() -> Run {
    let run = fs::read_to_string(stored()).expect("a run");
    serde_json::from_str(&run).expect("a readable run")
}

fn page() -> String {
    fs::read_to_string(docs().join(PAGE)).expect("a page")
}

#[test]
fn pages_and_charts_match_the_last_run() {
    let run = last_run();
    assert!(run.measured.iter().any(|measured| measured.figures.is_ok()), "the run has no measurement");
    for (name, text) in files(&run, &page()).expect("a page and charts") {
        let file = docs().join(name);
        let there = fs::read_to_string(&file).unwrap_or_default();
        let file = file.display();
        assert!(there == text, "{file} does not match the run; update it with ./scripts/bench-peers --render");
    }
}

#[test]
fn another_run_results_in_another_page() {
    let mut run = last_run();
    let page = page();
    let before = files(&run, &page).expect("a page and charts");
    let figures = run.measured.iter_mut().filter_map(|measured| measured.figures.as_mut().ok());
    figures.for_each(|figures| figures.per_s *= 7.0);
    run.present[0].sale = Some(Ok(Sale { sold: 10, oversold: 3 }));
    let after = files(&run, &page).expect("a page and charts");
    assert!(after[0].1.contains("it does not exclude"), "{}", after[0].1);
    assert_ne!(before[0].1, after[0].1);
    assert_ne!(before[1].1, after[1].1);
}

/// A run with one cell of each mode: fencelock, and another library that is so many times slower.
fn run_of_modes(times: f64) -> Run {
    let mut run = last_run();
    run.measured.clear();
    let readers = LoadMode::Shared { writers_ppm: 10_000 };
    let permits = LoadMode::Permits { limit: 16, weight: 1 };
    for (mode, other) in [(readers, "redisson-read-write"), (permits, "redis-semaphore-permits")] {
        for (name, per_s) in [("fencelock", 1000.0 * times), (other, 1000.0)] {
            let cell = Cell { workload: Workload::HotKey, processes: 4, tasks: 64, mode };
            let figures = Figures {
                per_s,
                p50_us: Some(10),
                p99_us: Some(20),
                longest_us: Some(1000),
                writer_p50_us: (mode == readers).then_some(100),
                writer_longest_us: (mode == readers).then_some(399),
                server_us: Some(3.25),
                audit: Some(Audit { checked: 500, conflicts: 0, most_permits: None }),
                jain: Some(1.0),
                starved: 0,
                errors: 0,
                first_error: None,
            };
            run.measured.push(Measured { name: name.to_owned(), cell, figures: Ok(figures) });
        }
    }
    run.local_shared_per_s = Some(50_000.0 * times);
    run
}

#[test]
fn goals_are_met_or_missed_by_the_figures() {
    let of = |times| {
        let files = files(&run_of_modes(times), &page()).expect("a page and charts");
        let names: Vec<_> = files.iter().map(|(name, _)| *name).collect();
        let charts = ["readers", "writers", "permits"].map(|name| format!("{name}.svg"));
        assert_eq!(names[1..], charts);
        files[0].1.clone()
    };
    let met = of(20.0);
    for line in [
        "| 256 readers, 1 % writers: at least 20 times Redisson, read-write | 20.00 | met |",
        "| 256 readers, 1 % writers: no writer waits for longer than 4 times the median writer | 3.99 | met |",
        "| 16 permits, 256 tasks: at least 10 times redis-semaphore, N | 20.00 | met |",
        "| 256 readers of one process: at least 1,000,000 grants/s | 1000000 | met |",
        "| fencelock | 20000 | 1.00 | 10 us | 20 us | 100 us | 399 us | 4.0 | 1.000 | 0 | 3.2 | none in 500 changes |",
    ] {
        assert!(met.contains(line), "{line}\nis not in\n{met}");
    }
    let missed = of(9.9);
    assert_eq!(missed.matches("**MISSED**").count(), 3, "{missed}");
}

#[test]
fn holders_in_conflict_are_shown() {
    let mut run = run_of_modes(1.0);
    if let Ok(figures) = &mut run.measured[3].figures {
        figures.audit = Some(Audit { checked: 500, conflicts: 7, most_permits: None });
    }
    let files = files(&run, &page()).expect("a page and charts");
    assert!(files[0].1.contains("**7 in 500 changes: it does not exclude**"), "{}", files[0].1);
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
    let sale = sell(&server, peer, TIMEOUT, STOCK).expect("a sale");
    assert_eq!(sale, Sale { sold: STOCK, oversold: 0 });
}

/// Reports a skipped peer, unless it is required.
fn skip(peer: &Peer, missing: &str) {
    let required = ["CI", "FENCELOCK_REQUIRE_PEERS"].iter().any(|name| std::env::var_os(name).is_some());
    assert!(!(peer.plain && required), "{}: {missing}", peer.title);
    // The test runner captures `eprintln`.
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: {missing}", peer.title);
}
