//! Every violation in the model also happens on a real server.

use crate::{all, results_of};
use fencelock_lab::{Fault, NotReplayed, Property, ReplayTarget, replay};
use fencelock_testkit::{RedisServer, Reply, redis_or_skip};
use std::sync::atomic::AtomicBool;

static GO_ON: AtomicBool = AtomicBool::new(false);

fn replica_of(master: &RedisServer) -> RedisServer {
    let port = master.port().to_string();
    RedisServer::options().args(["--replicaof", "127.0.0.1", &port]).start().expect("a second server")
}

#[test]
fn every_counterexample_without_a_failover_happens_on_a_real_server() {
    let Some(server) = redis_or_skip() else { return };
    let replays = all().iter().flat_map(|results| results.exhibits().into_iter().map(move |shown| (results, shown)));
    let replays: Vec<_> = replays.filter(|(_, (_, faults, _))| !faults.has(Fault::Failover)).collect();
    assert!(replays.len() > 40, "only {} can be replayed", replays.len());
    let target = &ReplayTarget::new(&server.url());
    // Each of them waits for its ticks most of the time.
    std::thread::scope(|scope| {
        for part in replays.chunks(replays.len().div_ceil(4)) {
            scope.spawn(move || {
                for (results, (property, faults, _)) in part {
                    let replayed = replay(results, *property, *faults, target, &GO_ON);
                    let id = results.scheme.id;
                    assert!(replayed.is_ok(), "{id} {property:?} {faults:?}: {}", replayed.unwrap_err());
                }
            });
        }
    });
    assert_eq!(server.command(&["DBSIZE"]), Reply::Int(0), "no key is left");
}

#[test]
fn every_failover_happens_on_a_master_and_its_replica() {
    if redis_or_skip().is_none() {
        return;
    }
    let quick = ["--repl-diskless-sync-delay", "0"];
    let master = RedisServer::options().args(quick).start().expect("a server");
    let replica = replica_of(&master);
    let site = ReplayTarget { replica: Some(replica.url()), ..ReplayTarget::new(&master.url()) };
    for id in ["replica-lag", "fencelock", "fencelock-unfenced"] {
        let results = results_of(id);
        let of_failover = results.exhibits().into_iter().filter(|(_, faults, _)| faults.has(Fault::Failover));
        for (property, fault, _) in of_failover {
            let replayed = replay(results, property, fault, &site, &GO_ON);
            assert!(replayed.is_ok(), "{id} {property:?}: {}", replayed.unwrap_err());
        }
    }
    assert_eq!(master.command(&["DBSIZE"]), Reply::Int(0), "no key is left");
    let role = replica.command(&["INFO", "replication"]);
    assert!(role.text().is_some_and(|info| info.contains("role:slave")), "{role:?}");
}

#[test]
fn a_failover_without_a_replica_is_rejected() {
    let Some(server) = redis_or_skip() else { return };
    let results = results_of("replica-lag");
    let rejected =
        replay(results, Property::Exclusion, Some(Fault::Failover), &ReplayTarget::new(&server.url()), &GO_ON);
    assert!(matches!(rejected, Err(NotReplayed::NeedsReplica)), "{rejected:?}");
}

#[test]
fn a_server_that_differs_from_the_model_is_detected() {
    let Some(server) = redis_or_skip() else { return };
    // A user without permission for DEL gets another reply than in the model.
    let results = results_of("set-nx-ex");
    server.command(&["ACL", "SETUSER", "default", "-del"]);
    let rejected =
        replay(results, Property::OwnLockOnly, Some(Fault::Overrun), &ReplayTarget::new(&server.url()), &GO_ON);
    assert!(matches!(rejected, Err(NotReplayed::Server(_))), "{rejected:?}");
}

#[test]
fn a_stopped_replay_leaves_no_key() {
    let Some(server) = redis_or_skip() else { return };
    let results = results_of("set-nx-ex");
    let stop = AtomicBool::new(true);
    let stopped =
        replay(results, Property::OwnLockOnly, Some(Fault::Overrun), &ReplayTarget::new(&server.url()), &stop);
    assert!(matches!(stopped, Err(NotReplayed::Stopped)), "{stopped:?}");
    assert_eq!(server.command(&["DBSIZE"]), Reply::Int(0));
}
