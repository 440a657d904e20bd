use crate::backend::TestBackend;
use crate::running::{hold, wait_for_waiters, wait_until};
use crate::test::{BINARY, Test, shell};
use serde_json::Value;

#[test]
fn a_list_is_sorted_and_aligned() {
    let backend = TestBackend::files();
    Test::new(&backend, "list").run();
    Test::new(&backend, "list --json").stdout("[]\n").run();
    let _holders = [hold(&backend, "nightly-report"), hold(&backend, "b")];
    let list = Test::new(&backend, "list").output().stdout;
    let lines: Vec<_> = list.lines().collect();
    assert_eq!(lines.len(), 3, "{list}");
    assert!(lines[0].starts_with("KEY             HELD FOR  "), "{list}");
    assert!(lines[1].starts_with("b               ") && lines[2].starts_with("nightly-report  "), "{list}");
    let column = lines[0].find("HOLDER").unwrap();
    for line in &lines[1..] {
        let pid = line[column..].split(':').nth(1).unwrap();
        assert!(pid.parse::<u32>().is_ok(), "a holder stands below HOLDER: {list}");
    }
    let json = Test::new(&backend, "list --json").output().stdout;
    let keys: Vec<Value> =
        serde_json::from_str::<Vec<Value>>(&json).unwrap().into_iter().map(|h| h["key"].clone()).collect();
    assert_eq!(keys, ["b", "nightly-report"]);
}

#[test]
fn a_quiet_doctor_reports_problems_only() {
    let backend = TestBackend::files();
    Test::new(&backend, "doctor -q").run();
    Test::new(&backend, "run k -- true").run();
    let locks = backend.file("locks");
    std::fs::set_permissions(&locks, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    Test::new(&backend, "doctor -q")
        .stdout("file:*/locks\n  warning  directory  */locks, user *, mode 777\n*-> other users may delete *\n")
        .run();
}

#[test]
fn doctor_never_refers_to_doctor() {
    let backend = TestBackend::files();
    std::fs::write(backend.file("plain"), "").unwrap();
    let plain = format!("file:{}", backend.file("plain").display());
    let below = format!("{plain}/below");
    for url in ["redis://127.0.0.1:1", "redlock://127.0.0.1:1,127.0.0.1:2,127.0.0.1:3", &below, &plain] {
        let said = Test::new(&backend, "doctor --url").arg(url).says(69, &[]);
        assert!(!said.contains("fencelock doctor"), "{said}");
    }
}

#[test]
fn without_a_url_locks_live_in_a_directory_of_this_user() {
    let backend = TestBackend::files();
    let output = Test::new(&backend, "doctor").without_url().output();
    let user = rustix::process::getuid().as_raw();
    let name = output.stdout.lines().next().unwrap();
    assert!(name.starts_with("file:/") && name.ends_with(&format!("/fencelock-{user}")), "{name}{}", output.stderr);
}

#[test]
fn no_help_shows_a_password() {
    let backend = TestBackend::files();
    for line in ["--help", "run --help", "run", "man run", "man", "completions bash"] {
        let output = Test::new(&backend, line).env("FENCELOCK_URL", "redis://:sesame@h").output();
        assert!(!(output.stdout + &output.stderr).contains("sesame"), "{line}");
    }
    let output =
        Test::new(&backend, "run -v -w 0.1 k true").env("FENCELOCK_URL", "redis://:sesame@127.0.0.1:1").output();
    assert!(!output.stderr.contains("sesame"), "{}", output.stderr);
}

#[test]
fn a_closed_output_is_no_failure() {
    let backend = TestBackend::files();
    let _holder = hold(&backend, "held");
    for (line, status) in [("list", 0), ("status held", 75), ("--json list", 0), ("completions bash", 0), ("man", 0)] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = Test::new(&backend, line).command().stdout(writer).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), stderr.as_str()), (Some(status), ""), "{line}");
    }
}

#[test]
fn a_stdout_that_is_closed_is_no_failure() {
    let backend = TestBackend::files();
    let output = shell(&backend, &format!("{BINARY} status k >&-")).end();
    assert_eq!((output.status, output.stderr.as_str()), (0, ""));
}

#[test]
fn an_answer_that_cannot_be_written_is_74() {
    let backend = TestBackend::files();
    for line in ["status k", "--help", "--version"] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = Test::new(&backend, line).command().stdout(full).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(74), "{line}: {stderr}");
        assert!(stderr.starts_with("fencelock: cannot write the output: "), "{line}: {stderr}");
    }
}

