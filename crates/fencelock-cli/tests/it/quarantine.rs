use crate::backend::TestBackend;
use crate::running::wait_until;
use crate::test::Test;
use fencelock_testkit::{RedisServer, Reply, redlock_url, servers_or_skip};

fn url<'a>(servers: impl IntoIterator<Item = &'a RedisServer>) -> String {
    redlock_url(servers, "max_ttl=50000&node_timeout=5000")
}

fn test<'a>(backend: &'a TestBackend, url: &str, line: &str) -> Test<'a> {
    Test::new(backend, line).env("FENCELOCK_URL", url)
}

/// As if the time had passed.
fn end_quarantine(server: &RedisServer) {
    assert_eq!(server.command(&["HSET", "fencelock:node", "until", "1"]), Reply::Int(0));
}

/// Has `k`, on all servers: a majority decides, and a program that ends then may not have reached the others yet.
fn held_by_all(backend: &TestBackend, url: &str, servers: &[RedisServer]) -> String {
    wait_until("a hold on every node", || {
        let holder = test(backend, url, "acquire --ttl 45s k").output().stdout;
        if servers.iter().all(|server| server.command(&["EXISTS", "k"]) == Reply::Int(1)) {
            return Some(holder);
        }
        test(backend, url, &format!("release k --holder {}", holder.trim())).output();
        None
    })
}

