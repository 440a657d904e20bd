//! One server answers as the specification of a key.
#![allow(missing_docs, clippy::unwrap_used, clippy::tests_outside_test_module)]

use fencelock::backends::{connect, init};
use fencelock_testkit::{Histories, RedisServer, Reply, ServerVersion, SetClock, redis_or_skip, stopped_or_skip};
use std::cell::Cell;

const DAY: u64 = 86_400_000_000;

async fn play(number: u64, server: &RedisServer, options: &str, clock: Option<SetClock<'_>>) {
    let url = format!("{}?timeout=60000{options}", server.url());
    if options.contains("quarantine") {
        init(&url, true).await.unwrap();
    }
    let clients = [connect(&url).await.unwrap(), connect(&url).await.unwrap()];
    let histories = Histories { number, queues: true, leases: true, any_mode: false };
    histories.play([&*clients[0], &*clients[1]], clock).await;
}

#[tokio::test]
async fn the_server_answers_as_the_table_and_keeps_nothing() {
    if ServerVersion::of_tests().is_some_and(|version| !version.uses_only_the_wall_clock()) {
        let Some(server) = redis_or_skip() else { return };
        return play(300, &server, "", None).await;
    }
    for (number, options, kept) in [(400, "", 0), (180, "&quarantine=on&max_ttl=86400000&protocol=resp2", 1)] {
        let Some((server, clock)) = stopped_or_skip(DAY, &[]) else { return };
        let now = Cell::new(0);
        let set = |micros| {
            now.set(micros);
            clock.stop_at(micros).unwrap();
        };
        play(number, &server, options, Some(&set)).await;
        set(now.get() + DAY + 1000);
        let Reply::Array(left) = server.command(&["KEYS", "*"]) else { panic!("no keys") };
        assert_eq!(left.len(), kept, "{left:?}");
    }
}
