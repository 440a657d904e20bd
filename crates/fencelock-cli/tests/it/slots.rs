//! `run --slots N`: at most N commands at the same time, each with a number of its own.

use crate::backend::{TestBackend, patient};
use crate::running::hold;
use crate::test::Test;
use fencelock_testkit::{Proxy, Reply, Then};
use serde_json::{Value, json};

#[test]
fn each_command_has_a_slot_of_its_own() {
    for backend in TestBackend::every_kind() {
        let script = r#"echo "$FENCELOCK_KEY:$FENCELOCK_SLOT:$((FENCELOCK_FENCE > 0))"; read _; true"#;
        let mut commands: Vec<_> =
            (0..3).map(|_| Test::new(&backend, "run --slots 3 pool -- sh -c").arg(script).start()).collect();
        let mut slots: Vec<_> = commands.iter_mut().map(|command| command.wait_for("pool#")).collect();
        slots.sort();
        let expected: Vec<_> = (0..3).map(|slot| format!("pool#{slot}:{slot}:1")).collect();
        assert!(slots.iter().zip(&expected).all(|(slot, expected)| slot.contains(expected)), "{slots:?}");
        Test::new(&backend, "run -n --slots 3 pool -- echo never").says(75, &["all slots of pool are held (3): pool#"]);
        let waiting = Test::new(&backend, "run --slots 3 pool -- sh -c").arg("echo $FENCELOCK_SLOT").start();
        waiting.wait_for_error("waiting for pool#");
        let first = commands.remove(1);
        first.finish();
        let waited = waiting.end();
        assert_eq!((waited.status, waited.stdout.len()), (0, 2), "{}", waited.stderr);
        for command in &mut commands {
            command.say("\n");
        }
        assert!(commands.into_iter().all(|command| command.end().status == 0));
        assert_eq!(Test::new(&backend, "list").output().stdout.matches("pool#").count(), 0);
    }
}

#[test]
fn a_key_is_not_free_while_one_of_its_slots_is_held() {
    for backend in TestBackend::every_kind() {
        // Keys that only look like slots.
        let _others = hold(&backend, "pool#01 --also poolside#1");
        Test::new(&backend, "status pool").stdout("pool: free\n").run();
        Test::new(&backend, "wait pool").run();
        Test::new(&backend, "break pool --yes").stdout("pool: free, nothing to do\n").run();
        let mut holder = Test::new(&backend, "run --slots 3 pool -- sh -c")
            .arg("echo $FENCELOCK_KEY $FENCELOCK_HOLDER; read _; true")
            .start();
        let (key, proof) = holder.wait_for("pool#").split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        let text = format!("pool: 1 of its slots is held\n  {key}: held by *\n");
        Test::new(&backend, "status pool").stdout(&text).status(75).run();
        let json: Value = Test::new(&backend, "--json status pool").json();
        assert_eq!((&json["held"], &json["slots"]), (&json!(true), &json!([key])), "{json}");
        let timeout = format!("*\nfencelock: {key} is held by *; stopped waiting after *\n");
        Test::new(&backend, "wait -w 1 pool").stderr(&timeout).status(75).run();
        let why = format!(
            "fencelock: pool: 1 of its slots is held; nothing was done: name one of them, as in `fencelock break {key}`\n"
        );
        Test::new(&backend, "break pool --yes").stderr(&why).status(64).run();
        for line in ["release pool", "renew pool"] {
            let why = format!("fencelock: pool is not held by that holder, but its slot {key} is: name that one\n");
            Test::new(&backend, &format!("{line} --holder {proof}")).stderr(&why).status(64).run();
        }
        let mut waiter = Test::new(&backend, "wait pool").start();
        waiter.wait_for_error(&format!("waiting for {key}"));
        holder.say("\n");
        assert_eq!((holder.end().status, waiter.status()), (0, 0));
        Test::new(&backend, "status pool").stdout("pool: free\n").run();
    }
}

