//! Loads, briefly: that they are measured and leave nothing, not how fast they are.

use crate::backend::TestBackend;
use crate::running::{children, is_alive, wait_until};
use crate::test::Test;
use fencelock_testkit::{Reply, redlock_url, servers_or_skip};
use serde_json::Value;
use std::thread::sleep;
use std::time::Duration;
use tokio::time::Instant;

/// Runs `bench` until something was granted within its span: a machine that does other things may need a longer one.
fn measured(backend: &TestBackend, line: &str) -> Value {
    for seconds in ["0.5", "5", "60"] {
        let line = format!("bench --json --warm-up 0.1 --processes 2 --tasks 4 --seconds {seconds} {line}");
        let output = Test::new(backend, &line).output();
        assert_eq!(output.status, 0, "{line}: {}", output.stderr);
        let json: Value = serde_json::from_str(&output.stdout).unwrap();
        if json["grants"] != 0 {
            return json;
        }
    }
    panic!("nothing was granted within a minute");
}

/// What has to be so of every load.
fn check(json: &Value, line: &str) {
    let count = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{line}: {json}"));
    assert_eq!((count(&json["processes"]), count(&json["tasks"]), count(&json["errors"])), (2, 4, 0), "{json}");
    let waits = json["waits"].as_array().unwrap();
    assert_eq!(waits.iter().map(|pair| count(&pair[1])).sum::<u64>(), count(&json["grants"]), "{line}");
    let wait = ["p50", "p90", "p99", "p99.9", "max"].map(|name| count(&json["wait_us"][name]));
    assert!(wait.is_sorted(), "{line}: {json}");
    for name in ["jain_tasks", "jain_processes"] {
        let jain = json["fairness"][name].as_f64().unwrap();
        assert!(jain > 0.0 && jain < 1.0 + 1e-9, "{line}: {json}");
    }
    // Modes of one key.
    if line.starts_with("--workload") {
        assert!(json["audit"].is_null(), "{json}");
    } else {
        assert_eq!(json["audit"]["conflicts"], 0, "{json}");
        assert!(json["audit"]["checked"].as_u64().unwrap() > 0, "{json}");
    }
    let most = &json["audit"]["most_permits"];
    match line {
        "--permits 3 --weight 2" => assert_eq!(most, 2, "{json}"),
        "--slots 3" => assert!((1..=3).contains(&count(most)), "{json}"),
        _ => assert!(most.is_null(), "{json}"),
    }
    if line.contains("--together") {
        assert_eq!(json["keys"], if line.contains("many-keys") { 5 } else { 2 }, "{json}");
    }
    let is_shared = line.starts_with("--shared");
    assert!(json["reader_wait_us"].is_object() == is_shared && json["writer_grants"].is_u64() == is_shared, "{json}");
    assert_eq!(json["writer_wait_us"].is_object(), json["writer_grants"].as_u64() > Some(0), "{json}");
    assert!(json["grants_per_s"].as_f64().unwrap() > 0.0 && json["wasted_wakeups_per_grant"].is_number(), "{json}");
}

const LOADS: [&str; 9] = [
    "--workload uncontended",
    "--workload hot-key --batch 8,2ms --idle-timeout 1ms",
    "--workload many-keys --keys 20 --no-sharing",
    "--workload flash-sale --stock 50 --seconds 60",
    "--shared --writers 10",
    "--permits 3 --weight 2",
    "--slots 3",
    "--together 2",
    "--workload many-keys --keys 5 --together 3",
];

#[test]
fn every_load_is_measured_on_redis_and_leaves_nothing() {
    let Some(backend) = TestBackend::redis() else { return };
    for line in LOADS {
        let json = measured(&backend, &line.replace(" --seconds 60", ""));
        check(&json, line);
        assert!(json["commands_per_grant"].is_number() && json["server_us_per_grant"].is_number(), "{json}");
        assert_eq!(backend.server().command(&["DBSIZE"]), Reply::Int(0), "{line}");
    }
}

#[test]
fn keys_with_a_prefix_and_those_of_a_quorum_are_removed_too() {
    let Some(backend) = TestBackend::redis() else { return };
    for line in ["--workload many-keys --keys 5", "--workload flash-sale --stock 9"] {
        measured(&backend, &format!("{line} --url {}&prefix=x%3A", backend.url()));
        assert_eq!(backend.server().command(&["DBSIZE"]), Reply::Int(0), "{line}");
    }
    let others = servers_or_skip(2).unwrap();
    let nodes: Vec<_> = others.iter().chain([backend.server()]).collect();
    let url = redlock_url(nodes.iter().copied(), "trust_empty=true");
    let json = measured(&backend, &format!("--workload flash-sale --stock 9 --url {url}"));
    assert_eq!((&json["sale"]["sold"], &json["sale"]["oversold"]), (&9.into(), &0.into()), "{json}");
    for node in nodes {
        // The word of a node on which set it belongs to is no lock's.
        assert_eq!(node.command(&["KEYS", "*"]), Reply::Array(vec![Reply::Text("fencelock:node".to_owned())]));
    }
}

