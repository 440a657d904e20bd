//! The workloads on a real server, with threads in place of processes.
#![allow(missing_docs)]

use fencelock_lab::{Entrance, Host, Load, NotRun, Round, Score, WorkloadKind, work};
use fencelock_testkit::{RedisServer, Reply, redis_or_skip};
use std::io;
use std::sync::Barrier;
use std::time::Duration;

const LOAD: Load = Load {
    workload: WorkloadKind::Stock,
    processes: 2,
    requests: 64,
    stock: 5,
    permits: 3,
    work: Duration::from_millis(2),
    ttl: Duration::from_secs(20),
    sleep: None,
    crash: false,
    pause: false,
};

/// Starts all processes together.
struct Start(Barrier);

impl Host for Start {
    fn start(&self) -> io::Result<()> {
        self.0.wait();
        Ok(())
    }

    fn before_write(&self, _: Entrance) -> io::Result<()> {
        Err(io::Error::other("no process is paused"))
    }
}

/// Runs all jobs, and returns the round. Its keys still exist.
fn run(server: &RedisServer, scheme: &str, load: Load) -> (Round, Score) {
    let mut round = Round::open(&server.url(), scheme, load).expect("a round");
    let jobs = round.jobs();
    let start = Start(Barrier::new(jobs.len()));
    let tallies: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = jobs.iter().map(|job| scope.spawn(|| work(job, &start))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread without panic").expect("a finished job"))
            .collect()
    });
    let score = round.score(&tallies, Duration::from_secs(1)).expect("a score");
    (round, score)
}

#[test]
fn without_a_lock_the_stock_is_oversold() {
    let Some(server) = redis_or_skip() else { return };
    // All 16 requests read before the first one writes.
    let load = Load { stock: 1, work: Duration::from_millis(200), ..LOAD };
    let (_round, score) = run(&server, "none", load);
    assert!(score.oversold() > 0, "{score:?}");
    assert_eq!(score.tally.answered, 64);
}

#[test]
fn fencelock_and_correct_schemes_sell_exactly_the_stock() {
    let Some(server) = redis_or_skip() else { return };
    for scheme in ["s2-6-token-lua", "s3-1-setnx", "s4-redlock", "fencelock-unfenced", "fencelock"] {
        let (_round, score) = run(&server, scheme, LOAD);
        assert_eq!((score.taken, score.left, score.tally.answered), (5, 0, 64), "{score:?}");
        let (_round, score) = run(&server, scheme, Load { workload: WorkloadKind::Bank, requests: 16, ..LOAD });
        assert_eq!((score.wrong, score.taken, score.tally.answered), (0, 8 * 800, 16), "{score:?}");
    }
}

#[test]
fn readers_without_a_lock_see_the_stock_change_and_with_a_lock_they_do_not() {
    let Some(server) = redis_or_skip() else { return };
    // All twelve readers read before the first of four buyers writes, and again after it.
    let load = Load { workload: WorkloadKind::Readers, work: Duration::from_millis(200), requests: 16, ..LOAD };
    let (_round, score) = run(&server, "none", Load { stock: 1000, ..load });
    assert!(score.tally.torn > 0, "{score:?}");
    let load = Load { work: Duration::from_millis(2), requests: 64, ..load };
    for scheme in ["s2-6-token-lua", "fencelock-unfenced", "fencelock"] {
        let (_round, score) = run(&server, scheme, load);
        assert_eq!((score.tally.torn, score.taken, score.tally.answered), (0, 5, 64), "{score:?}");
    }
}

#[test]
fn readers_share_the_lock_of_fencelock_and_no_exclusive_lock() {
    let Some(server) = redis_or_skip() else { return };
    let load = Load { workload: WorkloadKind::Readers, work: Duration::from_millis(50), requests: 32, ..LOAD };
    let (_round, score) = run(&server, "fencelock", load);
    assert!(score.at_once > 1, "{score:?}");
    let (_round, score) = run(&server, "s2-6-token-lua", load);
    assert_eq!(score.at_once, 1, "{score:?}");
}

#[test]
fn transfers_in_their_own_orders_deadlock_and_those_of_lock_all_do_not() {
    let Some(server) = redis_or_skip() else { return };
    // Each transfer has its own account before any of them turns to the other one.
    let load = Load { workload: WorkloadKind::Transfers, work: Duration::from_millis(200), requests: 8, ..LOAD };
    let (_round, score) = run(&server, "none", load);
    assert!(score.wrong > 0, "{score:?}");
    let (_round, score) = run(&server, "fencelock-one-by-one", load);
    assert!(score.tally.deadlocks > 0 && score.wrong == 0, "{score:?}");
    let (_round, score) = run(&server, "fencelock", load);
    assert_eq!((score.tally.deadlocks, score.wrong, score.tally.answered), (0, 0, 8), "{score:?}");
    assert_eq!((score.left, score.taken), (8000, 0), "transfers create no money: {score:?}");
}

