//! `run --slots N`: at most N commands at the same time, each with a number of its own.

use crate::backend::TestBackend;
use crate::test::Test;

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
        let full = Test::new(&backend, "run -n --slots 3 pool -- echo never").output();
        assert!(full.status == 75 && full.stderr.contains("pool#"), "{}", full.stderr);
        let waiting = Test::new(&backend, "run --slots 3 pool -- sh -c").arg("echo $FENCELOCK_SLOT").start();
        waiting.wait_for_error("waiting for pool#");
        let mut first = commands.remove(1);
        first.say("\n");
        assert_eq!(first.end().status, 0);
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
        ("run --slots 2 --once-per 1h a -- true", "cannot be used with"),
        ("run --permits 0 a -- true", "0 is not in 1..=1000000"),
        ("run --permits 1000001 a -- true", "1000001 is not in 1..=1000000"),
        ("run --permits 2 --weight 3 a -- true", "--weight 3 is more than --permits 2"),
        ("run --weight 2 a -- true", "--permits <N>"),
        ("run -s --permits 2 a -- true", "cannot be used with"),
    ] {
        let refused = Test::new(&backend, line).output();
        assert!(refused.status == 64 && refused.stderr.contains(why), "{line}: {}", refused.stderr);
    }
}
