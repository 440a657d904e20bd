//! Runs the conformance suite on one server and on quorums. To add a topology, add a line here.

mod cluster;
#[path = "../quorum/kit/dead_node.rs"]
mod dead_node;
mod quorum;
mod redis;

use std::process::ExitCode;

/// In milliseconds. Long enough for a machine that stops for half a minute: no request of the suite fails.
const TIMEOUT: u32 = 60_000;

fn main() -> ExitCode {
    fencelock_conformance::run(vec![
        redis::factory("redis", ""),
        redis::factory("redis_resp2", "&protocol=resp2"),
        redis::with_a_replica("redis_acks", "&acks=1"),
        redis::with_sentinels("redis_sentinel", "&quarantine=on&trust_empty=true"),
        cluster::factory("redis_cluster", ""),
        cluster::factory("redis_cluster_resp2", "&protocol=resp2"),
        quorum::of_memories(),
        quorum::with_a_dead_node(),
        quorum::of_redis(),
    ])
}