#[test]
fn the_waiters_are_named_in_their_order_only_where_there_is_a_queue() {
    for backend in TestBackend::every_kind() {
        let _holder = hold(&backend, "k");
        let _first = Test::new(&backend, "-q run --label first k -- true").start();
        if backend.redis.is_none() {
            Test::new(&backend, "status --waiters k").stdout("k: held by *\n  who waits is unknown\n").status(75).run();
            let json = Test::new(&backend, "--json status k").output().stdout;
            assert!(
                json.contains(r#""queue":null,"#)
                    && json.contains(r#""waiters":null"#)
                    && json.contains(r#""longest_wait_ms":null"#),
                "{json}"
            );
            continue;
        }
        let queue = |length| {
            let read = || {
                let json: Value = Test::new(&backend, "--json status k").json();
                (json["queue"].as_array().map(Vec::len) == Some(length)).then_some(json)
            };
            wait_until("the queue", read)
        };
        queue(1);
        let _second = Test::new(&backend, "-q run --label second k -- true").start();
        let json = queue(2);
        let labels: Vec<_> = json["queue"].as_array().unwrap().iter().map(|one| &one["owner"]["label"]).collect();
        assert_eq!(labels, ["first", "second"], "{json}");
        assert_eq!((&json["waiters"], &json["queue"][0]["mode"]), (&2.into(), &"exclusive".into()));
        let waited = |at: usize| json["queue"][at]["waited_ms"].as_u64().unwrap();
        assert!(waited(0) >= waited(1) && waited(0) < 120_000, "{json}");
        assert_eq!(json["longest_wait_ms"], json["queue"][0]["waited_ms"]);
        Test::new(&backend, "status --waiters k")
            .stdout("k: held by *, 2 waiting\n  waiting 1: * (first), for *\n  waiting 2: * (second), for *\n")
            .status(75)
            .run();
        let list = Test::new(&backend, "list").output().stdout;
        assert!(list.lines().next().unwrap().contains("WAITING  WAITED"), "{list}");
        let listed: Value = Test::new(&backend, "--json list").json();
        assert!(listed[0]["longest_wait_ms"].as_u64().unwrap() >= waited(0), "{listed}");
        assert_eq!(listed[0]["queue"][0]["owner"]["label"], "first", "{listed}");
        let whole = json.to_string();
        assert!(!whole.contains("\"holder\""), "an id of a waiter becomes the proof of its hold: {whole}");
    }
}

#[test]
fn the_channel_of_a_waiter_is_never_shown() {
    let Some(backend) = TestBackend::redis() else { return };
    let holder = hold(&backend, "k");
    let _waiter = Test::new(&backend, "-q run --label waits k -- true").start();
    wait_for_waiters(&backend, "k", 1);
    let entry = backend.server().command(&["HVALS", "fencelock:{k}:waiters"]);
    let fencelock_testkit::Reply::Array(entries) = entry else { panic!("{entry:?}") };
    let channel = entries[0].text().unwrap().split(' ').nth(2).unwrap().to_owned();
    let secret = channel.strip_prefix("fencelock:wake:").unwrap().to_owned();
    for line in [
        "status --waiters k",
        "-v status --waiters k",
        "--json status k",
        "list",
        "--json list",
        "top --once",
        "--json top --once",
        "break k",
        "doctor --read-only",
        "doctor --report --read-only",
    ] {
        let output = Test::new(&backend, line).output();
        let text = output.stdout + &output.stderr;
        assert!(!text.contains(&secret), "{line}: {text}");
        assert_eq!(text.contains("waits"), line.contains("status") || line.contains("json"), "{line}: {text}");
    }
    holder.finish();
}

#[test]
fn at_most_a_hundred_waiters_are_named_and_the_others_counted() {
    let Some(backend) = TestBackend::redis() else { return };
    Test::new(&backend, "-q acquire --ttl 60s k").ok();
    let far = "9999999999999";
    for n in 0..130 {
        let id = format!("{n:032x}");
        let entry = format!("30000 1 - {id} web-{n}:7 job\t1");
        // The tickets are no times, so it is unknown since when they wait.
        backend.server().command(&["ZADD", "fencelock:{k}:line", &(n + 1).to_string(), &id]);
        backend.server().command(&["HSET", "fencelock:{k}:waiters", &id, &entry]);
        backend.server().command(&["ZADD", "fencelock:{k}:alive", far, &id]);
    }
    let text = Test::new(&backend, "status --waiters k").status(75).output().stdout;
    assert_eq!(text.lines().count(), 102, "{text}");
    assert!(text.contains("\n  waiting 100: web-99:7 (job)\n  and 30 more waiting\n"), "{text}");
    let json: Value = Test::new(&backend, "--json status k").json();
    assert_eq!((&json["waiters"], &json["longest_wait_ms"]), (&130.into(), &Value::Null));
    assert_eq!(json["queue"].as_array().unwrap().len(), 100);
}

#[test]
fn the_number_of_waiters_of_a_key_that_cannot_be_read_is_unknown() {
    let Some(backend) = TestBackend::redis() else { return };
    backend.server().command(&["SET", "fencelock:{k}:fence", "7"]);
    for n in 0..32 {
        let id = format!("{n:032x}");
        backend.server().command(&["ZADD", "fencelock:{k}:line", &(n + 1).to_string(), &id]);
        backend.server().command(&["HSET", "fencelock:{k}:waiters", &id, "of a later version"]);
        backend.server().command(&["ZADD", "fencelock:{k}:alive", "9999999999999", &id]);
    }
    for (line, cells) in [
        ("list", "k    ?         -        -        -       "),
        ("top --once", "k    ?         -        -        -        -       "),
    ] {
        Test::new(&backend, line).says(69, &[cells]);
    }
    for line in ["--json list", "--json top --once"] {
        let output = Test::new(&backend, line).output().stdout;
        assert!(output.contains(r#""waiters":null"#) && output.contains(r#""held":null"#), "{line}: {output}");
    }
}
