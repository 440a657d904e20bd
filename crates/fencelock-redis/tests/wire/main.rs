//! What clients write on a server, and what they do with the data of a later version of fencelock.
//!
//! `format.txt` has the bytes of the present version, [`WIRE`](../../src/scripts/wire.rs). With the first release they may not change
//! without a new version any more: raise `WIRE`, and keep the scripts of the released version beside their `format.txt`, so that its
//! clients and the present ones are tested on one server. Until then, no other version has to be read:
//! `FENCELOCK_UPDATE=1 cargo test -p fencelock-redis` writes the file.
//!
//! A completion has a version of its own, its first word. It is not part of a lock: a client that cannot read it runs nothing once per
//! window, and its locks, queues and elections work on. With a new `WIRE` for it, they would not.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

mod current;
mod format;
mod later;
mod log;

use fencelock_testkit::RedisServer;

/// The key that all clients of these tests lock.
const KEY: &str = "k";
const LINE: &str = "fencelock:{k}:line";
const WAITERS: &str = "fencelock:{k}:waiters";
const ALIVE: &str = "fencelock:{k}:alive";
const HOLDS: &str = "fencelock:{k}:holds";
const HELD: &str = "fencelock:{k}:held";
const ONCE: &str = "fencelock:{k}:once";
const MARKER: &str = "fencelock:node";

fn channel(id: &str) -> String {
    format!("fencelock:wake:{}", &id[16..])
}

/// Long enough that no waiter and no lease expires on a slow machine.
fn stand_still(server: &RedisServer) {
    let far = "9000000000000";
    let script = "for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do redis.call('ZADD', KEYS[2], ARGV[1], id) end \
                  redis.call('PEXPIRE', KEYS[3], 600000)";
    server.command(&["EVAL", script, "3", LINE, ALIVE, KEY, far]);
}
