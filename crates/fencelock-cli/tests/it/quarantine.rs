use crate::place::Place;
use crate::running::wait_until;
use crate::test::Test;
use fencelock_conformance::{RedisServer, Reply, redis_or_skip};

fn servers(count: usize) -> Option<Vec<RedisServer>> {
    let mut servers = vec![redis_or_skip()?];
    servers.resize_with(count, || RedisServer::start().unwrap());
    Some(servers)
}

fn url<'a>(servers: impl IntoIterator<Item = &'a RedisServer>) -> String {
    let hosts: Vec<_> = servers.into_iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    format!("redlock://{}?max_ttl=50000", hosts.join(","))
}

fn test<'a>(place: &'a Place, url: &str, line: &str) -> Test<'a> {
    Test::new(place, line).env("FENCELOCK_URL", url)
}

/// As if the time had passed.
fn end_quarantine(server: &RedisServer) {
    assert_eq!(server.command(&["HSET", "fencelock:node", "until", "1"]), Reply::Int(0));
}

/// Has `k`, on all servers: a majority decides, and a program that ends then may not have reached the others yet.
fn held_by_all(place: &Place, url: &str, servers: &[RedisServer]) -> String {
    wait_until("a hold on every node", || {
        let holder = test(place, url, "acquire --ttl 45s k").output().stdout;
        if servers.iter().all(|server| server.command(&["EXISTS", "k"]) == Reply::Int(1)) {
            return Some(holder);
        }
        test(place, url, &format!("release k --holder {}", holder.trim())).output();
        None
    })
}

