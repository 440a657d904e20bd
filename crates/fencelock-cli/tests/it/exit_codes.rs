//! One test for each row of the table in `fencelock run --help`.

use crate::backend::TestBackend;
use crate::running::hold;
use crate::test::{BINARY, Test, shell};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn the_exit_code_is_the_commands() {
    let backend = TestBackend::files();
    for code in [0, 1, 2, 3, 64, 75, 76, 127, 128, 200, 255] {
        Test::script(&backend, "k", &format!("exit {code}")).status(code).run();
    }
}

#[test]
fn a_command_that_died_of_a_signal_gives_128_and_its_number() {
    let backend = TestBackend::files();
    for (signal, code) in [("KILL", 137), ("TERM", 143), ("INT", 130), ("SEGV", 139), ("USR1", 138)] {
        Test::script(&backend, "k", &format!("kill -{signal} $$")).status(code).run();
    }
}

#[test]
fn usage_is_64() {
    let backend = TestBackend::files();
    for line in [
        "",
        "run",
        "run k",
        "run k --",
        "run --also",
        "nonsense",
        "lock k",
        "status",
        "status a b",
        "completions tcsh",
        "help nonsense",
        "run --nonsense k -- true",
        "run --guard-group 1",
        "run --guard-command front k -- true",
        "--guard-group 1",
        "--guard-command front touch started",
        "--guard-command",
        "run -w nan k -- true",
        "run -w -1 k -- true",
        "run -n -w 1 k -- true",
        "run -E 256 k -- true",
        "run --ttl 1ms k -- true",
        "run --ttl 0 k -- true",
        "run --ttl 400d k -- true",
        "run --ttl 10s --grace 10s k -- true",
        "run --hold-for 2s --max-hold 1s k -- true",
        "run --max-hold 0 k -- true",
        "run -z k -- true",
        "run k -z true",
        "run a b -- touch ran",
        "run a b --",
        "run -s -x k -- true",
        "run -x --permits 3 k -- true",
        "run --permits 3 --weight 0 k -- true",
        "run --permits three k -- true",
        "run --permits 3 a --also b -- true",
        "run --offset 1h k -- true",
        "run --once-per 1h --offset 1h k -- true",
        "run --min-interval 2h --offset 1h k -- true",
        "run --min-interval 2h --once-per 1h k -- true",
        "run --min-interval 0 k -- true",
        "run --url nonsense k -- true",
        "run --url gopher://x k -- true",
        "run --url memory: k -- true",
        "run -- echo hi",
        "run -n --ttl 5s -- echo hi",
        "renew k --holder nonsense",
        "release k",
        "man nonsense",
        "-q -v list",
    ] {
        let output = Test::new(&backend, line).output();
        assert_eq!((output.status, output.stdout.as_str()), (64, ""), "{line}: {}", output.stderr);
        // Not that of the parser.
        assert!(output.stderr.starts_with("fencelock: ") && !output.stderr.contains("error"), "{}", output.stderr);
    }
}

#[test]
fn an_empty_url_is_64_and_no_other_backend() {
    let backend = TestBackend::files();
    for url in ["", " ", "\t"] {
        for line in ["run -n k -- true", "status k", "list", "wait k", "doctor", "init"] {
            Test::new(&backend, line).env("FENCELOCK_URL", url).says(64, &["fencelock: the URL is empty: "]);
        }
        Test::new(&backend, "run --url").arg(url).arg("k").arg("true").says(64, &["the URL is empty"]);
    }
    Test::new(&backend, "completions bash").env("FENCELOCK_URL", "").says(0, &[]);
}

#[test]
fn the_internal_watcher_mode_refuses_other_callers() {
    let backend = TestBackend::files();
    Test::new(&backend, "--guard-command back touch started").says(64, &["internal to `fencelock run`"]);
    assert!(!backend.dir().join("started").exists());
}

#[test]
fn a_directory_that_depends_on_where_and_how_the_program_is_started_is_64() {
    let backend = TestBackend::files();
    let absolute = format!("use file:{}/locks", backend.dir().canonicalize().unwrap().display());
    for (url, advice) in [
        ("file:locks", &*absolute),
        ("file:~/locks", "~ is not expanded"),
        ("file:$HOME/locks", "variables are not expanded"),
        ("file:/tmp/locks?prefix=a", "it has no options"),
    ] {
        for line in ["run k -- true", "list", "doctor"] {
            Test::new(&backend, line).env("FENCELOCK_URL", url).says(64, &[advice]);
        }
    }
    assert_eq!(fs::read_dir(backend.dir()).unwrap().count(), 0, "nothing was created");
}

#[test]
fn a_key_that_cannot_be_used_is_64_and_named() {
    Test::new(&TestBackend::files(), "run")
        .arg("a\nb")
        .arg("true")
        .stderr("fencelock: a lock's key must not contain '\\n' (control character): \"a\\nb\"\n")
        .status(64)
        .run();
}

#[test]
fn a_lock_file_or_directory_that_cannot_be_opened_is_69_in_all_commands() {
    let in_place_of_file = TestBackend::files();
    for name in ["k", "k%230", "k%231"] {
        fs::create_dir_all(in_place_of_file.file(&format!("locks/{name}.lock"))).unwrap();
    }
    let in_place_of_directory = TestBackend::files();
    fs::write(in_place_of_directory.file("locks"), "").unwrap();
    let holder = format!("--holder {}", "0".repeat(32));
    for backend in [in_place_of_file, in_place_of_directory] {
        for line in [
            "run k -- true",
            "run -n k -- true",
            "run -w 1 --slots 2 k -- true",
            "run --shared k --also j -- true",
            "elect k -- true",
            "elect --observe k",
            "status k",
            "wait k",
            "list",
            "doctor",
            "break k",
            "resize k --permits 2",
            &format!("renew k {holder}"),
            &format!("release k {holder}"),
        ] {
            let output = Test::new(&backend, line).output();
            assert_eq!(output.status, 69, "{line}: {}{}", output.stdout, output.stderr);
            let said = output.stderr + &output.stdout;
            assert!(said.contains("a lock file is") || said.contains("is not a directory"), "{line}: {said}");
        }
    }
}

