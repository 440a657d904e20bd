use crate::backend::TestBackend;
use crate::running::wait_until;
use crate::test::Test;
use serde_json::Value;

#[test]
fn what_acquire_prints_is_what_release_takes() {
    let Some(backend) = TestBackend::redis() else { return };
    let holder = Test::new(&backend, "acquire k").output().stdout;
    assert_eq!(holder.trim_end().len(), 32, "{holder:?}");
    Test::new(&backend, "-q status k").status(75).run();
    Test::new(&backend, &format!("release k --holder {holder}")).stdout("k: released\n").run();
    Test::new(&backend, "-q status k").run();
}

#[test]
fn json_has_everything_that_a_script_needs() {
    let Some(backend) = TestBackend::redis() else { return };
    let output = Test::new(&backend, "acquire --json --ttl 20s k").output();
    let answer: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(answer["key"], "k");
    assert_eq!(answer["ttl_ms"], 20_000);
    assert_eq!(answer["holder"].as_str().unwrap().len(), 32);
    assert!(answer["fence"].as_u64().unwrap() > 0);
    let left = answer["expires_in_ms"].as_u64().unwrap();
    assert!(left > 10_000 && left <= 20_000, "{left}");
}

#[test]
fn a_renewal_gives_it_more_time() {
    let Some(backend) = TestBackend::redis() else { return };
    let holder = Test::new(&backend, "acquire --ttl 20s k").output().stdout;
    Test::new(&backend, &format!("renew k --ttl 10m --holder {holder}"))
        .stdout("k: held for at least another 10 min\n")
        .run();
    let status = Test::new(&backend, "status --json k").output().stdout;
    let status: Value = serde_json::from_str(&status).unwrap();
    assert!(status["expires_in_ms"].as_u64().unwrap() > 500_000, "{status}");
}

#[test]
fn a_hold_that_is_over_cannot_be_renewed_or_released() {
    let Some(backend) = TestBackend::redis() else { return };
    let holder = Test::new(&backend, "acquire k").output().stdout;
    Test::new(&backend, "-q break --yes k").run();
    Test::new(&backend, &format!("renew k --holder {holder}"))
        .stderr("fencelock: k is no longer held by that holder: it was released, or its lease has ended\n")
        .status(76)
        .run();
    Test::new(&backend, &format!("release k --holder {holder}"))
        .stderr("fencelock: k is no longer held by that holder: it was released, or its lease has ended\n")
        .status(76)
        .run();
    let output = Test::new(&backend, &format!("--json release k --holder {holder}")).output();
    let answer: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((output.status, &answer["released"]), (76, &Value::Bool(false)));
}

#[test]
fn the_wrong_proof_releases_nothing_and_names_the_holder() {
    let Some(backend) = TestBackend::redis() else { return };
    Test::new(&backend, "-q acquire --label mine k").output();
    let wrong = "0".repeat(32);
    Test::new(&backend, &format!("release k --holder {wrong}"))
        .stderr("fencelock: k is no longer held by that holder: it is held by * (mine) now\n")
        .status(76)
        .run();
    Test::new(&backend, "-q status k").status(75).run();
}

#[test]
fn a_lock_that_was_waited_for_is_held_for_the_full_ttl() {
    let Some(backend) = TestBackend::redis() else { return };
    let first = Test::new(&backend, "acquire k").output().stdout;
    let second = Test::new(&backend, "acquire k").start();
    wait_until("the line", || {
        Test::new(&backend, "--json status k").output().stdout.contains("\"waiters\":1").then_some(())
    });
    Test::new(&backend, &format!("-q release k --holder {first}")).run();
    assert_eq!(second.end().status, 0);
    let status: Value = serde_json::from_str(&Test::new(&backend, "status --json k").output().stdout).unwrap();
    assert!(status["expires_in_ms"].as_u64().unwrap() > 20_000, "not only for the time of a hand-off: {status}");
}

#[test]
fn a_busy_key_is_75() {
    let Some(backend) = TestBackend::redis() else { return };
    Test::new(&backend, "-q acquire k").output();
    Test::new(&backend, "acquire -n k").stderr("fencelock: k is held by *\n").status(75).run();
}

#[test]
fn acquire_refuses_backends_where_nothing_outlives_a_process() {
    let backend = TestBackend::files();
    Test::new(&backend, "acquire k")
        .stderr(
            "fencelock: file:*: its locks end with the process that holds them, so `acquire` needs a process to hold \
             one for: --while-pid PID, in a shell --while-pid $$; or use `fencelock run KEY -- COMMAND`\n",
        )
        .status(64)
        .run();
    Test::new(&backend, "status k").stdout("k: free\n").run();
}

#[test]
fn a_hold_whose_proof_could_not_be_written_is_released() {
    let Some(backend) = TestBackend::redis() else { return };
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let output = Test::new(&backend, "acquire k").command().stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(74));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.ends_with("; the lock was released\n"), "{stderr}");
    Test::new(&backend, "status k").stdout("k: free\n").run();
}

#[test]
fn a_hold_without_a_reader_of_its_proof_is_released() {
    let Some(backend) = TestBackend::redis() else { return };
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = Test::new(&backend, "acquire k").command().stdout(writer).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(74), "{stderr}");
    assert!(stderr.ends_with("; the lock was released\n"), "{stderr}");
    Test::new(&backend, "status k").stdout("k: free\n").run();
}

#[test]
fn a_hold_whose_proof_goes_to_a_closed_stdout_is_released() {
    let Some(backend) = TestBackend::redis() else { return };
    let acquire = |to: &str| {
        let line = format!("{} acquire k {to}", crate::test::BINARY);
        std::process::Command::new("sh")
            .args(["-c", &line])
            .env("FENCELOCK_URL", backend.url())
            .env("XDG_CONFIG_HOME", backend.dir())
            .output()
            .unwrap()
    };
    let output = acquire(">&-");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        (output.status.code(), stderr.as_str()),
        (Some(74), "fencelock: cannot write the output: stdout is closed; the lock was released\n")
    );
    Test::new(&backend, "status k").stdout("k: free\n").run();
    assert_eq!(acquire("> /dev/null").status.code(), Some(0), "a discarded output is no error");
    Test::new(&backend, "-q status k").status(75).run();
}

#[test]
fn a_command_can_release_the_lock_of_its_wrapper_only_at_a_price() {
    let Some(backend) = TestBackend::redis() else { return };
    let script = format!("{} -q release k --holder $FENCELOCK_HOLDER", crate::test::BINARY);
    let output = Test::script(&backend, "k", &script).output();
    assert_eq!(output.status, 76, "{}", output.stderr);
}