#[test]
fn a_mode_that_the_backend_lacks_or_that_makes_no_sense_is_refused_before_the_load() {
    let backend = TestBackend::files();
    for (line, part) in [
        ("--workload flash-sale --shared", "a flash sale needs an exclusive lock"),
        ("--shared --permits 2", "cannot be used with"),
        ("--writers 1", "--shared"),
        ("--shared --writers 101", "not a percentage"),
        ("--permits 0", "--permits"),
        ("--slots 2 --together 2", "cannot be used with"),
        ("--slots 1001", "--slots"),
        ("--together 17", "--together"),
        ("--workload flash-sale --slots 2", "a flash sale needs an exclusive lock"),
        ("--workload many-keys --keys 2 --together 3", "cannot lock 3 different keys together if the keys are 2"),
        ("--workload many-keys --keys 1000000 --slots 1000", "1000000000 locks are too many"),
    ] {
        let output = Test::new(&backend, &format!("bench {line}")).output();
        assert_eq!(output.status, 64, "{line}: {}", output.stderr);
        assert!(output.stderr.contains(part), "{line}: {}", output.stderr);
    }
}

#[test]
fn an_outage_of_the_server_is_a_report_with_errors() {
    // On a machine that does other things too, a load may be over before the server is.
    let gone = ["3", "30"].iter().find_map(|seconds| {
        let mut backend = TestBackend::redis()?;
        let line = format!("bench --json --seconds {seconds} --processes 1 --tasks 2");
        let mut running = Test::new(&backend, &line).start();
        let work = ["KEYS", "fencelock:{fencelock-bench:[0-9a-f]*}:fence"];
        wait_until("the work", || {
            (backend.server().command(&work) != Reply::Array(Vec::new()) || running.has_ended()).then_some(())
        });
        drop(backend.redis.take());
        Some(running.end()).filter(|output| output.status != 0)
    });
    let Some(output) = gone else {
        assert!(TestBackend::redis().is_none(), "nothing was noticed");
        return;
    };
    assert_eq!(output.status, 69, "{}", output.stderr);
    assert!(output.stderr.contains("\"exit\":69"), "{}", output.stderr);
    let json: Value = serde_json::from_str(&output.stdout).unwrap();
    assert!(json["errors"].as_u64().unwrap() > 0 && json["first_error"].is_string(), "{json}");
}

#[test]
fn every_load_is_measured_on_files_and_leaves_nothing() {
    let backend = TestBackend::files();
    for line in LOADS {
        let json = measured(&backend, &line.replace(" --seconds 60", ""));
        check(&json, line);
        assert!(json["commands_per_grant"].is_null(), "{json}");
        assert_eq!(std::fs::read_dir(backend.file("locks")).unwrap().count(), 0, "{line}");
    }
}

#[test]
fn a_sale_ends_when_all_is_sold_and_nothing_is_sold_twice() {
    let redis = TestBackend::redis();
    for backend in redis.into_iter().chain([TestBackend::files()]) {
        let line = "bench --json --workload flash-sale --stock 60 --seconds 10m --processes 2 --tasks 4";
        let output = Test::new(&backend, line).output();
        assert_eq!(output.status, 0, "{}", output.stderr);
        let json: Value = serde_json::from_str(&output.stdout).unwrap();
        let sale = serde_json::json!({ "stock": 60, "left": 0, "sold": 60, "oversold": 0, "out_of_order": 0 });
        assert_eq!(json["sale"], sale);
        assert!(json["span_ms"].as_u64().unwrap() < 600_000 && json["warm_up_ms"] == 0, "{json}");
        // All of them sell, and each task finds the stock empty once.
        assert_eq!(json["grants"], 68);
    }
}

