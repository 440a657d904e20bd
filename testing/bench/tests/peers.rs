//! Tests the runners that need no additional packages.
#![allow(missing_docs)]

use fencelock_bench::peers::{KNOWN, Peer, sell};
use fencelock_testkit::redis_or_skip;
use std::io::Write as _;
use std::time::Duration;

/// Less than can be sold in the time, even on a busy machine: the sale ends when the stock is empty.
const STOCK: u64 = 60;
const TIMEOUT: Duration = Duration::from_secs(60);

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
    assert_eq!((sale.sold, sale.oversold), (STOCK, 0));
}

/// Reports a skipped peer, unless it is required.
fn skip(peer: &Peer, missing: &str) {
    let required = ["CI", "FENCELOCK_REQUIRE_PEERS"].iter().any(|name| std::env::var_os(name).is_some());
    assert!(!(peer.plain && required), "{}: {missing}", peer.title);
    // The test runner captures `eprintln`.
    let _ = writeln!(std::io::stderr(), "SKIPPED {}: {missing}", peer.title);
}
