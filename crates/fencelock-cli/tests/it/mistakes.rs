//! Mistyped command lines: each error has the prefix of the program, and advice that helps.

use crate::backend::TestBackend;
use crate::test::{Output, Test};

fn said(line: &str) -> Output {
    Test::new(&TestBackend::files(), line).output()
}

#[test]
fn help_and_version_are_commands_too() {
    for (command, option) in [
        ("help", "--help"),
        ("help run", "run --help"),
        ("help help", "help --help"),
        ("help version", "version --help"),
        ("version", "--version"),
    ] {
        let (by_command, by_option) = (said(command), said(option));
        assert_eq!(by_command.status, 0, "{command}: {}", by_command.stderr);
        assert_eq!(by_command.stdout, by_option.stdout, "{command}");
    }
    let output = said("help nonsense");
    assert!(output.status == 64 && output.stderr.contains("run, elect, acquire"), "{}", output.stderr);
    let output = said("help run nonsense");
    assert_eq!(output.stderr, "fencelock: there is no command `nonsense`; `run` has none\n");
}

#[test]
fn a_command_of_another_program_leads_to_ours() {
    for (line, ours) in [
        ("lock k", "fencelock run KEY -- COMMAND"),
        ("lock k", "fencelock acquire KEY"),
        ("unlock k", "fencelock release KEY --holder ID"),
        ("force-unlock k", "fencelock break KEY"),
        ("exec k ls", "fencelock run KEY -- COMMAND"),
        ("flock k ls", "fencelock run KEY -- COMMAND"),
        ("trylock k", "fencelock run -n KEY -- COMMAND"),
        ("inspect k", "fencelock status KEY"),
        ("staus k", "did you mean `status`?"),
        ("rel k", "did you mean `release`?"),
        ("nonsense k", "the commands are: run, elect,"),
        ("acquire k -- ls", "fencelock run KEY -- COMMAND"),
        ("break --force k", "--yes"),
        ("release k", "`acquire` printed the ID"),
        ("run -t 5 k -- ls", "-w DURATION"),
    ] {
        let output = said(line);
        assert_eq!(output.status, 64, "{line}");
        assert!(output.stderr.contains(ours), "{line}: {}", output.stderr);
    }
    let output = said("--json exec k ls");
    let error: serde_json::Value = serde_json::from_str(&output.stderr).unwrap();
    assert!(error["kind"] == "usage" && error["message"].as_str().unwrap().contains("fencelock run KEY"), "{error}");
}

#[test]
fn a_tip_is_for_a_slip_and_not_for_another_meaning() {
    for line in ["run --wiat 5 k -- ls", "--versoin", "wait --wiat 5 k"] {
        assert!(said(line).stderr.contains("tip: a similar argument exists"), "{line}");
    }
    assert!(said("run --weit 5 k -- ls").stderr.contains("'--wait'"), "not --weight");
    // With `--` before it, as the parser advises, an option of `run` would become the command.
    for line in ["run --foo k -- ls", "run k --foo", "status -x k", "break --force k", "exec k ls"] {
        let output = said(line).stderr;
        for wrong in ["as a value", "--foreign", "elect"] {
            assert!(!output.contains(wrong), "{line}: {output}");
        }
    }
}
