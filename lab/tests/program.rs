//! What the program prints.
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock_testkit::{Reply, redis_or_skip};
use std::process::Command;

/// Whether it succeeds, and what it prints on stdout and stderr.
fn lab(line: &str) -> (bool, String, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_fencelock-lab"));
    let output = program.args(line.split_whitespace()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

fn shown(line: &str) -> String {
    let (succeeded, stdout, stderr) = lab(line);
    assert!(succeeded, "{line}: {stderr}");
    stdout
}

#[test]
fn the_table_has_a_row_for_every_scheme() {
    let table = shown("");
    assert!(table.starts_with("SCHEME                 ONE HOLDER   OWN LOCK ONLY  NO DEAD LOCK"), "{table}");
    assert!(
        table.contains("\nset-nx-ex              overrun: 6   overrun: 7     holds         overrun: 7\n"),
        "{table}"
    );
    assert!(table.lines().take_while(|line| !line.is_empty()).count() == 1 + 27, "{table}");
}

#[test]
fn a_counterexample_is_shown_step_by_step_in_two_languages() {
    let text = shown("try-finally");
    for part in [
        "\"own lock only\" is broken in 3 steps, without any fault",
        "    tick  P1                        P2                         Redis\n",
        "  3 0                               DEL lock -> 1              no lock\n",
        "  3. P2 deletes the key without checking its owner.\n",
        "What went wrong: a valid lock of another client was deleted or overwritten.\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let text = shown("try-finally --lang zh");
    for part in
        ["“不误删别人的锁”在 3 步内被打破，无需任何故障", "  3. P2 删除 key，不管它是谁的。\n", "出了什么问题："]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn a_counterexample_is_shown_with_the_fewest_faults() {
    let text = shown("deadline-value --property no-dead-lock");
    assert!(
        text.contains("\"no dead lock\" is broken in 8 steps, if one client crashes, and one client's connection"),
        "{text}"
    );
}

#[test]
fn all_counterexamples_are_shown_one_after_the_other() {
    let text = shown("client-id --all");
    assert_eq!(text.matches("What went wrong: ").count(), 3, "{text}");
    assert_eq!(shown("client-id --all --fault overrun").matches("What went wrong: ").count(), 3);
}

#[test]
fn what_holds_is_said_to_hold() {
    let text = shown("process");
    assert!(text.contains("  \"one holder\" holds in all "), "{text}");
}

#[test]
fn a_picture_is_drawn_and_a_property_is_chosen() {
    let file = std::env::temp_dir().join(format!("fencelock-lab-{}.svg", std::process::id()));
    shown(&format!("set-nx-ex --property exclusion --svg {}", file.display()));
    let svg = std::fs::read_to_string(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("two clients work at the same time"), "{svg}");
}

#[test]
fn a_real_server_does_the_same_and_is_left_clean() {
    let Some(server) = redis_or_skip() else { return };
    let text = shown(&format!("deadline-value --url {}", server.url()));
    assert!(text.contains("  9  P2    DEL lock -> 1  [no lock]\n"), "{text}");
    assert!(text.contains("Every reply of the server matches the model"), "{text}");
    assert_eq!(server.command(&["DBSIZE"]), Reply::Int(0));
}

#[test]
fn what_cannot_be_shown_is_said_with_its_reason() {
    for (line, reason) in [
        ("no-such-scheme", "no-such-scheme"),
        ("process --fault failover", "fencelock-lab: process is not searched with the fault failover\n"),
        ("set-nx-ex --url redis://127.0.0.1:1", "fencelock-lab: cannot reach the server: "),
        ("set-nx-ex --url file:/locks", "--url: the lab needs a single Redis, as in redis://HOST[:PORT][/DB]\n"),
        ("set-nx-ex --url redlock://a,b,c", "--url: the lab needs a single Redis"),
    ] {
        let (succeeded, stdout, stderr) = lab(line);
        assert!(!succeeded && stdout.is_empty() && stderr.contains(reason), "{line}: {stderr}");
    }
}
