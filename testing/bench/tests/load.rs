//! Loads, briefly: that they are measured and leave nothing, not how fast they are.
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock_testkit::{RedisServer, Reply, redis_or_skip, redlock_url, servers_or_skip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::{read_dir, read_to_string};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::Instant;

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(120);

fn bench(url: &str, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fencelock-bench"));
    command.args(["--url", url]).args(line.split_whitespace());
    command
}

fn output(url: &str, line: &str) -> (Output, String, String) {
    let output = bench(url, line).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    (output, stdout, stderr)
}

/// The report of a load that succeeds.
fn report(url: &str, line: &str) -> Value {
    let (output, stdout, stderr) = output(url, &format!("--json {line}"));
    assert!(output.status.success(), "{line}: {stderr}");
    serde_json::from_str(&stdout).unwrap()
}

/// Runs a load until something was granted within its span: a machine that does other things may need a longer one.
fn measured(url: &str, line: &str) -> Value {
    let of = |seconds| report(url, &format!("--warm-up 0.1 --processes 2 --tasks 4 --seconds {seconds} {line}"));
    let mut all = ["0.5", "5", "60"].into_iter().map(of);
    all.find(|json| json["grants"] != 0).expect("a grant within a minute")
}

fn files() -> (TempDir, String) {
    let dir = TempDir::with_prefix("fencelock-bench-").unwrap();
    let url = format!("file:{}", dir.path().display());
    (dir, url)
}

/// A busy machine may not run the server for some time.
fn patient(server: &RedisServer) -> String {
    format!("{}?timeout=5000", server.url())
}

fn wait_until<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "{what} did not come");
        sleep(Duration::from_millis(5));
    }
}

fn send(to: &Child, signal: Signal) {
    kill(Pid::from_raw(to.id().try_into().unwrap()), signal).unwrap();
}

