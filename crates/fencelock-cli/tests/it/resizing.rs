//! `fencelock resize`: the number of permits of a semaphore in use.

use crate::backend::TestBackend;
use crate::test::Test;
use fencelock_testkit::{redlock_url, servers_or_skip};

#[test]
fn a_change_says_what_it_changed_and_status_shows_it() {
    for backend in TestBackend::with_semaphores() {
        let held = Test::new(&backend, "run --permits 2 --weight 2 k -- sh -c").arg("echo held; read _").start();
        let mut held = [held];
        held[0].wait_for("held");
        Test::new(&backend, "resize --permits 3 k").stdout("k: 3 permits instead of 2; 1 holder uses 2\n").run();
        Test::new(&backend, "run --permits 3 k -- echo third").stdout("third\n").run();
        let refused = Test::new(&backend, "run --permits 2 k -- echo never").output();
        assert!(refused.status == 64 && refused.stderr.contains("a semaphore with 3 permits"), "{}", refused.stderr);
        let reader = Test::new(&backend, "run -s k -- echo never").output();
        assert!(reader.status == 64 && reader.stderr.contains("a semaphore with 3 permits"), "{}", reader.stderr);
        let smaller = Test::new(&backend, "resize --permits 1 k").output();
        assert!(
            smaller.stdout.contains("1 permit instead of 3; 1 holder uses 2, so none is granted"),
            "{}",
            smaller.stdout
        );
        let full = Test::new(&backend, "run -n --permits 1 k -- echo never").output();
        assert_eq!(full.status, 75, "{}", full.stderr);
        let status = Test::new(&backend, "--json status k").output();
        assert!(status.stdout.contains(r#""limit":1"#) && status.stdout.contains(r#""weight":2"#), "{}", status.stdout);
        let [mut held] = held;
        held.say("\n");
        assert_eq!(held.end().status, 0);
    }
}

#[test]
fn a_quorum_refuses_a_resize_in_its_own_words() {
    let Some(servers) = servers_or_skip(3) else { return };
    let quorum = redlock_url(&servers, "trust_empty=true");
    let refused = Test::new(&TestBackend::files(), "resize --permits 3 k").env("FENCELOCK_URL", &quorum).output();
    assert_eq!(refused.status, 64, "{}", refused.stderr);
    for part in ["has no semaphores, so the limit of k cannot be resized", "use slots and change their number"] {
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
    assert!(!refused.stderr.contains("acquire"), "{}", refused.stderr);
}

#[test]
fn what_cannot_be_resized_is_refused_by_name() {
    for backend in TestBackend::with_semaphores() {
        for (line, why) in [
            ("resize --permits 3 k", "k is not in use"),
            ("resize --permits 0 k", "0 is not in 1..=1000000"),
            ("resize --permits 1000001 k", "1000001 is not in 1..=1000000"),
            ("resize k", "--permits <N>"),
        ] {
            let refused = Test::new(&backend, line).output();
            assert!(refused.status == 64 && refused.stderr.contains(why), "{line}: {}", refused.stderr);
        }
        let mut held = Test::new(&backend, "run --label migration k -- sh -c").arg("echo held; read _").start();
        held.wait_for("held");
        let refused = Test::new(&backend, "resize --permits 3 k").output();
        assert!(refused.status == 64 && refused.stderr.contains("(migration)"), "{}", refused.stderr);
        held.say("\n");
        assert_eq!(held.end().status, 0);
    }
}
