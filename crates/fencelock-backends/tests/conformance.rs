//! Every backend keeps the promises of the contract. To add one: a file in `places/`, a line here.

#[path = "quorum_kit/dead.rs"]
mod dead;
mod places;

use std::process::ExitCode;

fn main() -> ExitCode {
    fencelock_conformance::run(vec![
        places::memory::site(),
        places::memory_leases::site(),
        places::memory_clocked::site(),
        places::file::site(),
        places::redis::site("redis", ""),
        places::redis::site("redis_resp2", "?protocol=resp2"),
        places::redis::with_a_replica("redis_acks", "?acks=1"),
        places::quorum::of_memories(),
        places::quorum::with_a_dead_node(),
        places::quorum::of_redis(),
    ])
}
