//! What docs/en/serve.md promises.

mod client;
mod page;

use crate::backend::TestBackend;
use crate::running::{Running, is_alive, wait_until};
use crate::test::{BINARY, Test, shell};
use client::{Server, Session, refusal, request};
use fencelock_testkit::Reply;
use page::Schema;
use serde_json::{Value, json};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use tokio::time::Instant;

#[test]
fn answers_come_as_they_are_ready() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "");
    let (mut a, mut b) = (server.session(), server.session());
    let hold = a.lock("k");
    let waiting = b.ask("lock", json!({ "key": "k" }));
    let other = b.ask("lock", json!({ "key": "other" }));
    assert_eq!(b.next().unwrap()["id"], other, "the first request still waits");
    a.ok("release", json!({ "hold": hold }));
    let granted = b.next().unwrap();
    assert_eq!((&granted["id"], &granted["result"]["key"]), (&json!(waiting), &json!("k")));
}

#[test]
fn each_kind_of_lock_is_granted_and_released() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "");
    let mut a = server.session();
    let kinds = [
        ("lock", json!({ "key": "one", "ttl": 20, "label": "nightly", "max_hold": 600 })),
        ("lock", json!({ "keys": ["x", "y"] })),
        ("lock", json!({ "key": "read", "mode": "shared" })),
        ("lock", json!({ "key": "permits", "limit": 3, "permits": 2 })),
        ("lock", json!({ "key": "slots", "slots": 2 })),
        ("elect", json!({ "key": "leader", "label": "10.0.0.7" })),
        ("once", json!({ "key": "job", "window": "1h" })),
    ];
    let results = kinds.map(|(method, params)| a.ok(method, params));
    let held = a.ok("list", json!({}));
    let keys: Vec<_> = held["locks"].as_array().unwrap().iter().map(|lock| lock["key"].as_str().unwrap()).collect();
    let slot = results[4]["slot"].as_u64().unwrap();
    assert_eq!(keys, ["job", "leader", "one", "permits", "read", &format!("slots#{slot}"), "x", "y"]);
    let session = &held["locks"][0]["sessions"][0];
    assert_eq!(*session, json!({ "client": "test/1", "pid": std::process::id(), "watched": true }));
    for (number, result) in (1_u64..).zip(&results) {
        assert_eq!(result["hold"], number);
        let tokens = result["tokens"].as_array().cloned().unwrap_or_else(|| vec![result["token"].clone()]);
        assert!(tokens.iter().all(Value::is_u64), "{result}");
        let left = a.ok("remaining", json!({ "hold": number }))["remaining"].as_f64().unwrap();
        assert!(left > 0.0 && left < 30.0, "{left}");
        assert_eq!(a.ok("release", json!({ "hold": number })), json!({}));
        assert_eq!(a.refused("release", json!({ "hold": number })).0, 64, "a number is never used again");
    }
    assert_eq!(a.ok("list", json!({}))["locks"], json!([]));
}

#[test]
fn work_is_done_once_per_window() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "");
    let mut a = server.session();
    // The test may begin at the end of a window, and no two of its runs are in three.
    let job = json!({ "key": "job", "window": 86_400 * 400 });
    let run = a.ok("once", job.clone());
    assert_eq!(run["done"], false);
    a.ok("release", json!({ "hold": run["hold"], "done": false }));
    let run = a.ok("once", job.clone());
    assert_eq!(run["done"], false, "a run that has failed does not count");
    a.ok("release", json!({ "hold": run["hold"], "done": true }));
    let done = a.ok("once", job);
    assert_eq!((&done["done"], &done["token"]), (&json!(true), &run["token"]));
    let hold = a.lock("k");
    assert_eq!(a.refused("release", json!({ "hold": hold, "done": true })).0, 64);
    a.ok("remaining", json!({ "hold": hold }));
}

