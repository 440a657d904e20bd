use crate::backend::TestBackend;
use crate::test::{BINARY, Test, shell};
use std::fs::File;
use std::process::Stdio;

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
fn a_hold_is_renewed_and_one_that_is_over_is_not() {
    let Some(backend) = TestBackend::redis() else { return };
    let holder = Test::new(&backend, "acquire --ttl 20s k").output().stdout;
    Test::new(&backend, &format!("renew k --ttl 10m --holder {holder}"))
        .stdout("k: held for at least another 10 min\n")
        .run();
    Test::new(&backend, "-q break --yes k").run();
    for line in ["renew", "release"] {
        Test::new(&backend, &format!("{line} k --holder {holder}"))
            .stderr("fencelock: k is no longer held by that holder: it was released, or its lease has ended\n")
            .status(76)
            .run();
        let answer = Test::new(&backend, &format!("{line} --json k --holder {holder}")).status(76).output().stdout;
        assert!(answer.contains(r#""reason":"it was released, or its lease has ended""#), "{answer}");
    }
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
fn a_hold_whose_proof_nobody_reads_is_released() {
    let Some(backend) = TestBackend::redis() else { return };
    let (reader, pipe) = std::io::pipe().unwrap();
    drop(reader);
    let full = File::options().write(true).open("/dev/full").unwrap();
    for to in [Stdio::from(full), Stdio::from(pipe)] {
        let output = Test::new(&backend, "acquire k").command().stdout(to).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(74) && said.ends_with("; the lock was released\n"), "{said}");
        Test::new(&backend, "status k").stdout("k: free\n").run();
    }
    let output = shell(&backend, &format!("{BINARY} acquire k >&-")).end();
    assert_eq!(output.stderr, "fencelock: cannot write the output: stdout is closed; the lock was released\n");
    assert_eq!(output.status, 74);
    Test::new(&backend, "status k").stdout("k: free\n").run();
    let output = shell(&backend, &format!("{BINARY} acquire k > /dev/null")).end();
    assert_eq!(output.status, 0, "a discarded output is no error: {}", output.stderr);
    Test::new(&backend, "-q status k").status(75).run();
}

#[test]
fn a_command_can_release_the_lock_of_its_wrapper_only_at_a_price() {
    let Some(backend) = TestBackend::redis() else { return };
    let script = format!("{BINARY} -q release k --holder $FENCELOCK_HOLDER");
    Test::script(&backend, "k", &script).says(76, &[]);
}