#[test]
fn a_list_names_what_cannot_be_opened_beside_the_held_locks() {
    let backend = TestBackend::files();
    fs::create_dir_all(backend.file("locks/a.lock")).unwrap();
    let _holder = hold(&backend, "k");
    let output = Test::new(&backend, "list").output();
    assert_eq!((output.status, output.stdout.lines().count()), (69, 3), "{}", output.stdout);
    let unknown = output.stdout.lines().find(|line| line.contains("unknown (file:")).unwrap();
    assert!(!unknown.contains("exclusive"), "{unknown}");
    let json: serde_json::Value = Test::new(&backend, "--json list").json();
    assert!(json[0]["held"].is_null() && json[1]["held"] == true, "{json}");
    assert!(json[0]["mode"].is_null() && json[0]["holder_count"] == 0 && json[1]["mode"] == "exclusive", "{json}");
    Test::new(&backend, "list j").run();
}

#[test]
fn a_lock_that_no_replica_confirms_is_69_and_named() {
    let Some(backend) = TestBackend::redis() else { return };
    let url = format!("{}&acks=2&acks_timeout=50", backend.url());
    let output = Test::new(&backend, "run").arg("--url").arg(&url).arg("k").arg("--").arg("true").output();
    assert_eq!(output.status, 69, "{}", output.stderr);
    let expected = "not replicated: 0 of 2 replicas confirmed (within 50 ms); `fencelock doctor` shows the number of replicas, \
                and acks= in the URL sets how many must confirm\n";
    assert!(output.stderr.starts_with("fencelock: the lock on k does not count: redis://"), "{}", output.stderr);
    assert!(output.stderr.ends_with(expected), "{}", output.stderr);
    assert_eq!(backend.server().command(&["EXISTS", "k"]), fencelock_testkit::Reply::Int(0), "the lock was released");
}

#[test]
fn busy_is_75_and_names_the_key_and_its_holder() {
    let backend = TestBackend::files();
    let _holder = hold(&backend, "--label nightly k");
    Test::new(&backend, "run -n k -- true")
        .stderr("fencelock: k is held by *:* (nightly), *; use -w to wait longer\n")
        .status(75)
        .run();
}

#[test]
fn a_wait_that_ran_out_is_75_and_says_how_long_it_was() {
    let backend = TestBackend::files();
    let _holder = hold(&backend, "k");
    Test::new(&backend, "run -w 2 k -- true")
        .stderr(
            "fencelock: waiting for k, held by *:*\n\
             fencelock: k is held by *:*; gave up after * and * tries; use -w to wait longer\n",
        )
        .status(75)
        .run();
}

/// No file may grow, as on a full disk. A claim that fails is repeated.
#[test]
fn a_record_that_is_lost_is_warned_of_once_and_only_with_the_lock() {
    let backend = TestBackend::files();
    fs::create_dir(backend.file("locks")).unwrap();
    fs::write(backend.file("locks/k.lock"), "damaged").unwrap();
    let warnings = |text: &str| text.matches("the record of the last hold is lost").count();
    let full = shell(&backend, &format!("trap '' XFSZ; ulimit -f 0; exec {BINARY} run -w 1 k -- true")).end();
    assert!(full.status == 69 && full.stderr.contains("free some space"), "{}", full.stderr);
    assert_eq!(warnings(&full.stderr), 0, "{}", full.stderr);
    let output = Test::new(&backend, "run k -- true").output();
    assert!(output.status == 0 && warnings(&output.stderr) == 1, "{}", output.stderr);
}

#[test]
fn a_command_that_cannot_be_executed_is_126() {
    let backend = TestBackend::files();
    fs::write(backend.file("plain"), "no program").unwrap();
    fs::set_permissions(backend.file("plain"), fs::Permissions::from_mode(0o644)).unwrap();
    Test::new(&backend, "run k -- ./plain")
        .stderr("fencelock: cannot run ./plain: Permission denied (os error 13)\n")
        .status(126)
        .run();
}

#[test]
fn a_command_that_does_not_exist_is_127_and_the_lock_is_free_again() {
    let backend = TestBackend::files();
    Test::new(&backend, "run k -- no-such-command-here")
        .stderr("fencelock: cannot run no-such-command-here: command not found\n")
        .status(127)
        .run();
    Test::new(&backend, "status k").stdout("k: free\n").run();
}

#[test]
fn a_server_that_wants_a_password_is_64_and_says_where_to_put_it() {
    let Some(backend) = TestBackend::redis() else { return };
    backend.server().command(&["CONFIG", "SET", "requirepass", "sesame"]);
    Test::new(&backend, "run k -- true")
        .stderr("fencelock: redis://127.0.0.1:*: access denied (NOAUTH: *[USER]:PASSWORD@HOST)\n")
        .status(64)
        .run();
    let open = backend.url().replace("redis://", "redis://:sesame@");
    Test::new(&backend, "run k -- true").env("FENCELOCK_URL", &open).run();
}