#[test]
fn a_busy_key_names_its_holder() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "");
    let (mut a, mut b) = (server.session(), server.session());
    a.ok("lock", json!({ "key": "k", "label": "nightly" }));
    for wait in [0.0, 0.2] {
        let (code, data) = b.refused("lock", json!({ "key": "k", "wait": wait }));
        assert_eq!((code, &data["kind"], &data["key"]), (75, &json!("busy"), &json!("k")));
        assert_eq!(data["holder"]["label"], "nightly", "{data}");
        assert!(data["waited"].as_f64().unwrap() >= wait && data["remaining"].is_f64(), "{data}");
    }
}

#[test]
fn waiters_of_all_sessions_are_served_in_their_order() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "");
    let mut first = server.session();
    let mut hold = first.lock("k");
    let mut waiting: Vec<_> = (0..6).map(|_| server.session()).collect();
    for session in &mut waiting {
        session.ask("lock", json!({ "key": "k" }));
        // Another request of the same session is read after it.
        session.write("{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"remaining\",\"params\":{\"hold\":9}}\n");
        assert_eq!(session.next().unwrap()["id"], "x");
    }
    let mut token = 0;
    let mut before = first;
    for mut session in waiting {
        before.ok("release", json!({ "hold": hold }));
        let granted = session.next().unwrap();
        hold = granted["result"]["hold"].as_u64().unwrap();
        let next = granted["result"]["token"].as_u64().unwrap();
        assert!(next > token, "{granted}");
        (token, before) = (next, session);
    }
}

#[test]
fn a_lock_that_sessions_pass_on_needs_no_request_to_the_backend() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "");
    let (mut a, mut b) = (server.session(), server.session());
    let sent = || {
        let Reply::Text(stats) = backend.server().command(&["INFO", "stats"]) else { panic!("no text") };
        stats.split_once("total_commands_processed:").unwrap().1.lines().next().unwrap().parse::<u64>().unwrap()
    };
    let mut hold = a.lock("k");
    let (before, begun) = (sent(), Instant::now());
    for _ in 0..100 {
        b.ask("lock", json!({ "key": "k" }));
        // It waits by now: requests of a session are read in their order.
        b.ask("cancel", json!({ "id": "nothing" }));
        assert_eq!(b.next().unwrap()["result"], json!({}));
        a.ok("release", json!({ "hold": hold }));
        hold = b.next().unwrap()["result"]["hold"].as_u64().unwrap();
        std::mem::swap(&mut a, &mut b);
    }
    // A request for each grant and each release would be two hundred. Each second the lease is renewed, and other clients may get a turn.
    let (more, seconds) = (sent() - before, begun.elapsed().as_secs());
    assert!(more < 150 + 10 * seconds, "{more} commands for 100 grants in {seconds} s");
}

#[test]
fn a_cancelled_request_is_answered_and_leaves_nothing() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "");
    let (mut a, mut b) = (server.session(), server.session());
    let hold = a.lock("k");
    let waiting = b.ask("lock", json!({ "key": "k" }));
    let cancel = b.ask("cancel", json!({ "id": waiting }));
    let answers = [b.next().unwrap(), b.next().unwrap()];
    assert_eq!((&answers[0]["id"], answers[0]["error"]["code"].as_i64()), (&json!(waiting), Some(-32800)));
    assert_eq!((&answers[1]["id"], &answers[1]["result"]), (&json!(cancel), &json!({})));
    a.wait_for_waiters("k", 0);
    a.ok("release", json!({ "hold": hold }));
    assert!(a.is_free("k"));
    assert_eq!(b.ok("cancel", json!({ "id": "unknown" })), json!({}));
}

#[test]
fn a_cancel_that_comes_too_late_is_answered_with_the_hold() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "");
    let mut a = server.session();
    let id = a.ask("lock", json!({ "key": "k" }));
    let granted = a.next().unwrap()["result"].take();
    let late = a.ok("cancel", json!({ "id": id }));
    assert_eq!((&late["hold"], &late["key"], &late["token"]), (&granted["hold"], &granted["key"], &granted["token"]));
    a.ok("remaining", json!({ "hold": late["hold"] }));
}

