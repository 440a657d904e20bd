//! The commands on a store of objects.

use crate::backend::TestBackend;
use crate::test::Test;
use fencelock_testkit::ObjectFaults;

/// Runs a command that must end with this code and print this.
fn run(test: Test<'_>, status: i32, said: &str) {
    let shown = test.says(status, &[said]);
    assert!(!shown.contains("s3cret") && !shown.contains("k3y-of-objects") && !shown.contains("Signature"), "{shown}");
}

#[test]
fn a_command_runs_under_a_lock_that_the_other_commands_see() {
    let backend = TestBackend::objects("");
    let run = |line: &str, status, text| run(Test::new(&backend, line), status, text);
    // Inside, the lock is held.
    let inside = format!("{} status k --url {}", env!("CARGO_BIN_EXE_fencelock"), backend.url());
    run(&format!("run k -- {inside}"), 75, "held by");
    run("status k", 0, "k: free");
    run("acquire a --ttl 1h", 0, "");
    run("list", 0, "exclusive");
    run("break a --yes", 0, "broke the lock");
    run("run --slots 2 k -- echo in a slot", 0, "in a slot");
    run("run --once-per 1h daily -- echo done", 0, "done");
    run("run --once-per 1h daily -- echo again", 0, "the next window begins");
    run("doctor", 0, "one of 4 clients won each time");
    let names = backend.store().names();
    assert!(names.iter().any(|name| name == "jobs/k.lock") && !names.iter().any(|name| name.contains("doctor")));
}

#[test]
fn what_it_cannot_do_is_refused_with_the_reason() {
    let backend = TestBackend::objects("");
    let run = |line: &str, status, text| run(Test::new(&backend, line), status, text);
    run("run -s k -- true", 64, "get in each other's way");
    run("run --permits 2 k -- true", 64, "use slots");
    run("run --ttl 2s k -- true", 64, "shorter than the 3 s");
    run("run --ttl 5s k -- true", 0, "use 10 s or more");
    run("init", 64, "nothing to set up");
    backend.store().set(ObjectFaults { ignores_version: true, ..ObjectFaults::default() });
    run("run k -- true", 64, "ignores the condition of a write");
    backend.store().set(ObjectFaults { refuses: Some(("PUT", 403, "AccessDenied")), ..ObjectFaults::default() });
    run("run k -- true", 64, "AccessDenied");
}

/// Each of these made a library panic.
#[test]
fn a_setting_that_a_library_does_not_accept_is_named_without_its_value() {
    let backend = TestBackend::objects("");
    let url = |scheme: &str| backend.url().replacen("s3://locks/", scheme, 1);
    for (scheme, name) in [
        ("s3://locks/", "AWS_ACCESS_KEY_ID"),
        ("s3://locks/", "AWS_SESSION_TOKEN"),
        ("s3://locks/", "AWS_REGION"),
        ("az://account/locks/", "AZURE_STORAGE_TOKEN"),
        ("gs://locks/", "GOOGLE_BEARER_TOKEN"),
    ] {
        let test = Test::new(&backend, "run k -- true").env("FENCELOCK_URL", &url(scheme)).env(name, "s3cret\r");
        run(test, 64, &format!("{name} has a line break"));
    }
    // What a file has is not known before it is read.
    std::fs::write(backend.dir().join("token"), "s3cret\n2").unwrap();
    let test = Test::new(&backend, "run k -- true").env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "token");
    let mut command = test.env("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://127.0.0.1:1/").command();
    let output = command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("a library has panicked (reading k.lock)") && !said.contains("s3cret"), "{said}");
    assert_eq!(output.status.code(), Some(70), "{said}");
}

#[test]
fn a_user_without_credentials_reads_how_to_give_them() {
    let backend = TestBackend::objects("");
    let server = backend.url().split_once("endpoint=http://").unwrap().1;
    let stores = [
        (
            "s3://locks",
            "PUT",
            "AWS_METADATA_ENDPOINT",
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; for a profile",
        ),
        ("az://account/locks", "GET", "IDENTITY_ENDPOINT", "set AZURE_STORAGE_ACCOUNT_KEY"),
        ("gs://locks", "GET", "GCE_METADATA_HOST", "gcloud auth application-default login"),
    ];
    for (url, method, variable, advice) in stores {
        // The metadata service of the machine refuses, or there is none.
        backend.store().set(ObjectFaults { refuses: Some((method, 403, "Forbidden")), ..ObjectFaults::default() });
        for host in [server, "127.0.0.1:1"] {
            let at = if variable == "GCE_METADATA_HOST" { host.to_owned() } else { format!("http://{host}") };
            let test = Test::new(&backend, "run -n k -- true")
                .env("FENCELOCK_URL", &format!("{url}?endpoint=http://{server}"));
            let mut command = test.env(variable, &at).env("GCE_METADATA_IP", &at).command();
            command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY").env("HOME", backend.dir());
            let output = command.output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(said.contains("no credentials: ") && said.contains(advice), "{url} at {at}: {said}");
            assert_eq!(output.status.code(), Some(64), "{said}");
        }
    }
}

/// It reads the record, sees two writes refused, claims, renews once soon after the grant, and releases.
#[test]
fn a_job_makes_eight_requests() {
    let backend = TestBackend::objects("");
    Test::new(&backend, "run k -- true").ok();
    backend.store().requests();
    Test::new(&backend, "run -n k -- sleep 1").ok();
    let requests = backend.store().requests();
    let proof = ["GET", "PUT", "PUT", "GET"].map(|method| format!("{method} locks/jobs/.fencelock"));
    assert_eq!(requests[0], "GET locks/jobs/k.lock");
    assert_eq!(requests[1..5], proof);
    assert_eq!(requests[5..], ["PUT locks/jobs/k.lock"; 3]);
}

#[test]
fn whoever_waits_until_a_key_is_free_polls_as_for_a_lock() {
    let backend = TestBackend::objects("&poll=20s");
    Test::new(&backend, "acquire k --ttl 1h").ok();
    backend.store().requests();
    run(Test::new(&backend, "wait k --wait 3s"), 75, "stopped waiting");
    // After pauses from 100 ms on, each half as long again; and three more, if this user has keepers that might hold it for a session.
    let reads = backend.store().requests().len();
    assert!((2..=11).contains(&reads), "{reads}");
}
