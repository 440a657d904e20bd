use crate::backend::TestBackend;
use crate::running::{children, is_alive, is_stopped, wait_until};
use crate::test::Test;
use fencelock_testkit::Reply;
use serde_json::Value;

/// Runs a workload with `--json` and returns the row of its only scheme. On a busy machine a process may need longer than the default
/// timeout to connect.
fn results_of(backend: &TestBackend, line: &str) -> Value {
    try_results_of(backend, line).unwrap_or_else(|errors| panic!("{line}: {errors}"))
}

/// What it prints to stderr, if it fails.
fn try_results_of(backend: &TestBackend, line: &str) -> Result<Value, String> {
    let output =
        Test::new(backend, &format!("lab {line} --json --url {}?timeout=10000", backend.server().url())).output();
    assert_eq!(backend.server().command(&["DBSIZE"]), Reply::Int(0), "{line} leaves something behind");
    if output.status != 0 {
        return Err(output.stderr);
    }
    let json: Value = serde_json::from_str(&output.stdout).unwrap();
    Ok(json["schemes"][0].clone())
}

/// Runs a workload until its results are as wanted, and returns them. What a race does, it does in most runs, and what depends on
/// leases of 300 ms works in most runs: on a busy machine one of them may fail. `wanted` asserts what no run may break.
fn results_until(backend: &TestBackend, line: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    let mut runs = Vec::new();
    for _ in 0..5 {
        let results = try_results_of(backend, line);
        match results {
            Ok(results) if wanted(&results) => return results,
            unwanted => runs.push(unwanted),
        }
    }
    panic!("{line}: no run has the wanted results: {runs:#?}")
}

/// Runs a workload until its results have a count above zero.
fn results_with(backend: &TestBackend, count: &str, line: &str) -> Value {
    results_until(backend, line, |results| results[count].as_i64().unwrap() > 0)
}

/// Runs a workload until all its requests are answered. The counts are zero in every run.
fn answered_without(backend: &TestBackend, harm: &[&str], requests: u32, line: &str) -> Value {
    results_until(backend, &format!("{line} --requests {requests}"), |results| {
        assert!(harm.iter().all(|count| results[count] == 0), "{line}: {results}");
        results["answered"] == requests
    })
}

#[test]
fn without_a_lock_a_sale_oversells_and_a_bank_loses_track() {
    let Some(backend) = TestBackend::redis() else { return };
    // All 32 requests read before the first has written.
    let sale = results_with(&backend, "oversold", "stock --scheme none --requests 64 --stock 1 --work 100ms");
    assert_eq!(sale["answered"], 64);
    let bank = results_with(&backend, "wrong", "bank --scheme none --requests 32 --work 100ms");
    assert!(bank["money_wrong"].as_i64().unwrap() >= 300, "{bank}");
}

#[test]
fn a_lock_that_is_kept_in_time_sells_exactly_the_stock() {
    let Some(backend) = TestBackend::redis() else { return };
    for scheme in ["s1-set-nx-px", "s2-6-token-lua", "fencelock"] {
        let sale = results_of(&backend, &format!("stock --scheme {scheme} --requests 200 --stock 10"));
        assert_eq!((&sale["sold"], &sale["left"], &sale["answered"]), (&10.into(), &0.into(), &200.into()), "{sale}");
        let bank = results_of(&backend, &format!("bank --scheme {scheme} --requests 40"));
        assert_eq!(
            (&bank["wrong"], &bank["paid"], &bank["answered"]),
            (&0.into(), &16_000.into(), &40.into()),
            "{bank}"
        );
    }
}