#[test]
fn the_report_is_for_people_and_fits_a_terminal() {
    let backend = TestBackend::files();
    let line = "bench --workload flash-sale --stock 30 --seconds 10m --processes 2 --tasks 4";
    let text = Test::new(&backend, line).output().stdout;
    let backend_line = text.lines().next().unwrap();
    assert!(backend_line.starts_with("file:"), "{text}");
    for part in [
        "A flash sale: 2 processes of 4 tasks, ",
        "\n  grants            38 in total, ",
        "\n  wait              p50 ",
        "\n  longest wait      ",
        "\n  fairness (Jain)   ",
        "\n  wasted wake-ups   ",
        "\n  commands          -\n",
        "\n  sale              30 of 30 sold, 0 left: nothing sold twice\n",
        "\n  wait from\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(text.lines().skip(1).all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn a_second_signal_ends_it_without_its_clean_up() {
    let Some(backend) = TestBackend::redis() else { return };
    let mut bench = Test::new(&backend, "bench --seconds 10m --tasks 2").start();
    let began = || (backend.server().command(&["DBSIZE"]) != Reply::Int(0)).then_some(());
    wait_until("the first key", began);
    backend.server().freeze();
    let signalled = Instant::now();
    bench.kill("TERM");
    // Else the first one may be read last.
    sleep(Duration::from_millis(300));
    bench.kill("INT");
    let status = bench.status();
    let took = signalled.elapsed();
    backend.server().thaw();
    assert_eq!(status, 143);
    // It tries to remove its keys for 12 s.
    assert!(took < Duration::from_secs(9), "{took:?}");
}

#[test]
fn memory_is_measured_within_one_process_and_a_second_is_refused() {
    let backend = TestBackend::files();
    let line = "bench --url memory: --workload flash-sale --stock 20 --seconds 10m --tasks 3";
    let text = Test::new(&backend, line).output().stdout;
    assert!(text.starts_with("memory:, leases are shared by the tasks of a process (see --no-sharing)\nA flash sale: 1 process of 3 tasks, "), "{text}");
    Test::new(&backend, "bench --url memory: --processes 2")
        .status(64)
        .stderr("fencelock: memory: exists only within one process, so 2 processes cannot share its locks: *\n")
        .run();
}

#[test]
fn what_cannot_be_measured_is_64_and_a_backend_that_is_not_there_69() {
    let backend = TestBackend::files();
    for (line, status) in [
        ("bench --workload nonsense", 64),
        ("bench --batch 0,1ms", 64),
        ("bench --batch 3", 64),
        ("bench --idle-timeout 1s", 64),
        ("bench --no-sharing --idle-timeout 1ms", 64),
        ("bench --tasks 0", 64),
        ("bench --seconds 0", 64),
        ("bench --url nonsense:", 64),
        ("bench --url redis://127.0.0.1:1", 69),
    ] {
        let output = Test::new(&backend, line).output();
        assert_eq!((output.status, output.stdout.as_str()), (status, ""), "{line}: {}", output.stderr);
        assert!(!output.stderr.is_empty(), "{line}");
    }
    assert!(std::fs::read_dir(backend.file("locks")).map_or(true, |mut left| left.next().is_none()));
}

#[test]
fn a_signal_ends_a_load_with_its_processes_and_its_keys() {
    let Some(backend) = TestBackend::redis() else { return };
    for (signal, status) in [("INT", 130), ("TERM", 143)] {
        let line = "bench --workload uncontended --seconds 1h --processes 2 --tasks 8";
        let running = Test::new(&backend, line).start();
        wait_until("the work of both", || {
            let keys = format!("{:?}", backend.server().command(&["KEYS", "*"]));
            (keys.contains(":0:") && keys.contains(":1:")).then_some(())
        });
        let family = children(running.pid());
        assert_eq!(family.len(), 2, "{family:?}");
        running.kill(signal);
        assert_eq!(running.end().status, status);
        assert_eq!(backend.server().command(&["DBSIZE"]), Reply::Int(0), "{signal}");
        assert!(family.iter().all(|pid| !is_alive(pid)), "{family:?}");
    }
}

#[test]
fn the_processes_of_a_load_end_with_it_even_if_it_is_killed() {
    let backend = TestBackend::files();
    let running = Test::new(&backend, "bench --seconds 1h --processes 2").start();
    let family = wait_until("both processes", || Some(children(running.pid())).filter(|family| family.len() == 2));
    running.kill("KILL");
    wait_until("the end of both", || family.iter().all(|pid| !is_alive(pid)).then_some(()));
}

#[test]
fn in_memory_tasks_really_want_the_key_at_once_and_all_get_it() {
    let line = "bench --url memory: --workload flash-sale --stock 200 --seconds 10m --tasks 8 --json";
    let text = Test::new(&TestBackend::files(), line).output().stdout;
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&answer["fairness"]["empty_handed"], &answer["sale"]["sold"]), (&0.into(), &200.into()), "{text}");
}
