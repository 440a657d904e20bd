use crate::backend::TestBackend;
use crate::test::Test;
use serde_json::Value;

#[test]
fn the_table_has_a_row_for_every_scheme() {
    let backend = TestBackend::files();
    let table = Test::new(&backend, "lab").output().stdout;
    assert!(table.starts_with("SCHEME                  ONE HOLDER   OWN LOCK ONLY  NO DEAD LOCK"), "{table}");
    assert!(
        table.contains("\ns2-5-set-nx-ex          overrun: 6   overrun: 7     holds         overrun: 7\n"),
        "{table}"
    );
    let json: Value = serde_json::from_str(&Test::new(&backend, "lab --json").output().stdout).unwrap();
    assert_eq!(json.as_array().unwrap().len(), 27);
    assert_eq!(json[0]["properties"]["no-dead-lock"]["fault"], "crash");
}

#[test]
fn a_counterexample_is_shown_step_by_step() {
    let text = Test::new(&TestBackend::files(), "lab s3-2-try-finally").output().stdout;
    for part in [
        "\"own lock only\" is broken in 3 steps, without any fault",
        "    tick  P1                        P2                         Redis\n",
        "  3 0                               DEL lock -> 1              no lock\n",
        "  3. P2 deletes the key without checking its owner.\n",
        "What went wrong: a valid lock of another client was deleted or overwritten.\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn a_counterexample_is_reported_in_chinese() {
    let text = Test::new(&TestBackend::files(), "lab s3-2-try-finally --lang zh").output().stdout;
    for part in
        ["“不误删别人的锁”在 3 步内被打破，无需任何故障", "  3. P2 删除 key，不管它是谁的。\n", "出了什么问题："]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn a_counterexample_is_shown_with_the_fewest_faults() {
    let backend = TestBackend::files();
    let text = Test::new(&backend, "lab s2-3-deadline-value --property no-dead-lock").output().stdout;
    assert!(
        text.contains("\"no dead lock\" is broken in 8 steps, if one client crashes, and one client's connection"),
        "{text}"
    );
    let json = Test::new(&backend, "lab s2-3-deadline-value --property no-dead-lock --json").output().stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["fault"], json["steps"].as_array().unwrap().len()), (&"crash+lost-release".into(), 8));
}

#[test]
fn all_counterexamples_are_shown_one_after_the_other() {
    let backend = TestBackend::files();
    let text = Test::new(&backend, "lab s3-3-client-id --all").output().stdout;
    assert_eq!(text.matches("What went wrong: ").count(), 3, "{text}");
    let json = Test::new(&backend, "lab s3-3-client-id --all --json --fault overrun").output().stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    let properties: Vec<_> = json.as_array().unwrap().iter().map(|trace| trace["property"].as_str().unwrap()).collect();
    assert_eq!(properties, ["exclusion", "no-late-write", "own-lock-only"]);
}

#[test]
fn what_holds_is_said_to_hold() {
    let text = Test::new(&TestBackend::files(), "lab s2-process").output().stdout;
    assert!(text.contains("  \"one holder\" holds in all "), "{text}");
}

#[test]
fn a_picture_is_drawn_and_a_property_is_chosen() {
    let backend = TestBackend::files();
    let json = Test::new(&backend, "lab s2-5-set-nx-ex --property exclusion --svg out.svg --json").output().stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["property"], &json["fault"]), (&"exclusion".into(), &"overrun".into()));
    let svg = std::fs::read_to_string(backend.file("out.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("two clients work at the same time"), "{svg}");
}

#[test]
fn a_real_server_does_the_same_and_is_left_clean() {
    let Some(backend) = TestBackend::redis() else { return };
    let url = backend.url();
    let text = Test::new(&backend, &format!("lab s2-3-deadline-value --url {url}")).output().stdout;
    assert!(text.contains("  9  P2    DEL lock -> 1  [no lock]\n"), "{text}");
    assert!(text.contains("Every reply of the server matches the model"), "{text}");
    assert_eq!(backend.server().command(&["DBSIZE"]), fencelock_testkit::Reply::Int(0));
}

#[test]
fn the_environment_alone_starts_no_replay() {
    let Some(backend) = TestBackend::redis() else { return };
    let text = Test::new(&backend, "lab s2-3-deadline-value").output().stdout;
    assert!(!text.contains("Every reply of the server"), "{text}");
}

#[test]
fn what_cannot_be_shown_is_64_and_a_server_that_is_not_there_69() {
    let backend = TestBackend::files();
    let Some(server) = TestBackend::redis() else { return };
    for (line, status) in [
        ("lab no-such-scheme".to_owned(), 64),
        ("lab s2-process --fault failover".to_owned(), 64),
        (format!("lab s3-replica-lag --url {}", server.url()), 64),
        ("lab s2-5-set-nx-ex --url redis://127.0.0.1:1".to_owned(), 69),
    ] {
        let output = Test::new(&backend, &line).output();
        assert_eq!(output.status, status, "{line}: {}{}", output.stdout, output.stderr);
    }
}

#[test]
fn a_backend_that_is_no_redis_is_64_and_names_alternatives() {
    for url in ["file:/locks", "redlock://a,b,c"] {
        Test::new(&TestBackend::files(), &format!("lab s2-5-set-nx-ex --url {url}"))
            .stderr("fencelock: --url: the lab needs a single Redis, as in redis://HOST[:PORT][/DB]\n")
            .status(64)
            .run();
    }
}

#[test]
fn a_server_that_is_not_there_is_said_to_be_out_of_reach() {
    Test::new(&TestBackend::files(), "lab s2-5-set-nx-ex --url redis://127.0.0.1:1")
        .stderr("fencelock: cannot reach the server: *\n")
        .status(69)
        .run();
}