/// The processes that a process has started.
fn children(of: &Child) -> Vec<String> {
    let tasks = read_dir(format!("/proc/{}/task", of.id())).unwrap();
    let of = |task: std::fs::DirEntry| read_to_string(task.path().join("children")).unwrap_or_default();
    tasks.flat_map(|task| of(task.unwrap()).split_whitespace().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// Whether a process is alive. A zombie is not.
fn is_alive(pid: &String) -> bool {
    let stat = read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

const LOADS: [&str; 4] = [
    "--workload uncontended",
    "--workload hot-key",
    "--workload many-keys --keys 20 --no-sharing",
    "--workload flash-sale --stock 50",
];

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
    assert!(json["grants_per_s"].as_f64().unwrap() > 0.0 && json["wasted_wakeups_per_grant"].is_number(), "{json}");
}

#[test]
fn every_load_is_measured_and_leaves_nothing() {
    let (dir, url) = files();
    for line in LOADS {
        let json = measured(&url, line);
        check(&json, line);
        assert!(json["commands_per_grant"].is_null(), "{json}");
        assert_eq!(read_dir(dir.path()).unwrap().count(), 0, "{line}");
    }
    let Some(server) = redis_or_skip() else { return };
    for line in LOADS {
        let json = measured(&patient(&server), line);
        check(&json, line);
        assert!(json["commands_per_grant"].is_number() && json["server_us_per_grant"].is_number(), "{json}");
        assert_eq!(server.command(&["DBSIZE"]), Reply::Int(0), "{line}");
    }
}

#[test]
fn keys_with_a_prefix_and_those_of_a_quorum_are_removed_too() {
    let Some(nodes) = servers_or_skip(3) else { return };
    for line in ["--workload many-keys --keys 5", "--workload flash-sale --stock 9"] {
        measured(&format!("{}&prefix=x%3A", patient(&nodes[0])), line);
        assert_eq!(nodes[0].command(&["DBSIZE"]), Reply::Int(0), "{line}");
    }
    let json = measured(&redlock_url(&nodes, "trust_empty=true"), "--workload flash-sale --stock 9");
    assert_eq!((&json["sale"]["sold"], &json["sale"]["oversold"]), (&9.into(), &0.into()), "{json}");
    for node in nodes {
        // The word of a node on which set it belongs to is no lock's.
        assert_eq!(node.command(&["KEYS", "*"]), Reply::Array(vec![Reply::Text("fencelock:node".to_owned())]));
    }
}

#[test]
fn what_cannot_be_measured_is_refused_before_the_load() {
    let (dir, url) = files();
    for (url, line, part) in [
        (&*url, "--workload uncontended --tasks 100000 --processes 256", "25600000 locks are too many"),
        (&url, "--seconds 0", "one millisecond"),
        ("memory:", "--processes 2", "exists only within one process, so 2 processes cannot share its locks"),
        ("nonsense:", "", "nonsense"),
        ("redis://127.0.0.1:1", "", "cannot be reached"),
    ] {
        let (output, stdout, stderr) = output(url, line);
        assert!(!output.status.success() && stdout.is_empty() && stderr.contains(part), "{line}: {stderr}");
    }
    assert_eq!(read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn an_outage_of_the_server_is_a_report_with_errors() {
    // On a machine that does other things too, a load may be over before the server is.
    let gone = ["3", "30"].iter().find_map(|seconds| {
        let server = redis_or_skip()?;
        let mut load = bench(&patient(&server), &format!("--json --seconds {seconds} --processes 1 --tasks 2"));
        let mut running = load.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let work = ["KEYS", "fencelock:{fencelock-bench:[0-9a-f]*}:fence"];
        wait_until("the work", || {
            let works = server.command(&work) != Reply::Array(Vec::new());
            (works || running.try_wait().unwrap().is_some()).then_some(())
        });
        drop(server);
        Some(running.wait_with_output().unwrap()).filter(|output| !output.status.success())
    });
    let Some(output) = gone else {
        assert!(redis_or_skip().is_none(), "nothing was noticed");
        return;
    };
    assert!(String::from_utf8_lossy(&output.stderr).contains("errors: "), "{output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(json["errors"].as_u64().unwrap() > 0 && json["first_error"].is_string(), "{json}");
}

#[test]
fn a_sale_ends_when_all_is_sold_and_nothing_is_sold_twice() {
    let (server, (_dir, files)) = (redis_or_skip(), files());
    for url in server.iter().map(patient).chain([files]) {
        let json = report(&url, "--workload flash-sale --stock 60 --seconds 600 --processes 2 --tasks 4");
        assert_eq!(json["sale"], json!({ "stock": 60, "left": 0, "sold": 60, "oversold": 0, "out_of_order": 0 }));
        assert!(json["span_ms"].as_u64().unwrap() < 600_000 && json["warm_up_ms"] == 0, "{json}");
        // All of them sell, and each task finds the stock empty once.
        assert_eq!(json["grants"], 68);
    }
    let json = report("memory:", "--workload flash-sale --stock 200 --seconds 600 --tasks 8");
    assert_eq!((&json["fairness"]["empty_handed"], &json["sale"]["sold"]), (&0.into(), &200.into()), "{json}");
}

#[test]
fn the_report_is_for_people_and_fits_a_terminal() {
    let (_dir, url) = files();
    let (_, text, _) = output(&url, "--workload flash-sale --stock 30 --seconds 600 --processes 2 --tasks 4");
    for part in [
        ", leases are shared by the tasks of a process (see --no-sharing)\nA flash sale: 2 processes of 4 tasks, ",
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
fn a_signal_ends_a_load_with_its_processes_and_its_keys() {
    let Some(server) = redis_or_skip() else { return };
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let line = "--workload uncontended --seconds 3600 --processes 2 --tasks 8";
        let mut running = bench(&patient(&server), line).spawn().unwrap();
        wait_until("the work of both", || {
            let keys = format!("{:?}", server.command(&["KEYS", "*"]));
            (keys.contains(":0:") && keys.contains(":1:")).then_some(())
        });
        let family = children(&running);
        assert_eq!(family.len(), 2, "{family:?}");
        send(&running, signal);
        assert_eq!(running.wait().unwrap().code(), Some(1));
        assert_eq!(server.command(&["DBSIZE"]), Reply::Int(0), "{signal}");
        assert!(!family.iter().any(is_alive), "{family:?}");
    }
}

#[test]
fn a_second_signal_ends_it_without_its_clean_up() {
    let Some(server) = redis_or_skip() else { return };
    let mut running = bench(&patient(&server), "--seconds 600 --tasks 2").spawn().unwrap();
    wait_until("the work of both", || Some(()).filter(|()| children(&running).len() == 2));
    server.freeze();
    let signalled = Instant::now();
    send(&running, Signal::SIGTERM);
    // Else the two may be one for the program.
    sleep(Duration::from_millis(300));
    send(&running, Signal::SIGINT);
    running.wait().unwrap();
    let took = signalled.elapsed();
    server.thaw();
    // It tries to remove its keys for 12 s.
    assert!(took < Duration::from_secs(9), "{took:?}");
}

#[test]
fn the_processes_of_a_load_end_with_it_even_if_it_is_killed() {
    let (_dir, url) = files();
    let mut running = bench(&url, "--seconds 3600 --processes 2").spawn().unwrap();
    let family = wait_until("both processes", || Some(children(&running)).filter(|family| family.len() == 2));
    send(&running, Signal::SIGKILL);
    running.wait().unwrap();
    wait_until("the end of both", || Some(()).filter(|()| !family.iter().any(is_alive)));
}