#[test]
fn a_semaphore_admits_as_many_users_as_it_has_permits_and_counters_of_nodes_more() {
    let Some(server) = redis_or_skip() else { return };
    let load = Load { workload: WorkloadKind::Pool, work: Duration::from_millis(20), ..LOAD };
    for scheme in ["s5-counter", "s5-leased", "s5-all-nodes", "fencelock"] {
        let (_round, score) = run(&server, scheme, load);
        assert_eq!((score.at_once, score.too_many(), score.tally.answered), (3, 0, 64), "{score:?}");
    }
    for scheme in ["none", "s5-node-counters"] {
        let (_round, score) = run(&server, scheme, load);
        assert!(score.too_many() > 0 && score.at_once == 3 + score.too_many(), "{score:?}");
    }
}

#[test]
fn a_round_removes_its_keys() {
    let Some(server) = redis_or_skip() else { return };
    for scheme in ["s2-1-setnx", "fencelock"] {
        drop(run(&server, scheme, LOAD));
        assert_eq!(server.command(&["DBSIZE"]), Reply::Int(0), "{scheme}");
    }
    for (scheme, workload) in [
        ("fencelock", WorkloadKind::Readers),
        ("fencelock-one-by-one", WorkloadKind::Transfers),
        ("s5-leased", WorkloadKind::Pool),
    ] {
        drop(run(&server, scheme, Load { workload, requests: 16, ..LOAD }));
        assert_eq!(server.command(&["DBSIZE"]), Reply::Int(0), "{scheme}");
    }
}

#[test]
fn keys_that_are_not_removed_expire() {
    let Some(server) = redis_or_skip() else { return };
    for (scheme, workload) in [
        ("none", WorkloadKind::Stock),
        ("s2-1-setnx", WorkloadKind::Stock),
        ("s2-4-getset", WorkloadKind::Bank),
        ("s0-setnx-expire", WorkloadKind::Bank),
        ("fencelock", WorkloadKind::Stock),
        ("fencelock", WorkloadKind::Readers),
        ("fencelock", WorkloadKind::Transfers),
        ("s5-counter", WorkloadKind::Pool),
        ("s5-leased", WorkloadKind::Pool),
    ] {
        let (round, _) = run(&server, scheme, Load { workload, requests: 16, ..LOAD });
        // As if the process had been killed.
        std::mem::forget(round);
    }
    let Reply::Array(keys) = server.command(&["KEYS", "*"]) else { panic!("no keys") };
    assert!(keys.len() > 20, "only {} keys", keys.len());
    for key in keys.iter().filter_map(Reply::text) {
        assert!(matches!(server.command(&["PTTL", key]), Reply::Int(1..)), "{key} has no TTL");
    }
}

#[test]
fn a_lock_of_a_dead_client_stalls_a_scheme_without_expiry() {
    let Some(server) = redis_or_skip() else { return };
    // Waiting requests give up after several TTLs without a new holder.
    let load = Load { requests: 16, processes: 1, ttl: Duration::from_millis(200), ..LOAD };
    let mut round = Round::open(&server.url(), "s2-1-setnx", load).expect("a round");
    // Another client has acquired the lock and has died.
    let stock = server.command(&["KEYS", "*stock:0"]);
    let Reply::Array(keys) = &stock else { panic!("{stock:?}") };
    let lock = keys[0].text().expect("a key").replace("stock:0", "lock1:0");
    server.command(&["SET", &lock, "1", "EX", "80000"]);
    let tally = work(&round.jobs()[0], &Start(Barrier::new(1))).expect("a finished job");
    assert_eq!((tally.answered, tally.stuck), (0, 16));
    assert_eq!(round.score(&[tally], Duration::from_secs(1)).expect("a score").taken, 0);
}

#[test]
fn schemes_that_cannot_run_the_workload_are_rejected() {
    let Some(server) = redis_or_skip() else { return };
    for scheme in ["nonsense", "s2-process", "s5-counter", "fencelock-one-by-one"] {
        let rejected = Round::open(&server.url(), scheme, LOAD);
        assert!(matches!(rejected, Err(NotRun::Scheme(_))), "{scheme}: {rejected:?}");
    }
}
