//! The recipes of docs/en/sessions.md, as written there.

use crate::backend::TestBackend;
use crate::running::{Running, wait_until};
use crate::test::{BINARY, Test, shell};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;
use tokio::time::Instant;

const PAGE: &str = include_str!("../../../../docs/en/sessions.md");

/// The block after this mark.
fn recipe(name: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("<!-- recipe: {name} -->\n```")).expect(name);
    let (_, block) = rest.split_once('\n').unwrap();
    block.split_once("```").unwrap().0
}

/// A directory of lock files in which the program is installed.
fn machine() -> TestBackend {
    let backend = TestBackend::files();
    fs::create_dir(backend.file("bin")).unwrap();
    std::os::unix::fs::symlink(BINARY, backend.file("bin/fencelock")).unwrap();
    backend
}

fn write_program(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
}

/// A program that calls others, such as an agent: it lives until it reads a line.
fn session(backend: &TestBackend, script: &str) -> Running {
    let path = format!("PATH={}:$PATH", backend.file("bin").display());
    shell(backend, &format!("{path}\n{script}"))
}

fn status(backend: &TestBackend, key: &str) -> String {
    Test::new(backend, &format!("status {key}")).output().stdout
}

fn wait_until_free(backend: &TestBackend, key: &str) {
    wait_until("the end of the lock", || (status(backend, key) == format!("{key}: free\n")).then_some(()));
}

/// Whether a program of a recipe is installed; tells so if it is not.
fn has(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        println!("SKIPPED a recipe: {program} is missing");
    }
    found
}

#[test]
fn a_shell_has_its_lock_until_it_ends() {
    let backend = machine();
    let mut shell = session(&backend, &format!("{}echo ready; read _", recipe("shell")));
    shell.wait_for("ready");
    let shown = status(&backend, "database");
    assert!(shown.contains(&format!("(while {} sh: migrating by hand)", shell.pid())), "{shown}");
    let second = session(&backend, &recipe("shell").replace("acquire", "acquire -n")).end();
    assert_eq!(second.status, 75, "{}", second.stderr);
    shell.finish();
    wait_until_free(&backend, "database");
}

#[test]
fn an_agent_edits_a_path_that_no_other_agent_edits() {
    let backend = checkout();
    fs::write(backend.file("a.txt"), "").unwrap();
    let agent = |name: &str| {
        let hook = format!("SESSION={name} ./lock-path a.txt; echo hook $?");
        let end = format!("SESSION={name} sh ./end-of-turn; echo end $?");
        session(&backend, &format!("{hook}; {hook}; read _; {hook}; read _; {end}; read _"))
    };
    let mut one = agent("one");
    for _ in 0..2 {
        assert_eq!(one.wait_for("hook"), "hook 0");
    }
    let mut two = agent("two");
    for _ in 0..2 {
        assert_eq!(two.wait_for("hook"), "hook 2");
    }
    two.wait_for_error(&format!("a.txt: held by one (sh {}, \"an edit\", since ", one.pid()));
    one.say("\n\n");
    one.end();
    wait_until("the end of the lock", || {
        (Test::new(&backend, "status --path a.txt").output().status == 0).then_some(())
    });
    two.say("\n");
    assert_eq!(two.wait_for("hook"), "hook 0");
    two.say("\n");
    assert_eq!(two.wait_for("released"), "a.txt: released");
    assert_eq!(two.wait_for("end"), "end 0");
    two.end();
}

/// A worktree with the hooks of an agent.
fn checkout() -> TestBackend {
    let backend = machine();
    fs::create_dir(backend.file(".git")).unwrap();
    write_program(&backend.file("lock-path"), &recipe("lock-path").replace("-w 10s", "-w 0.2s"));
    fs::write(backend.file("end-of-turn"), recipe("end-of-turn")).unwrap();
    backend
}

/// An agent that gives the turn to one of its three sub-agents after the other. A mark is there while one of them has a path. It tells of
/// a mark of another one that lives, on the same path, above or below.
const AGENT: &str = r#"
random() { echo $(($(od -An -N2 -tu2 /dev/urandom) % $1)); }
while :; do
    export SESSION="s$(random 3)"
    case $(random 8) in
        0) rm -f marks/*."$$.$SESSION"; sh ./end-of-turn > /dev/null 2>&1; continue ;;
        1) path="d$(random 2)" ;;
        *) path="d$(random 2)/f$(random 2)" ;;
    esac
    ./lock-path "$path" 2> /dev/null || continue
    own="$(echo "$path" | tr / _)"
    : > "marks/$own.$$.$SESSION"
    for mark in marks/*; do
        name="${mark#*/}"; other="${name%%.*}"; who="${name#*.}"
        case "$who $other" in "$$.$SESSION "*) continue ;; *" $own" | *" ${own}_"*) ;; *) case "$own" in "${other}_"*) ;; *) continue ;; esac ;; esac
        grep -q ') [RSDT]' "/proc/${who%.*}/stat" 2> /dev/null && [ -e "$mark" ] && echo "both have it: $own.$$.$SESSION and $name"
    done
    echo edits
done
"#;