#[test]
fn holders_that_oversleep_break_what_is_not_fenced_and_nothing_of_fencelock() {
    let Some(backend) = TestBackend::redis() else { return };
    results_with(&backend, "oversold", "stock --scheme s2-6-token-lua --requests 300 --stock 10 --overrun");
    let sale = answered_without(&backend, &["oversold"], 300, "stock --scheme fencelock --stock 10 --overrun");
    assert_eq!(sale["sold"], 10, "{sale}");
    results_with(&backend, "wrong", "bank --scheme s2-5-set-nx-ex --requests 32 --overrun");
    answered_without(&backend, &["wrong"], 32, "bank --scheme fencelock --overrun");
}

#[test]
fn a_killed_holder_blocks_a_lock_without_expiry_and_no_other() {
    let Some(backend) = TestBackend::redis() else { return };
    let dead = results_of(&backend, "stock --scheme s2-1-setnx --requests 64 --crash");
    assert_eq!((&dead["dead"], dead["stuck"].as_i64().unwrap() > 0), (&true.into(), true), "{dead}");
    let line = |scheme| format!("stock --scheme {scheme} --requests 64 --crash");
    // Without a fencing token, a holder that a busy machine delays for longer than its lease oversells.
    let sale = results_until(&backend, &line("s2-6-token-lua"), |sale| sale["stuck"] == 0 && sale["sold"] == 20);
    assert_eq!(sale["dead"], false, "{sale}");
    let sale = results_until(&backend, &line("fencelock"), |sale| sale["stuck"] == 0);
    assert_eq!((&sale["dead"], &sale["sold"]), (&false.into(), &20.into()), "{sale}");
}

