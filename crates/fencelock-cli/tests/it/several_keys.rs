//! `run KEY --also KEY -- COMMAND`: all locks or none, and the loss of one is the loss of all.

use crate::backend::TestBackend;
use crate::running::hold;
use crate::test::Test;

fn is_free(backend: &TestBackend, key: &str) -> bool {
    Test::new(backend, &format!("status {key}")).output().status == 0
}

#[test]
fn the_command_finds_every_lock_in_the_order_given() {
    for backend in TestBackend::every_kind() {
        let script = r#"echo "$FENCELOCK_KEYS"; set -- $FENCELOCK_FENCES; echo $#; test $1 -gt 0 && test $2 -gt 0 || echo bad
            set -- $FENCELOCK_HOLDERS; echo $# ${#1} ${#2}
            echo "${FENCELOCK_KEY-none} ${FENCELOCK_HOLDER-none} ${FENCELOCK_FENCE-none}""#;
        let wanted = "b\na c\n2\n2 32 32\nnone none none\n";
        let test = Test::new(&backend, "run b --also").arg("a c").arg("--").arg("sh").arg("-c").arg(script);
        // A variable of an outer lock is not passed on.
        test.env("FENCELOCK_KEY", "outer")
            .env("FENCELOCK_HOLDER", "x")
            .env("FENCELOCK_FENCE", "7")
            .stdout(wanted)
            .run();
        assert!(is_free(&backend, "b"));
    }
}

#[test]
fn one_key_has_the_variables_of_several_too() {
    let script = r#"test "$FENCELOCK_KEY:$FENCELOCK_HOLDER:$FENCELOCK_FENCE" = \
        "$FENCELOCK_KEYS:$FENCELOCK_HOLDERS:$FENCELOCK_FENCES" && echo same"#;
    Test::script(&TestBackend::files(), "k", script).stdout("same\n").run();
}

#[test]
fn a_busy_key_is_named_and_the_others_stay_free() {
    for backend in TestBackend::every_kind() {
        let holder = hold(&backend, "b");
        for (options, status) in [("-n", 75), ("-w 3", 75), ("-n -E 9", 9)] {
            let output = Test::new(&backend, &format!("run {options} c --also b --also a -- echo never")).output();
            assert_eq!((output.status, output.stdout.as_str()), (status, ""), "{}", output.stderr);
            assert!(output.stderr.contains("fencelock: b is held by "), "{}", output.stderr);
            assert!(is_free(&backend, "a") && is_free(&backend, "c"));
        }
        let waiting = Test::new(&backend, "run c --also b --also a -- echo now").start();
        waiting.wait_for_error("waiting for b, ");
        holder.finish();
        let output = waiting.end();
        assert_eq!((output.status, output.stdout.as_str()), (0, "now\n"), "{}", output.stderr);
    }
}

#[test]
fn the_loss_of_one_lock_ends_the_command_and_releases_the_others() {
    let Some(backend) = TestBackend::redis() else { return };
    let mut wrapper = Test::script(&backend, "--ttl 30s a --also b", "echo ready; exec sleep 1000").start();
    wrapper.wait_for("ready");
    Test::new(&backend, "break --yes b").ok();
    let output = wrapper.end();
    assert_eq!(output.status, 76, "{}", output.stderr);
    let wanted =
        "fencelock: b: nobody holds it now: it was broken, deleted, or lost by the server; terminating the command";
    assert!(output.stderr.starts_with(wanted) && output.stderr.lines().count() == 1, "{}", output.stderr);
    assert!(is_free(&backend, "a") && is_free(&backend, "b"));
}

#[test]
fn max_hold_names_all_locks() {
    let backend = TestBackend::files();
    Test::script(&backend, "--max-hold 1s a --also b", "exec sleep 1000")
        .says(76, &["fencelock: a, b: --max-hold 1 s is reached"]);
}

#[test]
fn keys_that_cannot_be_locked_together_are_64_before_anything_is_locked() {
    let backend = TestBackend::files();
    let many = (1..17).fold("k".to_owned(), |keys, number| format!("{keys} --also {number}"));
    for (keys, why) in [
        ("a --also b --also a", "\"a\" is named twice: each key of a set is locked once"),
        (many.as_str(), "more than 16 keys cannot be locked together"),
        ("a --also fencelock:b", "keys that begin with \"fencelock:\" are reserved for fencelock: \"fencelock:b\""),
    ] {
        Test::new(&backend, &format!("run {keys} -- echo never"))
            .stderr(&format!("fencelock: {why}\n"))
            .status(64)
            .run();
    }
    for (first, second, number) in [("a", "", 2), ("", "b", 1), ("", "", 1)] {
        let why = format!("fencelock: KEY {number} of 2 is empty: is a variable of the shell not set?\n");
        let test = Test::new(&backend, "run").arg(first).arg("--also").arg(second).arg("--").arg("echo").arg("never");
        test.stderr(&why).status(64).run();
    }
    assert!(!backend.file("locks").exists(), "no backend was opened");
}