#[test]
fn sub_agents_of_agents_that_are_killed_never_edit_the_same() {
    let backend = checkout();
    fs::create_dir(backend.file("marks")).unwrap();
    // By hand, ten minutes.
    let seconds = std::env::var("FENCELOCK_AGENTS").ok().and_then(|seconds| seconds.parse().ok()).unwrap_or(5);
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut agents, mut killed, mut seen) = ([session(&backend, AGENT), session(&backend, AGENT)], 0, String::new());
    let mut kill = |agent: Running| {
        let pid = format!(".{}.", agent.pid());
        agent.kill("KILL");
        seen += &agent.end().stdout;
        // Another process may get its number.
        for mark in fs::read_dir(backend.file("marks")).unwrap().map(Result::unwrap) {
            if mark.file_name().to_str().unwrap().contains(&pid) {
                fs::remove_file(mark.path()).unwrap();
            }
        }
    };
    while Instant::now() < end {
        // The time that an edit takes varies enough for a random moment.
        agents[killed % 2].wait_for("edits");
        sleep(Duration::from_millis(300));
        kill(std::mem::replace(&mut agents[killed % 2], session(&backend, AGENT)));
        killed += 1;
    }
    agents.into_iter().for_each(kill);
    assert!(!seen.contains("both") && seen.matches("edits").count() > killed, "{killed} killed: {seen}");
    wait_until("the end of all locks", || Test::new(&backend, "list").output().stdout.is_empty().then_some(()));
}

#[test]
fn a_push_is_locked_until_git_has_ended() {
    if !has("git") {
        return;
    }
    let backend = machine();
    let script = "exec 2>&1; git init -q --bare up; git init -q -b main down; cp pre-push down/.git/hooks/; cp pre-receive up/hooks/; cd down; \
                  git -c user.name=a -c user.email=a commit -q --allow-empty -m one; git push -q ../up main && echo pushed";
    write_program(&backend.file("pre-push"), recipe("pre-push"));
    write_program(&backend.file("pre-receive"), "#!/bin/sh\nfencelock list\n");
    let output = session(&backend, script).end();
    assert!(output.stdout.contains("git: git push)") && output.stdout.ends_with("pushed\n"), "{}", output.stdout);
    wait_until_free(&backend, &format!("push:{}/.git", fs::canonicalize(backend.file("down")).unwrap().display()));
}

#[test]
fn one_make_at_a_time_builds_in_a_directory() {
    if !has("make") {
        return;
    }
    let backend = machine();
    let rules = "\nall:\n\t@echo builds; read _\n";
    fs::write(backend.file("Makefile"), recipe("make").replace("-w 10m", "-w 0.2s") + rules).unwrap();
    let make = "exec env -u MAKELEVEL MAKEFLAGS= make --no-print-directory all";
    let mut one = session(&backend, make);
    one.wait_for("builds");
    let two = session(&backend, make).end();
    assert_eq!(two.status, 2);
    assert!(two.stderr.contains("another make builds here, see: fencelock status build:"), "{}", two.stderr);
    one.finish();
    wait_until_free(&backend, &format!("build:{}", fs::canonicalize(backend.dir()).unwrap().display()));
}

#[test]
fn the_steps_of_a_job_share_a_lock_and_jobs_of_one_runner_do_not() {
    let backend = machine();
    for (name, step) in [("first", "first-step"), ("last", "last-step")] {
        write_program(&backend.file(name), &format!("#!/bin/sh\n{}", recipe(step)));
    }
    let job = |id: u32| format!("export CI_JOB_ID={id}; ./first; echo first $?; ");
    let mut runner = session(
        &backend,
        &format!("{}read _; export CI_JOB_ID=2; ./last; CI_JOB_ID=1 ./last; echo last $?; {}read _", job(1), job(2)),
    );
    assert_eq!(runner.wait_for("first"), "first 0");
    let shown = status(&backend, "deploy:production");
    assert!(shown.contains("(for 1 while ") && shown.contains("sh: a CI job)"), "{shown}");
    let busy = recipe("first-step")
        .replace("acquire", "acquire -n")
        .replace("-w 30m", "")
        .replace("$PPID", &runner.pid().to_string());
    let second = session(&backend, &format!("CI_JOB_ID=2; {busy}")).end();
    assert_eq!(second.status, 75, "the second job of the runner waits: {}", second.stderr);
    runner.say("\n");
    runner.wait_for("deploy:production: released");
    assert_eq!(runner.wait_for("last"), "last 0");
    assert_eq!(runner.wait_for("first"), "first 0");
    assert!(status(&backend, "deploy:production").contains("(for 2 while "));
    runner.kill("KILL");
    wait_until_free(&backend, "deploy:production");
    let unset = session(&backend, &format!("unset CI_JOB_ID; {}", recipe("first-step"))).end();
    assert!(unset.status == 64 && unset.stderr.contains("is a variable of the shell not set?"), "{}", unset.stderr);
}

#[test]
fn ten_sessions_have_ten_ports() {
    let backend = machine();
    let script = format!("{}echo port $port; read _", recipe("port"));
    let mut sessions: Vec<_> = (0..10).map(|_| session(&backend, &script)).collect();
    let mut ports: Vec<_> = sessions.iter_mut().map(|session| session.wait_for("port")).collect();
    ports.sort();
    assert_eq!(ports, (3000..3010).map(|port| format!("port {port}")).collect::<Vec<_>>());
    let none = session(&backend, &script.replace("acquire", "acquire -n")).end();
    assert_eq!((none.status, &*none.stdout), (75, ""), "{}", none.stderr);
    drop(sessions.pop());
    session(&backend, &script).wait_for("port");
}