#[test]
fn the_table_has_a_row_for_each_scheme_and_the_own_client_is_the_last() {
    let Some(backend) = TestBackend::redis() else { return };
    let line = format!("lab stock --requests 64 --stock 2 --svg out.svg --lang zh --url {}", backend.url());
    let text = Test::new(&backend, &line).output().stdout;
    assert!(text.starts_with("秒杀：库存 2，4 个进程共 64 个请求\n\n方案 "), "{text}");
    let row = |id: &str| text.lines().position(|line| line.starts_with(&format!("{id} "))).unwrap();
    assert!(row("none") < row("s3-renewal") && row("s4-redlock") < row("fencelock"), "{text}");
    assert_eq!(text.lines().skip(3).take_while(|line| !line.is_empty()).count(), 18, "{text}");
    let svg = std::fs::read_to_string(backend.file("out.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("s2-6-token-lua") && svg.contains("超卖"), "{svg}");
}

#[test]
fn a_reader_sees_one_stock_with_a_lock_and_another_without() {
    let Some(backend) = TestBackend::redis() else { return };
    results_with(&backend, "torn", "stock --readers --scheme none --requests 64 --stock 1000 --work 100ms");
    for scheme in ["s2-6-token-lua", "fencelock"] {
        let sale = results_of(&backend, &format!("stock --readers --scheme {scheme} --requests 200 --stock 10"));
        assert_eq!((&sale["torn"], &sale["sold"], &sale["answered"]), (&0.into(), &10.into(), &200.into()), "{sale}");
    }
    let line = "stock --readers --scheme fencelock --stock 10 --pause";
    answered_without(&backend, &["torn", "oversold"], 200, line);
}

#[test]
fn opposite_transfers_wait_for_each_other_unless_all_lock_in_one_order() {
    let Some(backend) = TestBackend::redis() else { return };
    let load = "bank --transfers --requests 32 --work 50ms";
    let bank = results_with(&backend, "deadlocks", &format!("{load} --scheme fencelock-one-by-one"));
    assert_eq!(bank["wrong"], 0, "{bank}");
    for faults in ["", " --pause", " --overrun", " --crash"] {
        results_until(&backend, &format!("{load} --scheme fencelock{faults}"), |bank| {
            assert_eq!((&bank["deadlocks"], &bank["wrong"]), (&0.into(), &0.into()), "{bank}");
            bank["stuck"] == 0
        });
    }
}

#[test]
fn users_that_die_take_the_permits_of_a_counter_with_them_and_no_leased_ones() {
    let Some(backend) = TestBackend::redis() else { return };
    // The fourth and the fifth user are killed.
    let pool = results_of(&backend, "pool --permits 2 --scheme s5-counter --requests 64 --crash");
    assert!(pool["dead"] == true && pool["answered"].as_i64().unwrap() <= 3, "{pool}");
    for scheme in ["s5-leased", "fencelock"] {
        let line = format!("pool --permits 2 --scheme {scheme} --requests 64 --crash");
        // At least two processes of four remain, each with sixteen requests.
        results_until(&backend, &line, |pool| pool["dead"] == false && pool["answered"].as_i64().unwrap() >= 32);
    }
}

#[test]
fn users_that_outlast_their_permits_are_too_many_unless_they_renew() {
    let Some(backend) = TestBackend::redis() else { return };
    results_with(&backend, "too_many", "pool --permits 2 --scheme s5-leased --requests 64 --overrun");
    // A renewal that is late by a lease ends a permit, and nothing refuses its user.
    let line = "pool --permits 2 --scheme fencelock --requests 64 --overrun";
    results_until(&backend, line, |pool| pool["at_once"] == 2 && pool["answered"] == 64);
}

#[test]
fn a_pool_that_would_kill_all_its_processes_and_a_scheme_of_another_workload_are_64() {
    let Some(backend) = TestBackend::redis() else { return };
    for (line, part) in [
        ("pool --crash --processes 3", "use more than 3 --processes"),
        ("pool --scheme s2-6-token-lua", "s2-6-token-lua does not run this workload"),
        ("stock --scheme s5-counter", "s5-counter does not run this workload"),
    ] {
        let output = Test::new(&backend, &format!("lab {line} --url {}", backend.url())).output();
        assert_eq!(output.status, 64, "{line}");
        assert!(output.stderr.contains(part), "{}", output.stderr);
    }
}

#[test]
fn every_workload_fits_a_usual_terminal() {
    let Some(backend) = TestBackend::redis() else { return };
    for line in ["stock --readers", "bank", "bank --transfers", "pool"] {
        let text = Test::new(&backend, &format!("lab {line} --requests 16 --url {}", backend.url())).output().stdout;
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}

#[test]
fn a_workload_without_a_server_says_how_to_get_one() {
    let Some(backend) = TestBackend::redis() else { return };
    // The backend is in the environment, which says nothing of a load.
    let output = Test::new(&backend, "lab stock").output();
    assert_eq!((output.status, output.stdout.as_str()), (64, ""));
    assert!(output.stderr.contains("redis-server --port") && output.stderr.contains("--url"), "{}", output.stderr);
    for (line, status) in [
        ("lab stock --scheme s2-process", 64),
        ("lab bank --scheme nonsense", 64),
        ("lab stock --url redis://127.0.0.1:1", 69),
    ] {
        assert_eq!(Test::new(&backend, line).output().status, status, "{line}");
    }
}

#[test]
fn a_signal_ends_a_workload_with_its_processes_and_its_keys() {
    let Some(backend) = TestBackend::redis() else { return };
    let line = format!("lab stock --scheme s2-1-setnx --work 1m --processes 2 --url {}", backend.url());
    let running = Test::new(&backend, &line).start();
    wait_until("a holder", || {
        (backend.server().command(&["KEYS", "*lock1:0"]) != Reply::Array(Vec::new())).then_some(())
    });
    let family = children(running.pid());
    assert_eq!(family.len(), 2, "{family:?}");
    running.kill("TERM");
    assert_eq!(running.end().status, 143);
    assert_eq!(backend.server().command(&["DBSIZE"]), Reply::Int(0));
    assert!(family.iter().all(|pid| !is_alive(pid)), "{family:?}");
}

#[test]
fn the_processes_of_a_story_end_with_it_even_if_it_is_killed() {
    let Some(backend) = TestBackend::redis() else { return };
    let line = format!("lab stock --scheme none --work 1m --processes 2 --url {}", backend.url());
    let running = Test::new(&backend, &line).start();
    wait_until("a client in the critical section", || {
        let Reply::Array(keys) = backend.server().command(&["KEYS", "*entered:0"]) else { return None };
        let entered = backend.server().command(&["GET", keys.first()?.text()?]);
        (entered.text() != Some("0")).then_some(())
    });
    let left = left_behind(&backend);
    assert!(!left.is_empty() && left.iter().all(|(_, ends)| *ends), "{left:?}");
    let family = children(running.pid());
    assert_eq!(family.len(), 2, "{family:?}");
    running.kill("KILL");
    wait_until("the end of both", || family.iter().all(|pid| !is_alive(pid)).then_some(()));
}

#[test]
fn a_paused_process_breaks_schemes_without_a_fence_and_the_fence_refuses_its_late_write() {
    let Some(backend) = TestBackend::redis() else { return };
    for scheme in ["s2-6-token-lua", "s3-renewal", "fencelock-unfenced"] {
        let line = format!("stock --scheme {scheme} --requests 200 --stock 10 --pause");
        let sale = results_with(&backend, "oversold", &line);
        assert_eq!(sale["refused"], 0, "{sale}");
    }
    let refused = |results: &Value| results["refused"].as_i64().unwrap() > 0;
    let sale = results_until(&backend, "stock --scheme fencelock --requests 200 --stock 10 --pause", |sale| {
        assert_eq!(sale["oversold"], 0, "{sale}");
        refused(sale) && sale["answered"] == 200
    });
    assert_eq!((&sale["sold"], &sale["left"]), (&10.into(), &0.into()), "{sale}");
    results_until(&backend, "bank --scheme fencelock --requests 32 --pause", |bank| {
        assert_eq!(bank["wrong"], 0, "{bank}");
        refused(bank) && bank["answered"] == 32
    });
}

#[test]
fn where_a_lock_never_expires_a_paused_process_does_no_harm() {
    let Some(backend) = TestBackend::redis() else { return };
    let sale = results_of(&backend, "stock --scheme s2-1-setnx --requests 64 --stock 10 --pause");
    assert_eq!((&sale["sold"], &sale["answered"]), (&10.into(), &64.into()), "{sale}");
}

#[test]
fn a_process_that_is_paused_is_ended_with_its_workload() {
    let Some(backend) = TestBackend::redis() else { return };
    let line = format!("lab stock --scheme s3-1-setnx --requests 1000 --pause --url {}", backend.url());
    let mut was_still = false;
    for _ in 0..20 {
        let running = Test::new(&backend, &line).start();
        let family = wait_until("all processes", || Some(children(running.pid())).filter(|family| family.len() == 4));
        let still = || family.iter().any(|pid| is_stopped(pid));
        while family.iter().any(|pid| is_alive(pid)) && !still() {
            std::thread::yield_now();
        }
        // The parent process is stopped too, so that it continues no worker.
        running.kill("STOP");
        let parent = running.pid().to_string();
        wait_until("its own stop", || (is_stopped(&parent) || !is_alive(&parent)).then_some(()));
        was_still = still();
        running.kill("KILL");
        wait_until("the end of all", || family.iter().all(|pid| !is_alive(pid)).then_some(()));
        if was_still {
            break;
        }
    }
    assert!(was_still, "no worker was seen stopped");
}

/// The keys on the server, and whether each ends by itself.
fn left_behind(backend: &TestBackend) -> Vec<(String, bool)> {
    let Reply::Array(keys) = backend.server().command(&["KEYS", "*"]) else { return Vec::new() };
    let names = keys.iter().filter_map(|key| key.text().map(str::to_owned));
    let ends = |key: String| {
        let ends = matches!(backend.server().command(&["TTL", &key]), Reply::Int(0..));
        (key, ends)
    };
    names.map(ends).collect()
}
