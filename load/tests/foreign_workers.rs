//! Workers in another language, some of which break the protocol.
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock_load::workers::WorkerPool;
use fencelock_load::{LoadReport, NotMeasured, Plan, Workload, measure};
use std::io::Read;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Runs a shell script as a worker.
fn run(script: &str) -> Result<LoadReport, NotMeasured> {
    let mut plan = Plan::new("memory:", Workload::HotKey);
    (plan.processes, plan.tasks) = (1, 2);
    (plan.warm_up, plan.span) = (Duration::ZERO, Duration::from_millis(20));
    let shell = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]);
        Ok(shell)
    };
    measure(&plan, &WorkerPool::default(), &shell)
}

const LOG: &str =
    r#"{"tasks":[{"grants":3},{"grants":1,"refused":2}],"waits":[[100,3],[700,1]],"errors":0,"first_error":null}"#;

#[test]
fn a_worker_in_another_language_is_measured() {
    let script = format!(
        r#"read job; case "$job" in *'"workload":"hot-key"'*) ;; *) exit 1;; esac
           echo ready; read go; test "$go" = go || exit 1
           echo '{LOG}'; read more"#
    );
    let report = run(&script).unwrap();
    assert_eq!((report.grants, report.wait_us.unwrap().max), (4, 700));
    assert!((report.wasted_wakeups_per_grant - 0.5).abs() < 1e-9 && report.commands_per_grant.is_none());
}

#[test]
fn a_worker_that_exits_early_or_breaks_the_protocol_ends_the_run() {
    for (script, message) in [
        ("exit 3", "a worker exited early"),
        ("read job; echo ready; read go", "a worker exited early"),
        ("read job; echo hello; read go", "a worker sent an invalid message: not a log"),
    ] {
        let error = run(script).unwrap_err();
        // The process may have exited before the harness sends its job.
        let is_early = script == "exit 3" && matches!(error, NotMeasured::System { .. });
        assert!(is_early || error.to_string().starts_with(message), "{script}: {error}");
    }
}

#[test]
fn a_stopped_run_has_no_report_and_no_worker() {
    let pool = WorkerPool::default();
    let mut plan = Plan::new("memory:", Workload::HotKey);
    (plan.processes, plan.span) = (1, Duration::from_secs(3600));
    let (mut reader, writer) = std::io::pipe().unwrap();
    let shell = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", "read job; echo ready; read go; echo works >&2; read more"]).stderr(writer.try_clone()?);
        Ok(shell)
    };
    thread::scope(|scope| {
        let run = scope.spawn(|| measure(&plan, &pool, &shell));
        reader.read_exact(&mut [0]).unwrap();
        pool.stop();
        assert!(matches!(run.join().unwrap(), Err(NotMeasured::Stopped)));
    });
    assert!(matches!(measure(&plan, &pool, &shell), Err(NotMeasured::Stopped)), "a stopped pool cannot be used again");
}

#[test]
fn a_plan_that_measures_nothing_is_rejected() {
    let rejected = |change: fn(&mut Plan)| {
        let mut plan = Plan::new("memory:", Workload::HotKey);
        plan.processes = 1;
        change(&mut plan);
        let never = || -> std::io::Result<Command> { panic!("no worker may start") };
        measure(&plan, &WorkerPool::default(), &never).unwrap_err()
    };
    assert!(matches!(rejected(|plan| plan.processes = 2), NotMeasured::Plan(_)));
    assert!(matches!(rejected(|plan| plan.span = Duration::ZERO), NotMeasured::Plan(_)));
    assert!(matches!(rejected(|plan| plan.key = "x".repeat(5000)), NotMeasured::Url(_)));
    assert!(matches!(rejected(|plan| plan.url = "redis://h?nonsense=1".to_owned()), NotMeasured::Url(_)));
}