#[test]
fn a_first_use_is_initialised_once_and_serves_at_once() {
    let Some(servers) = servers_or_skip(3) else { return };
    let (backend, url) = (TestBackend::files(), url(&servers));
    test(&backend, &url, "init --trust-empty")
        .stdout(
            "NODE*WAS*READY\n\
             redis://127.0.0.1:*  new  now\n\
             redis://127.0.0.1:*  new  now\n\
             redis://127.0.0.1:*  new  now\n",
        )
        .run();
    test(&backend, &url, "run -n k -- true").run();
    let again = test(&backend, &url, "init --json").output();
    assert_eq!(again.stdout.matches(r#""ready_in_ms":0,"was":"this_set""#).count(), 3, "{}", again.stdout);
}

#[test]
fn a_fresh_quorum_says_on_stderr_what_is_waited_for_and_what_to_do() {
    let Some(servers) = servers_or_skip(3) else { return };
    let (backend, url) = (TestBackend::files(), url(&servers));
    test(&backend, &url, "run -n k -- true").says(69, &["grants nothing", "init --trust-empty"]);
    let waiter = test(&backend, &url, "run k -- true").start();
    waiter.wait_for_error("fencelock: waiting: ");
    // Long enough for several further replies of the same kind.
    std::thread::sleep(std::time::Duration::from_secs(1));
    servers.iter().for_each(end_quarantine);
    let output = waiter.end();
    assert_eq!(output.status, 0, "{}", output.stderr);
    let lines: Vec<_> = output.stderr.lines().filter(|line| line.starts_with("fencelock: waiting: ")).collect();
    assert_eq!((lines.len(), lines[0].matches("redis://").count()), (1, 3), "{}", output.stderr);
    assert_eq!(lines[0].matches("it may have lost").count(), 1, "one reason for all: {}", lines[0]);
}

#[test]
fn read_only_commands_write_nothing_and_never_say_free_of_a_server_that_may_have_lost_its_data() {
    let Some(servers) = servers_or_skip(3) else { return };
    let (backend, url) = (TestBackend::files(), url(&servers));
    let fresh = |url: &str| {
        let began = "quarantine, not started: `fencelock init` or the next claim starts it";
        let status = test(&backend, url, "status k").output();
        assert!(status.status == 69 && status.stdout.starts_with("k: unknown ("), "{}", status.stdout);
        assert!(status.stdout.ends_with(&format!("{began})\n")), "{}", status.stdout);
        let json = test(&backend, url, "--json status k").json();
        assert!(json["held"].is_null() && json["quarantined_for_ms"].is_null(), "{json}");
        assert!(json["unknown"].as_str().unwrap().ends_with(began), "{json}");
        test(&backend, url, "-q status k").status(69).run();
        for line in ["wait k", "wait -w 1 k"] {
            test(&backend, url, line).says(69, &["k is unknown ("]);
        }
        test(&backend, url, "list").ok();
        assert!(test(&backend, url, "doctor").output().stdout.contains("fencelock init"));
    };
    fresh(&url);
    fresh(&format!("redis://127.0.0.1:{}?quarantine=on", servers[0].port()));
    for server in &servers {
        assert_eq!(server.command(&["DBSIZE"]), Reply::Int(0), "a read-only command wrote something");
    }
    // The first claim of servers that are all new begins their quarantine.
    assert_eq!(test(&backend, &url, "run -n k -- true").output().status, 69);
    // A node that is slow to answer is reported as unreachable, so the same command is repeated.
    let in_quarantine = |line: &str, expected: &str| {
        wait_until(&format!("a quarantine on every node: {line}"), || {
            let output = test(&backend, &url, line).output();
            assert_eq!(output.status, 69, "{}", output.stdout);
            Some(output.stdout + &output.stderr).filter(|said| said.contains(expected))
        })
    };
    in_quarantine("status k", "k: unknown (2 nodes in quarantine for up to ");
    in_quarantine("wait -w 1 k", "fencelock: k is unknown (2 nodes in quarantine for up to ");
    let json = in_quarantine("--json status k", "2 nodes in quarantine for up to ");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!((1..=50_610).contains(&json["quarantined_for_ms"].as_u64().unwrap()), "{json}");
    servers.iter().for_each(end_quarantine);
    wait_until("an answer of the servers, whose quarantine is over", || {
        (test(&backend, &url, "status k").output().stdout == "k: free\n").then_some(())
    });
}

#[test]
fn a_new_server_is_claimed_only_with_a_list_that_was_set_up_or_is_all_new_and_answers() {
    let Some(mut servers) = servers_or_skip(3) else { return };
    let backend = TestBackend::files();
    let ours = url(&servers);
    servers[2].kill();
    let output = test(&backend, &ours, "run -n k -- true").output();
    assert!(output.status == 69 && output.stderr.contains("is not marked before"), "{}", output.stderr);
    assert!(servers[..2].iter().all(|server| server.command(&["DBSIZE"]) == Reply::Int(0)), "{}", output.stderr);
    servers[2].restart_empty().unwrap();
    test(&backend, &ours, "init --trust-empty").ok();
    test(&backend, &ours, "run -n k -- true").ok();
    // One that was restarted empty looks as new, but the others say that the list is right, although one is away.
    servers[1].restart_empty().unwrap();
    servers[2].kill();
    let marked = wait_until("the quarantine of a node that forgot", || {
        let output = test(&backend, &ours, "run -n k -- true").output();
        assert_eq!(output.status, 69, "{}", output.stderr);
        (servers[1].command(&["HEXISTS", "fencelock:node", "until"]) == Reply::Int(1)).then_some(output.stderr)
    });
    assert!(marked.contains("in quarantine"), "{marked}");
}

#[test]
fn a_list_of_two_nodes_is_warned_of_by_every_command() {
    let Some(servers) = servers_or_skip(2) else { return };
    let (backend, url) = (TestBackend::files(), url(&servers));
    let init = test(&backend, &url, "init --trust-empty").output();
    assert!(init.stdout.contains("tolerates no failure"), "{}", init.stdout);
    assert!(test(&backend, &url, "doctor").output().stdout.contains("2 nodes, of which 0 may be unavailable"));
    for line in ["status k", "list", "wait k", "run k -- true", "acquire k", "break k"] {
        let output = test(&backend, &url, line).output();
        let warned = output.stderr.starts_with("fencelock: warning: two nodes tolerate no failure");
        assert!(warned, "{line}: {}", output.stderr);
    }
}

#[test]
fn a_dead_node_is_replaced_and_old_lists_fail_from_then_on() {
    let Some(mut servers) = servers_or_skip(4) else { return };
    let backend = TestBackend::files();
    let old = url(&servers[..3]);
    test(&backend, &old, "init --trust-empty").output();
    let held = held_by_all(&backend, &old, &servers[..3]);
    servers[2].kill();
    let new = url([&servers[0], &servers[1], &servers[3]]);
    test(&backend, &new, "status k").says(64, &["it belongs to"]);
    // An inspection leaves the new node unchanged. So does a claim with a list that is not set up.
    test(&backend, &new, "run -n k -- true").says(64, &["it belongs to"]);
    assert_eq!(servers[3].command(&["DBSIZE"]), Reply::Int(0));
    let init = test(&backend, &new, "init").output();
    let lines: Vec<_> = init.stdout.lines().collect();
    assert!(lines[1].contains("in another set  now") && lines[2].contains("in another set  now"), "{}", init.stdout);
    assert!(lines[3].contains("new             in 50."), "{}", init.stdout);
    let again = test(&backend, &new, "init").output().stdout;
    assert!(init.stdout.contains("Clients that use these nodes in another set fail"), "{}", init.stdout);
    assert!(again.lines().skip(1).all(|line| line.contains("in this set")), "{again}");
    assert_eq!(again.matches("now").count(), 2, "{again}");
    // What the old list holds stands, and the new node does not vote against it.
    test(&backend, &new, "-q status k").status(75).run();
    assert_eq!(test(&backend, &new, "run -n k -- true").output().status, 75);
    test(&backend, &old, "run -n j -- true").says(64, &["fencelock init"]);
    test(&backend, &new, &format!("release k --holder {}", held.trim())).output();
    test(&backend, &new, "run -n k -- true").ok();
    end_quarantine(&servers[3]);
    servers[0].kill();
    test(&backend, &new, "run -n k -- true").ok();
}

#[test]
fn init_where_there_is_nothing_to_set_up_is_a_usage_error() {
    let backend = TestBackend::files();
    for url in ["memory:", "file:/tmp/x", "redis://127.0.0.1:1"] {
        test(&backend, url, "init").says(64, &["nothing to set up"]);
    }
    test(&backend, "redlock://127.0.0.1:1,127.0.0.1:2", "init").says(69, &["127.0.0.1:1", "127.0.0.1:2"]);
}

#[test]
fn a_warning_has_the_format_of_all_lines_and_is_not_repeated_in_results() {
    let Some(servers) = servers_or_skip(3) else { return };
    let (backend, url) = (TestBackend::files(), url(&servers));
    test(&backend, &url, "init --trust-empty").ok();
    servers[0].command(&["DEL", "fencelock:node"]);
    test(&backend, &url, "run -n k -- true")
        .says(0, &["fencelock: warning: redis://127.0.0.1:", ": in quarantine (it may have lost its locks: "]);
    let output = test(&backend, &url, "doctor").output();
    assert!(output.stdout.contains("  warning  quarantine "), "{}", output.stdout);
    assert_eq!(output.stderr, "");
    let output = test(&backend, &url, "-v status k").output();
    assert!(output.stderr.contains(" WARN fencelock_redis::"), "{}", output.stderr);
}
