//! Many processes, some of them killed, count in one file that nothing but the lock protects.

use crate::backend::TestBackend;
use crate::running::wait_until;
use crate::test::Test;
use std::fs;
use std::thread;

const PROCESSES: usize = 6;
const TURNS: usize = 12;

/// Reads, pauses so that other processes can read the same value, and writes.
const COUNT: &str = "n=$(cat counter); sleep 0.002; echo $((n + 1)) > counter";

/// As many turns as there are, each under the lock; halfway each process also has a turn whose wrapper is killed while
/// its command is about to count. If that command lived on, it would count without the lock, when the next turn has it.
fn turns(backend: &TestBackend, process: usize) {
    for turn in 0..TURNS {
        Test::script(backend, "-q --ttl 10s counter", COUNT).run();
        if turn == TURNS / 2 {
            let [started, go] = ["started", "go"].map(|name| format!("{name}-{process}"));
            let victim = format!("touch {started}; until [ -e {go} ]; do sleep 0.01; done; {COUNT}");
            let mut wrapper = Test::script(backend, "--ttl 2s counter", &victim).start();
            wait_until("the command to begin", || backend.file(&started).exists().then_some(()));
            wrapper.kill("KILL");
            assert_ne!(wrapper.status(), 0);
            Test::script(backend, "-q --ttl 10s counter", &format!("touch {go}")).run();
        }
    }
}

fn counts_exactly(backend: &TestBackend) {
    fs::write(backend.file("counter"), "0\n").unwrap();
    thread::scope(|scope| {
        for process in 0..PROCESSES {
            scope.spawn(move || turns(backend, process));
        }
    });
    // The killed commands would have counted by now, because the last turns were later.
    let counted: usize = fs::read_to_string(backend.file("counter")).unwrap().trim().parse().unwrap();
    assert_eq!(counted, PROCESSES * TURNS);
}

#[test]
fn processes_of_one_machine_count_exactly_though_some_are_killed() {
    counts_exactly(&TestBackend::files());
}

#[test]
fn processes_that_share_a_redis_count_exactly_though_some_are_killed() {
    let Some(backend) = TestBackend::redis() else { return };
    counts_exactly(&backend);
}
