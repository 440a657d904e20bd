//! Runs the conformance suite for every backend. To add a backend, add a file to `fixtures/` and a line here.

#[path = "quorum_kit/dead_node.rs"]
mod dead_node;
mod fixtures;

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_conformance::run(vec![
        fixtures::memory::factory(),
        fixtures::memory_leases::factory(),
        fixtures::memory_clocked::factory(),
        fixtures::file::factory(),
        fixtures::redis::factory("redis", ""),
        fixtures::redis::factory("redis_resp2", "?protocol=resp2"),
        fixtures::redis::with_a_replica("redis_acks", "?acks=1"),
        fixtures::quorum::of_memories(),
        fixtures::quorum::with_a_dead_node(),
        fixtures::quorum::of_redis(),
    ])
}
