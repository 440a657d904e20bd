//! `fencelock resize`: the number of permits of a semaphore in use.

use crate::backend::TestBackend;
use crate::running::hold;
use crate::test::Test;
use fencelock_testkit::{redlock_url, servers_or_skip};

#[test]
fn a_change_says_what_it_changed_and_what_cannot_be_changed() {
    let backend = TestBackend::files();
    let refused = |line: &str, why: &str| {
        Test::new(&backend, line).says(64, &[why]);
    };
    for (line, why) in [
        ("resize --permits 3 k", "k is not in use"),
        ("resize --permits 0 k", "0 is not in 1..=1000000"),
        ("resize --permits 1000001 k", "1000001 is not in 1..=1000000"),
        ("resize k", "--permits <N>"),
    ] {
        refused(line, why);
    }
    let _other = hold(&backend, "--label migration other");
    refused("resize --permits 3 other", "(migration)");
    let mut held = Test::new(&backend, "run --permits 2 --weight 2 k -- sh -c").arg("echo held; read _; true").start();
    held.wait_for("held");
    Test::new(&backend, "resize --permits 3 k").stdout("k: 3 permits instead of 2; 1 holder uses 2\n").run();
    for line in ["run --permits 2 k -- echo never", "run -s k -- echo never"] {
        refused(line, "a semaphore with 3 permits");
    }
    Test::new(&backend, "resize --permits 1 k")
        .stdout("k: 1 permit instead of 3; 1 holder uses 2, so none is granted*\n")
        .run();
    let status = Test::new(&backend, "--json status k").output();
    assert!(status.stdout.contains(r#""limit":1"#) && status.stdout.contains(r#""weight":2"#), "{}", status.stdout);
}

#[test]
fn a_quorum_refuses_a_resize_in_its_own_words() {
    let Some(servers) = servers_or_skip(3) else { return };
    let quorum = redlock_url(&servers, "trust_empty=true");
    let why = ["has no semaphores, so the limit of k cannot be resized", "use slots and change their number"];
    let said = Test::new(&TestBackend::files(), "resize --permits 3 k").env("FENCELOCK_URL", &quorum).says(64, &why);
    assert!(!said.contains("acquire"), "{said}");
}