#[test]
fn a_cancel_at_the_moment_of_the_grant_has_one_of_two_answers() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "");
    let (mut a, mut b) = (server.session(), server.session());
    let mut granted = 0;
    for round in 0..60 {
        let hold = a.lock("k");
        let waiting = b.ask("lock", json!({ "key": "k" }));
        a.ask("release", json!({ "hold": hold }));
        std::thread::sleep(std::time::Duration::from_micros(100 * round));
        let cancel = b.ask("cancel", json!({ "id": waiting }));
        assert_eq!(a.next().unwrap()["result"], json!({}));
        let (first, second) = (b.next().unwrap(), b.next().unwrap());
        assert_eq!((&first["id"], &second["id"]), (&json!(waiting), &json!(cancel)), "{first} {second}");
        match first["result"]["hold"].as_u64() {
            Some(hold) => {
                granted += 1;
                assert_eq!(second["result"]["hold"], hold);
                b.ok("release", json!({ "hold": hold }));
            }
            None => assert_eq!((refusal(&first).0, &second["result"]), (-32800, &json!({}))),
        }
    }
    a.wait_for_free("k");
    assert!(granted > 0, "every cancel came in time");
}

#[test]
fn the_end_of_a_connection_releases_its_locks_and_withdraws_its_requests() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "");
    let (mut a, mut b, mut c) = (server.session(), server.session(), server.session());
    a.lock("k");
    b.ask("lock", json!({ "key": "k" }));
    c.wait_for_waiters("k", 1);
    drop(b);
    c.wait_for_waiters("k", 0);
    drop(a);
    c.lock("k");
}

/// A client that gives its connection to a child.
#[test]
#[ignore = "a process of another test"]
fn a_client_process() {
    let Some(socket) = std::env::var_os("SERVE_TEST_SOCKET") else { return };
    let stream = UnixStream::connect(socket).unwrap();
    let mut child =
        Command::new("sleep").arg("1000").stdin(OwnedFd::from(stream.try_clone().unwrap())).spawn().unwrap();
    let mut session = Session::of(stream);
    session.ok("hello", json!({ "protocol": 1 }));
    session.lock("k");
    println!("child {}.", child.id());
    child.wait().unwrap();
}

#[test]
fn the_death_of_a_client_releases_its_locks_although_a_child_has_its_connection() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "");
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["serve::a_client_process", "--exact", "--ignored", "--nocapture"]);
    let mut client = Running::start(
        {
            command.env("SERVE_TEST_SOCKET", &server.socket);
            command
        },
        "",
    );
    let line = client.wait_for("child ");
    let child = line.split("child ").nth(1).unwrap().trim_end_matches('.').to_owned();
    let mut a = server.session();
    assert!(!a.is_free("k"));
    client.kill("KILL");
    a.lock("k");
    assert!(is_alive(&child), "it still has the connection");
    shell(&backend, &format!("kill -9 {child}")).end();
}

#[test]
fn over_standard_streams_the_parent_is_the_client() {
    let Some(backend) = TestBackend::redis() else { return };
    let hello = r#"{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":1}}"#;
    let lock = r#"{"jsonrpc":"2.0","id":2,"method":"lock","params":{"key":"k"}}"#;
    // Its standard input stays open after the end of the shell: this test has it.
    let mut parent = shell(&backend, &format!("exec 3<&0; {BINARY} serve --stdio <&3 & echo $!; wait"));
    let pid = parent.wait_for("");
    parent.say(&format!("{hello}\n{lock}\n"));
    parent.wait_for(r#""hold":1"#);
    for ignored in ["INT", "HUP"] {
        shell(&backend, &format!("kill -{ignored} {pid}")).end();
    }
    parent.say("{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"remaining\",\"params\":{\"hold\":1}}\n");
    parent.wait_for(r#""id":3"#);
    parent.kill("KILL");
    wait_until("the end of the server", || (!is_alive(&pid)).then_some(()));
    Test::new(&backend, "-q status k").run();
}

#[test]
fn answers_that_are_ready_are_written_after_the_end_of_the_input() {
    let Some(backend) = TestBackend::redis() else { return };
    let output = Test::new(&backend, "serve --stdio").stdin("[]\nnothing\n").output();
    let answers: Vec<Value> = output.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let codes: Vec<_> = answers.iter().map(|answer| refusal(answer).0).collect();
    assert_eq!((codes, output.status), (vec![-32600, -32700], 0), "{}", output.stderr);
}

#[test]
fn a_lost_lock_is_told_and_counts_as_lost_from_then_on() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "");
    let mut a = server.session();
    let hold = a.ok("lock", json!({ "keys": ["k", "l"], "ttl": 3 }))["hold"].take();
    Test::new(&backend, "break --yes l").output();
    let told = a.next().unwrap();
    assert_eq!(told["method"], "lost", "{told}");
    let params = &told["params"];
    assert_eq!((&params["hold"], &params["key"], &params["keys"]), (&hold, &json!("l"), &json!(["k", "l"])));
    let cause = params["cause"].as_str().unwrap();
    for method in ["remaining", "remaining", "release"] {
        let (code, data) = a.refused(method, json!({ "hold": hold }));
        assert_eq!((code, &data["key"], &data["cause"]), (76, &json!("l"), &json!(cause)), "{method}");
    }
    assert_eq!(a.refused("release", json!({ "hold": hold })).0, 64);
    a.wait_for_free("k");
}

