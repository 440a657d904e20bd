//! Many processes, some of them killed, count in one file that nothing but the lock protects.

use crate::backend::TestBackend;
use crate::running::wait_until;
use crate::test::Test;
use fencelock_testkit::ObjectFaults;
use std::fs;
use std::thread;

/// Reads, pauses so that other processes can read the same value, and writes.
const COUNT: &str = "n=$(cat counter); sleep 0.002; echo $((n + 1)) > counter";

/// As many turns as there are, each under the lock; halfway each process also has a turn whose wrapper is killed while
/// its command is about to count. If that command lived on, it would count without the lock, when the next turn has it.
fn turns(backend: &TestBackend, process: usize, turns: usize) {
    let short = if backend.objects.is_some() { "3s" } else { "2s" };
    for turn in 0..turns {
        Test::script(backend, "-q --ttl 10s counter", COUNT).run();
        if turn == turns / 2 {
            let [started, go] = ["started", "go"].map(|name| format!("{name}-{process}"));
            let victim = format!("touch {started}; until [ -e {go} ]; do sleep 0.01; done; {COUNT}");
            let mut wrapper = Test::script(backend, &format!("--ttl {short} counter"), &victim).start();
            wait_until("the command to begin", || backend.file(&started).exists().then_some(()));
            wrapper.kill("KILL");
            assert_ne!(wrapper.status(), 0);
            Test::script(backend, "-q --ttl 10s counter", &format!("touch {go}")).run();
        }
    }
}

fn counts_exactly(backend: &TestBackend, processes: usize, many: usize) {
    fs::write(backend.file("counter"), "0\n").unwrap();
    thread::scope(|scope| {
        for process in 0..processes {
            scope.spawn(move || turns(backend, process, many));
        }
    });
    // The killed commands would have counted by now, because the last turns were later.
    let counted: usize = fs::read_to_string(backend.file("counter")).unwrap().trim().parse().unwrap();
    assert_eq!(counted, processes * many);
}

#[test]
fn processes_of_one_machine_count_exactly_though_some_are_killed() {
    counts_exactly(&TestBackend::files(), 6, 12);
}

#[test]
fn processes_that_share_a_redis_count_exactly_though_some_are_killed() {
    let Some(backend) = TestBackend::redis() else { return };
    counts_exactly(&backend, 6, 12);
}

#[test]
fn processes_that_share_a_bucket_count_exactly_though_some_are_killed_and_requests_are_lost_late_or_repeated() {
    let backend = TestBackend::objects("&poll=200ms");
    backend.store().set(ObjectFaults { unreliable: 3, ..ObjectFaults::default() });
    counts_exactly(&backend, 3, 6);
}
