use crate::backend::TestBackend;
use crate::running::{Running, is_alive, wait_until};
use crate::test::Test;
use std::fs;

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
fn kill_9_of_the_wrapper_kills_the_command() {
    let backend = TestBackend::files();
    let mut wrapper = Test::script(&backend, "k", "echo $$; exec sleep 1000").start();
    let child = wrapper.wait_for("");
    assert!(is_alive(&child));
    wrapper.kill("KILL");
    wait_until("the command's death", || (!is_alive(&child)).then_some(()));
}

#[test]
fn kill_9_of_the_wrapper_kills_what_the_command_has_started() {
    let backend = TestBackend::files();
    let mut wrapper = Test::script(&backend, "k", "sleep 1000 & echo $!; wait").start();
    let grandchild = wrapper.wait_for("");
    wrapper.kill("KILL");
    wait_until("the grandchild's death", || (!is_alive(&grandchild)).then_some(()));
}

#[test]
fn a_grandchild_in_the_background_does_not_keep_the_lock() {
    let backend = TestBackend::files();
    let mut wrapper = Test::script(&backend, "k", "sleep 1000 & echo $!").start();
    let grandchild = wrapper.wait_for("");
    assert_eq!(wrapper.status(), 0, "the wrapper ends with its command");
    assert!(is_alive(&grandchild), "what the command left behind is its own affair");
    Test::new(&backend, "run -n k -- true").run();
    crate::running::send(&grandchild, "KILL");
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
    let script = "grep SigIgn /proc/self/status";
    let mut wrapper = std::process::Command::new("sh");
    wrapper.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]);
    let test = Test::script(&backend, "k", script).command();
    wrapper
        .arg(test.get_program())
        .args(test.get_args())
        .env("FENCELOCK_URL", backend.url())
        .env("XDG_CONFIG_HOME", backend.dir());
    let output = Running::start(wrapper, "").end();
    let ignored = u64::from_str_radix(output.stdout.trim().rsplit('\t').next().unwrap(), 16).unwrap();
    assert_eq!(ignored & 1, 1, "HUP is signal 1: {}", output.stdout);
}

#[test]
fn no_signal_is_ignored_or_blocked_that_was_not_before() {
    let backend = TestBackend::files();
    let script = "grep -E 'Sig(Ign|Blk)' /proc/self/status";
    Test::script(&backend, "k", script).stdout(&without_us(script)).run();
}

#[test]
fn the_command_does_not_start_before_the_lock_is_held() {
    let backend = TestBackend::files();
    let mut holder = Test::script(&backend, "k", "echo ready; read _; touch first-is-done").start();
    holder.wait_for("ready");
    let second = Test::script(&backend, "k", "test -e first-is-done").start();
    holder.say("\n");
    assert_eq!(second.end().status, 0);
    assert!(fs::exists(backend.file("first-is-done")).unwrap());
}