#[test]
fn a_command_does_not_wait_for_its_own_slot() {
    let backend = TestBackend::files();
    let script = format!("{} wait -w 60 pool", crate::test::BINARY);
    Test::new(&backend, "run --slots 2 pool -- sh -c").arg(&script).says(64, &["waiting would deadlock"]);
}

#[test]
fn who_may_not_list_is_told_that_slots_may_be_held() {
    let Some(backend) = TestBackend::redis() else { return };
    let words = ["ACL", "SETUSER", "u", "reset", "on", ">secret", "~*", "&*", "+@all", "-scan"];
    assert_eq!(backend.server().command(&words), Reply::Simple("OK".into()));
    let url = patient(backend.server()).replace("redis://", "redis://u:secret@");
    let run = |line: &str| Test::new(&backend, line).env("FENCELOCK_URL", &url).output();
    let unknown = "whether slots of it are held is unknown: ";
    for line in ["status k", "break k --yes", "wait k"] {
        let output = run(line);
        let said = output.stdout + &output.stderr;
        assert!(output.status == 0 && said.contains("free") && said.contains(unknown), "{line}: {said}");
    }
    let json: Value = serde_json::from_str(&run("--json status k").stdout).unwrap();
    assert_eq!((&json["held"], &json["slots"]), (&json!(false), &Value::Null), "{json}");
    let event: Value = serde_json::from_str(run("--json wait k").stderr.lines().last().unwrap()).unwrap();
    assert_eq!(event["event"], "slots_unknown", "{event}");
}

#[test]
fn a_key_whose_slots_were_not_listed_for_a_moment_is_not_free() {
    let Some(backend) = TestBackend::redis() else { return };
    let mut holder = Test::script(&backend, "--slots 2 k", "echo held; read go").start();
    holder.wait_for("held");
    let proxy = Proxy::to(backend.server().port()).unwrap();
    proxy.drop_reply_to("SCAN", Then::Close);
    let output = Test::new(&backend, "wait -w 2 k").env("FENCELOCK_URL", &proxy.url()).output();
    assert!(output.status == 75 && proxy.dropped_replies() == 1, "{}", output.stderr);
}

#[test]
fn a_command_without_a_slot_has_no_number_of_an_outer_one() {
    let backend = TestBackend::files();
    Test::script(&backend, "k", "echo ${FENCELOCK_SLOT-none}").env("FENCELOCK_SLOT", "7").stdout("none\n").run();
}

#[test]
fn numbers_that_cannot_be_used_are_refused() {
    let backend = TestBackend::files();
    for (line, why) in [
        ("run --slots 0 k -- true", "1 to 1000 slots, not 0"),
        ("run --slots 1001 k -- true", "1 to 1000 slots, not 1001"),
        ("run --slots 2 a --also b -- true", "--slots is for one KEY, and there are 2"),
        ("run --slots 2 -s a -- true", "--slots uses exclusive locks: leave -s out"),
        ("run --permits 3 --once-per 1h a -- true", "--once-per uses exclusive locks: leave --permits out"),
        ("run -s --min-interval 20h a -- true", "--min-interval uses exclusive locks: leave -s out"),
        ("run --once-per 0.5 a -- true", "--once-per: a window lasts 1 s to 400 days; 500 ms does not"),
        ("run --once-per 1h a --also b -- true", "--once-per is for one KEY, and there are 2"),
        ("run --even-if-failed a -- true", "--once-per <DURATION>"),
        ("once a --once-per 1h --offset 1h", "--offset"),
        ("run --slots 2 --once-per 1h a -- true", "cannot be used with"),
        ("run --permits 0 a -- true", "0 is not in 1..=1000000"),
        ("run --permits 1000001 a -- true", "1000001 is not in 1..=1000000"),
        ("run --permits 2 --weight 3 a -- true", "--weight 3 is more than --permits 2"),
        ("run --weight 2 a -- true", "--permits <N>"),
        ("run -s --permits 2 a -- true", "cannot be used with"),
    ] {
        Test::new(&backend, line).says(64, &[why]);
    }
}
