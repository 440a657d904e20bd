use crate::backend::TestBackend;
use crate::running::Running;
use crate::test::{BINARY, Test, shell};

#[test]
fn the_command_finds_its_lock_in_the_environment() {
    let backend = TestBackend::files();
    let script = r#"echo "$FENCELOCK_KEY"; echo ${#FENCELOCK_HOLDER}; test "$FENCELOCK_FENCE" -gt 0"#;
    Test::script(&backend, "k", script).stdout("k\n32\n").run();
}

#[test]
fn the_commands_arguments_are_never_ours() {
    let backend = TestBackend::files();
    let line = "x -n --help --url nonsense -- --version -E 999";
    Test::new(&backend, &format!("run k -- echo {line}")).stdout(&format!("{line}\n")).run();
    Test::new(&backend, &format!("run k echo {line}")).stdout(&format!("{line}\n")).run();
}

#[test]
fn arguments_are_not_split_or_expanded() {
    let backend = TestBackend::files();
    Test::new(&backend, "run k -- printf %s").arg("$HOME *  two  spaces").stdout("$HOME *  two  spaces").run();
}

#[test]
fn the_streams_are_the_commands() {
    let backend = TestBackend::files();
    Test::script(&backend, "k", "cat; echo out; echo err >&2").stdin("in\n").stdout("in\nout\n").stderr("err\n").run();
}

#[test]
fn the_command_inherits_no_descriptor_of_ours() {
    let backend = TestBackend::files();
    let script = "exec ls /proc/self/fd";
    Test::script(&backend, "k", script).stdout(&without_us(script)).run();
}

/// What a script prints that is started directly.
fn without_us(script: &str) -> String {
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", script]);
    Running::start(shell, "").end().stdout
}

#[test]
fn the_command_leads_a_process_group_of_its_own() {
    let backend = TestBackend::files();
    Test::script(&backend, "k", "read _ _ _ _ group _ < /proc/$$/stat; test $group = $$").run();
}

#[test]
fn nohup_reaches_the_command() {
    let backend = TestBackend::files();
    let output = shell(&backend, &format!("trap '' HUP; exec {BINARY} run k -- grep SigIgn /proc/self/status")).end();
    let ignored = u64::from_str_radix(output.stdout.trim().rsplit('\t').next().unwrap(), 16).unwrap();
    assert_eq!(ignored & 1, 1, "HUP is signal 1: {}", output.stdout);
}

#[test]
fn no_signal_is_ignored_or_blocked_that_was_not_before() {
    let backend = TestBackend::files();
    let script = "grep -E 'Sig(Ign|Blk)' /proc/self/status";
    Test::script(&backend, "k", script).stdout(&without_us(script)).run();
}