#[test]
fn an_owner_has_one_hold() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "");
    let (mut a, mut b) = (server.session(), server.session());
    let other = a.lock("k");
    let mine = json!({ "key": "k", "owner": "me" });
    let ids = [b.ask("lock", mine.clone()), b.ask("lock", mine.clone())];
    a.wait_for_waiters("k", 1);
    a.ok("release", json!({ "hold": other }));
    let answers = [b.next().unwrap(), b.next().unwrap()];
    assert!(answers.iter().all(|answer| ids.contains(&answer["id"].as_u64().unwrap())));
    let hold = answers[0]["result"]["hold"].clone();
    assert!(hold.is_u64() && answers[1]["result"]["hold"] == hold, "{answers:?}");
    assert_eq!(b.ok("lock", mine)["hold"], hold);
    assert_eq!(b.refused("lock", json!({ "key": "k", "owner": "another", "wait": 0 })).0, 75);
    b.ok("release", json!({ "hold": hold }));
    assert!(a.is_free("k"), "one release ends it");
}

#[test]
fn a_request_that_cannot_be_used_is_refused_by_name() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "");
    let mut new = Session::of(UnixStream::connect(&server.socket).unwrap());
    assert_eq!(new.refused("lock", json!({ "key": "k" })).0, -32600, "hello comes first");
    let (code, data) = new.refused("hello", json!({ "protocol": 2 }));
    assert_eq!((code, &data["protocols"]), (64, &json!([1])));
    let mut a = server.session();
    for (code, method, params) in [
        (-32601, "unlock", json!({})),
        // Of keepers.
        (-32601, "holds", json!({})),
        (-32602, "lock", json!({ "key": "k", "waitt": 0 })),
        (-32602, "lock", json!({ "key": 7 })),
        (-32602, "lock", json!(["k"])),
        (-32602, "release", json!({ "hold": -1 })),
        (64, "lock", json!({})),
        (64, "lock", json!({ "key": "k", "keys": ["k"] })),
        (64, "lock", json!({ "keys": [] })),
        (64, "lock", json!({ "keys": ["k", "k"] })),
        (64, "lock", json!({ "key": "" })),
        (64, "lock", json!({ "key": "k", "ttl": -1 })),
        (64, "lock", json!({ "key": "k", "ttl": 1e300 })),
        (64, "lock", json!({ "key": "k", "permits": 1 })),
        (64, "lock", json!({ "key": "k", "limit": 2, "permits": 3 })),
        (64, "lock", json!({ "key": "k", "limit": 2, "mode": "shared" })),
        (64, "lock", json!({ "key": "k", "slots": 0 })),
        (64, "lock", json!({ "key": "k", "owner": "two words" })),
        (64, "once", json!({ "key": "k", "window": 0 })),
        (64, "remaining", json!({ "hold": 1 })),
    ] {
        let answer = a.call(method, params.clone());
        assert_eq!(refusal(&answer).0, code, "{method} {params}: {answer}");
        let is_known = Schema::read().accepts(&request(1, method, &params));
        assert!(!is_known || code == 64, "the schema accepts {method} {params}");
    }
    for (code, line) in [
        (-32700, "{"),
        (-32700, "\u{7f}"),
        (-32600, "[]"),
        (-32600, "7"),
        (-32600, r#"{"id":1,"method":"list"}"#),
        (-32600, r#"{"jsonrpc":"2.0","id":1.5,"method":"list"}"#),
        (-32600, r#"{"jsonrpc":"2.0","id":null,"method":"list"}"#),
        (-32600, r#"{"jsonrpc":"2.0","id":1,"method":7}"#),
        (-32602, r#"{"jsonrpc":"2.0","id":1,"method":"lock","params":{"key":"k","key":"l"}}"#),
        (-32602, r#"{"jsonrpc":"2.0","id":1,"method":"lock","params":["k"]}"#),
        (-32600, r#"{"jsonrpc":"2.0","id":1,"method":"lock","method":"lock","params":{"key":"k"}}"#),
        (-32600, r#"["2.0",1,"list",{}]"#),
    ] {
        a.write(format!("{line}\n"));
        assert_eq!(refusal(&a.next().unwrap()).0, code, "{line}");
    }
    a.write("{\"jsonrpc\":\"2.0\",\"method\":\"lock\",\"params\":{\"key\":\"k\"}}\n");
    assert!(a.is_free("k"), "a notification is no request");
}

#[test]
fn whoever_exceeds_a_limit_is_refused_or_cut_off_and_others_feel_nothing() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "--connections 4");
    let mut good = server.session();
    let hold = good.lock("k");
    let limit = |answer: &Value| (refusal(answer).0, refusal(answer).1["limit"].clone());

    let mut many = server.session();
    let own = many.lock("own");
    for _ in 0..1025 {
        many.ask("lock", json!({ "key": "k" }));
    }
    assert_eq!(limit(&many.next().unwrap()), (-32001, json!("requests")));
    many.ok("release", json!({ "hold": own }));
    drop(many);

    let mut long = server.session();
    long.write("x".repeat(65_536));
    assert_eq!(refusal(&long.next().unwrap()).0, -32600);
    assert_eq!(long.next(), None, "the connection is closed");

    let mut deaf = server.session().stream.into_inner();
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":\"{}\",\"method\":\"none\"}}\n", "i".repeat(100));
    let block = line.repeat(1000);
    while deaf.write_all(block.as_bytes()).is_ok() {}
    drop(deaf);

    let mut sessions: Vec<_> = (0..3).map(|_| server.session()).collect();
    let mut fifth = Session::of(UnixStream::connect(&server.socket).unwrap());
    assert_eq!(limit(&fifth.next().unwrap()), (-32001, json!("connections")));
    assert_eq!(fifth.next(), None);
    sessions[0].lock("another");
    good.ok("release", json!({ "hold": hold }));
}

#[test]
fn a_server_that_is_stopped_lets_its_sessions_release() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "--grace 1h");
    let (mut a, mut b, mut idle) = (server.session(), server.session(), server.session());
    let (k, l) = (a.lock("k"), b.lock("l"));
    let waiting = b.ask("lock", json!({ "key": "k" }));
    a.wait_for_waiters("k", 1);
    // It knows that this is lost, and need not release it.
    idle.ok("lock", json!({ "key": "m", "max_hold": 0.05 }));
    assert_eq!(idle.next().unwrap()["method"], "lost");
    assert_eq!(a.ok("status", json!({ "key": "m" }))["sessions"], json!([]));
    server.process.kill("TERM");
    for session in [&mut a, &mut b, &mut idle] {
        let ending = session.next().unwrap();
        assert!(ending["method"] == "ending" && ending["params"]["grace"].as_f64().unwrap() > 3000.0, "{ending}");
    }
    assert_eq!(idle.next(), None);
    assert_eq!(a.refused("lock", json!({ "key": "new" })).0, 71);
    let refused = b.next().unwrap();
    assert_eq!((&refused["id"], refusal(&refused).0), (&json!(waiting), 71));
    let mut late = Session::of(UnixStream::connect(&server.socket).unwrap());
    let told = late.next().unwrap();
    assert_eq!((&told["id"], refusal(&told).0, late.next()), (&Value::Null, 71, None), "{told}");
    let next = Server::start(&backend, "");
    wait_until("its successor", || {
        let mut stream = UnixStream::connect(&server.socket).ok()?;
        // The server that ends may hang up before it is asked.
        writeln!(stream, "{}", request(1, "hello", &json!({ "protocol": 1 }))).ok()?;
        Session::of(stream).next()?.get("result").cloned()
    });
    a.ok("release", json!({ "hold": k }));
    assert_eq!(a.next(), None);
    Test::new(&backend, "-q status l").status(75).run();
    b.ok("remaining", json!({ "hold": l }));
    // The second signal does not wait.
    server.process.kill("TERM");
    assert_eq!(b.next(), None);
    assert_eq!(server.process.end().status, 0);
    Test::new(&backend, "-q status l").run();
    next.session().lock("new");
    next.process.kill("TERM");
    assert_eq!(next.process.end().status, 0);
    assert!(!next.socket.exists());
}

#[test]
fn the_grace_period_ends_the_holds_that_are_left() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "--grace 0.5");
    let mut a = server.session();
    a.lock("k");
    server.process.kill("TERM");
    assert_eq!(a.next().unwrap()["method"], "ending");
    assert_eq!(a.next(), None);
    assert_eq!(server.process.end().status, 0);
    Test::new(&backend, "-q status k").run();
}