#[test]
fn a_first_use_is_initialised_once_and_serves_at_once() {
    let Some(servers) = servers(3) else { return };
    let (place, url) = (Place::files(), url(&servers));
    test(&place, &url, "init --trust-empty")
        .stdout(
            "NODE*WAS*READY\n\
             redis://127.0.0.1:*  new  now\n\
             redis://127.0.0.1:*  new  now\n\
             redis://127.0.0.1:*  new  now\n",
        )
        .run();
    test(&place, &url, "run -n k -- true").run();
    let again = test(&place, &url, "init --json").output();
    assert_eq!(again.stdout.matches(r#""ready_in_ms":0,"was":"this_set""#).count(), 3, "{}", again.stdout);
}

#[test]
fn a_fresh_quorum_says_on_stderr_what_is_waited_for_and_what_to_do() {
    let Some(servers) = servers(3) else { return };
    let (place, url) = (Place::files(), url(&servers));
    let output = test(&place, &url, "run -n k -- true").output();
    assert_eq!(output.status, 69, "{}", output.stderr);
    assert!(
        output.stderr.contains("grants nothing") && output.stderr.contains("init --trust-empty"),
        "{}",
        output.stderr
    );
    let waiter = test(&place, &url, "run k -- true").start();
    std::thread::sleep(std::time::Duration::from_secs(1));
    servers.iter().for_each(end_quarantine);
    let output = waiter.end();
    assert_eq!(output.status, 0, "{}", output.stderr);
    let told: Vec<_> = output.stderr.lines().filter(|line| line.starts_with("fencelock: waiting: ")).collect();
    assert_eq!((told.len(), told[0].matches("s left").count()), (1, 3), "{}", output.stderr);
}

#[test]
fn a_dead_node_is_replaced_and_old_lists_fail_from_then_on() {
    let Some(mut servers) = servers(4) else { return };
    let place = Place::files();
    let old = url(&servers[..3]);
    test(&place, &old, "init --trust-empty").output();
    let held = held_by_all(&place, &old, &servers[..3]);
    servers[2].kill();
    let new = url([&servers[0], &servers[1], &servers[3]]);
    let refused = test(&place, &new, "status k").output();
    assert!(refused.status == 64 && refused.stderr.contains("it belongs to"), "{}", refused.stderr);
    // It met the new node, whose quarantine may be over long before the old node died. What that one had granted counts.
    end_quarantine(&servers[3]);
    let init = test(&place, &new, "init").output();
    let lines: Vec<_> = init.stdout.lines().collect();
    assert!(lines[1].contains("in another set  now") && lines[2].contains("in another set  now"), "{}", init.stdout);
    assert!(lines[3].contains("in this set     in 50."), "{}", init.stdout);
    let again = test(&place, &new, "init").output().stdout;
    assert!(init.stdout.contains("Clients that name another set with these nodes fail"), "{}", init.stdout);
    assert!(again.lines().skip(1).all(|line| line.contains("in this set")), "{again}");
    assert_eq!(again.matches("now").count(), 2, "{again}");
    // What the old list holds stands, and the new node is no vote against it.
    test(&place, &new, "-q status k").status(75).run();
    assert_eq!(test(&place, &new, "run -n k -- true").output().status, 75);
    let late = test(&place, &old, "run -n j -- true").output();
    assert!(late.status == 64 && late.stderr.contains("fencelock init"), "{}", late.stderr);
    test(&place, &new, &format!("release k --holder {}", held.trim())).output();
    test(&place, &new, "run -n k -- true").ok();
    end_quarantine(&servers[3]);
    servers[0].kill();
    test(&place, &new, "run -n k -- true").ok();
}

#[test]
fn init_where_there_is_nothing_to_set_up_is_a_usage_error() {
    let place = Place::files();
    for url in ["memory:", "file:/tmp/x", "redis://127.0.0.1:1"] {
        let output = test(&place, url, "init").output();
        assert!(output.status == 64 && output.stderr.contains("nothing to set up"), "{url}: {}", output.stderr);
    }
    let output = test(&place, "redlock://127.0.0.1:1,127.0.0.1:2", "init").output();
    assert_eq!(output.status, 69, "{}", output.stderr);
    assert!(output.stderr.contains("127.0.0.1:1") && output.stderr.contains("127.0.0.1:2"), "{}", output.stderr);
}

#[test]
fn doctor_looks_at_a_server_of_another_set() {
    let Some(servers) = servers(3) else { return };
    let place = Place::files();
    test(&place, &url(&servers), "init --trust-empty").output();
    let output = test(&place, &url(&servers[..2]), "doctor").output();
    assert_eq!(output.status, 69, "{}", output.stderr);
    assert_eq!(output.stdout.matches("each node: set up otherwise: it belongs to").count(), 1, "{}", output.stdout);
}

#[test]
fn doctors_page_on_three_sound_servers_fits_a_screen() {
    let Some(servers) = servers(3) else { return };
    let place = Place::files();
    test(&place, &url(&servers), "init --trust-empty").output();
    let output = test(&place, &url(&servers), "doctor").output();
    assert_eq!(output.status, 0, "{}", output.stderr);
    assert!(output.stdout.lines().count() <= 24, "{}", output.stdout);
    assert_eq!(output.stdout.matches("each node: ").count(), 8, "{}", output.stdout);
}

#[test]
fn a_ttl_that_is_too_long_names_the_option() {
    let Some(servers) = servers(3) else { return };
    let place = Place::files();
    test(&place, &url(&servers), "init --trust-empty").output();
    let output = test(&place, &url(&servers), "run --ttl 51s k -- true").output();
    assert!(
        output.status == 64 && output.stderr.contains("51 s") && output.stderr.contains("max_ttl="),
        "{}",
        output.stderr
    );
}

#[test]
fn a_warning_is_a_line_like_all_others_and_only_where_the_answer_does_not_tell() {
    let Some(servers) = servers(3) else { return };
    let (place, url) = (Place::files(), url(&servers));
    test(&place, &url, "init --trust-empty").ok();
    servers[0].command(&["DEL", "fencelock:node"]);
    let output = test(&place, &url, "run -n k -- true").output();
    assert_eq!(output.status, 0, "{}", output.stderr);
    assert!(output.stderr.starts_with("fencelock: warning: in quarantine: "), "{}", output.stderr);
    let output = test(&place, &url, "doctor").output();
    assert!(output.stdout.contains("  warning  quarantine "), "{}", output.stdout);
    assert_eq!(output.stderr, "");
    let output = test(&place, &url, "-v doctor").output();
    assert!(output.stderr.contains(" WARN fencelock_backends::"), "{}", output.stderr);
}