#[test]
fn the_socket_of_a_dead_server_is_replaced_and_nothing_else() {
    let Some(backend) = TestBackend::redis() else { return };
    let server = Server::start(&backend, "--mode 0660");
    assert_eq!(server.socket.metadata().unwrap().permissions().mode() & 0o777, 0o660);
    let line = format!("serve --listen unix:{}", server.socket.display());
    Test::new(&backend, &line).says(64, &["another server listens there"]);
    server.process.kill("KILL");
    assert_ne!(server.process.end().status, 0);
    assert!(server.socket.metadata().unwrap().file_type().is_socket());
    let next = Server::start(&backend, "");
    assert_eq!(next.socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    // Its file may have been replaced: that is not removed.
    std::fs::remove_file(&next.socket).unwrap();
    std::fs::write(&next.socket, "data").unwrap();
    next.process.kill("TERM");
    assert_eq!(next.process.end().status, 0);
    Test::new(&backend, &line).says(64, &["is no socket, and is not replaced"]);
    assert_eq!(std::fs::read_to_string(&server.socket).unwrap(), "data");
}

#[test]
fn only_sockets_are_listened_on() {
    let backend = TestBackend::files();
    Test::new(&backend, "serve --listen tcp:127.0.0.1:7").says(64, &["over a Unix socket only"]);
    Test::new(&backend, "serve --listen systemd").says(64, &["systemd has passed no socket"]);
    Test::new(&backend, "serve").says(64, &["--stdio", "--listen"]);
}

#[test]
fn systemd_may_pass_the_socket() {
    let Some(backend) = TestBackend::redis() else { return };
    let socket = backend.file("systemd.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let script =
        format!("exec 3<&0 0</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec {BINARY} serve --listen systemd");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).env("FENCELOCK_URL", backend.url()).stdin(Stdio::from(OwnedFd::from(listener)));
    let mut process = command.spawn().unwrap();
    let server = Session::of(UnixStream::connect(&socket).unwrap());
    let mut session = server;
    session.ok("hello", json!({ "protocol": 1 }));
    session.lock("k");
    shell(&backend, &format!("kill -TERM {}", process.id())).end();
    assert_eq!(session.next().unwrap()["method"], "ending");
    drop(session);
    assert!(process.wait().unwrap().success());
    assert!(socket.exists(), "it belongs to systemd");
}
