//! The owners of the locks of a session, and its keeper, which others may not reach.

use crate::backend::TestBackend;
use crate::keeping::{OpenDirectory, Session, has_namespaces, is_free, keeper, keepers_of, status, wait_until_free};
use crate::running::{is_alive, send, wait_until};
use crate::test::{BINARY, Test, shell};
use serde_json::Value;
use std::fs;

#[test]
fn a_name_of_a_process_is_an_owner_of_its_own() {
    for backend in TestBackend::every_kind() {
        let (runner, other) = (Session::start(), Session::start());
        let first = runner.holder(&backend, "deploy --owner job-1 --label web");
        assert_eq!(runner.holder(&backend, "-n deploy --owner job-1"), first);
        let also = runner.holder(&backend, "cache --owner job-1");
        let of_job_2 = runner.holder(&backend, "docs --owner job-2");
        for (session, owner) in [(&runner, "--owner job-2"), (&runner, ""), (&other, "--owner job-1")] {
            let named = format!("(for job-1 while {} sleep: web)", runner.pid());
            session.acquire(&backend, &format!("-n deploy {owner}")).says(75, &[&named]);
            Test::new(&backend, "list").says(0, &[&named]);
        }
        let state: Value = serde_json::from_str(&status(&backend, "deploy").stdout).unwrap();
        assert_eq!(
            (&state["owner"]["name"], &state["holders"][0]["owner"]["name"]),
            (&"job-1".into(), &"job-1".into())
        );
        let answer = runner.acquire(&backend, "--json deploy --owner job-1").output().stdout;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!((&answer["holder"], &answer["name"]), (&first.into(), &"job-1".into()));
        let waiting = runner.acquire(&backend, "deploy --owner job-2").start();
        waiting.wait_for_error("waiting for deploy, ");
        let all = |owner: &str| Test::new(&backend, &format!("release --all --while-pid {} {owner}", runner.pid()));
        all("").output();
        assert!(!is_free(&backend, "deploy"), "the process without a name has none");
        let mut released: Vec<_> = all("--owner job-1").output().stdout.lines().map(str::to_owned).collect();
        released.sort();
        assert_eq!(released, ["cache: released", "deploy: released"]);
        let second = waiting.end();
        assert_eq!(second.status, 0, "{}", second.stderr);
        assert_eq!(Test::new(&backend, &format!("release cache --holder {also}")).output().status, 76);
        all("--owner job-1").output();
        assert!(!is_free(&backend, "deploy"), "the second job has it");
        Test::new(&backend, &format!("release docs --holder {of_job_2}")).stdout("docs: released\n").run();
        all("--json --owner job-2").stdout("{\"key\":\"deploy\",\"reason\":null,\"released\":true}\n").run();
        assert!(is_free(&backend, "deploy"));
        all("--owner job-2").says(0, &["no locks here for the owner named job-2"]);
    }
}

#[test]
fn a_long_label_is_cut_and_refuses_no_lock() {
    let backend = TestBackend::files();
    let (session, label) = (Session::start(), "x".repeat(500));
    for line in
        ["run k --label LABEL -- true".to_owned(), format!("acquire k --while-pid {} --label LABEL", session.pid())]
    {
        Test::new(&backend, &line.replace("LABEL", &label)).says(0, &[]);
    }
}

#[test]
fn a_name_of_an_owner_is_one_plain_word() {
    let backend = TestBackend::files();
    let session = Session::start();
    let long = "x".repeat(65);
    for (name, why) in [
        ("", "is a variable of the shell not set?"),
        ("a b", "no spaces"),
        ("a\u{202e}b", "no control"),
        (&long, "64 bytes"),
    ] {
        for line in ["acquire k", "release --all"] {
            Test::new(&backend, &format!("{line} --while-pid {} --owner", session.pid())).arg(name).says(64, &[why]);
        }
    }
    for line in
        ["acquire k --owner x", "release k", "release k --all", "release --all", "release k --holder x --owner x"]
    {
        assert_eq!(Test::new(&backend, line).output().status, 64, "{line}");
    }
}

#[test]
fn a_command_waits_for_the_lock_of_another_owner_only_if_it_says_so() {
    let backend = TestBackend::files();
    let script = |waits: &str| {
        format!(
            "f={BINARY}; $f acquire k --owner a --while-pid $$ > /dev/null; sleep 1000 & child=$!; \
             (sleep 1.5; $f release --all --owner a --while-pid $$) > /dev/null & $f {waits}; e=$?; kill $child; exit $e"
        )
    };
    for waits in ["run k -- true", "acquire k --while-pid $child", "acquire k --owner a --while-pid $child"] {
        let output = shell(&backend, &script(waits)).end();
        assert_eq!(output.status, 64, "{waits}: {}", output.stderr);
        assert!(output.stderr.contains("owner a), which this program runs under"), "{waits}: {}", output.stderr);
    }
    for waits in ["run --nested-ok k -- true", "acquire k --owner b --while-pid $child"] {
        let output = shell(&backend, &script(waits)).end();
        assert_eq!(output.status, 0, "{waits}: {}", output.stderr);
    }
}

#[test]
fn one_keeper_has_all_locks_of_a_session() {
    for backend in TestBackend::every_kind() {
        let session = Session::start();
        let options = |number: u32| format!("-n k{number} --owner of{}", number % 3);
        let first: Vec<_> = (0..40).map(|number| session.holder(&backend, &options(number))).collect();
        let again: Vec<_> = (0..40).map(|number| session.holder(&backend, &options(number))).collect();
        assert_eq!(first, again);
        let state: Value = Test::new(&backend, "--json list").json();
        let mut keepers: Vec<_> =
            state.as_array().unwrap().iter().map(|held| held["owner"]["pid"].to_string()).collect();
        assert_eq!(keepers.len(), 40);
        keepers.dedup();
        let [keeper] = keepers.try_into().unwrap();
        drop(session);
        wait_until("the end of the keeper", || (!is_alive(&keeper)).then_some(()));
        assert_eq!(Test::new(&backend, "list").output().stdout, "");
    }
}

#[test]
fn names_that_are_not_utf_8_hide_no_lock() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    // Everybody can bind such an address.
    let name = [&std::process::id().to_le_bytes()[..], b"caf\xe9"].concat();
    let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
    let backend = TestBackend::files();
    let script = format!(
        "f={BINARY}; printf 'caf\\351' > /proc/$$/comm; h=$($f acquire k --while-pid $$) || exit; $f run k -- true; \
         [ $? = 64 ] || exit 9; exec $f release k --holder $h"
    );
    let output = shell(&backend, &script).end();
    assert_eq!((output.status, &*output.stdout), (0, "k: released\n"), "{}", output.stderr);
}

#[test]
fn a_session_that_cleans_up_after_its_time_can_release_its_lock() {
    let backend = TestBackend::files();
    // Its grace period is longer than a keeper may be silent.
    let script = format!(
        "f={BINARY}; trap ': > told' TERM; h=$($f acquire k --while-pid $$ --max-hold 50ms --on-lost term --ttl 1h) || exit; \
         until [ -e told ]; do sleep 0.01; done; $f acquire -n k --while-pid $$; [ $? = 75 ] || exit 9; exec $f release k --holder $h"
    );
    let output = shell(&backend, &script).end();
    assert_eq!((output.status, &*output.stdout), (0, "k: released\n"), "{}", output.stderr);
}

#[test]
fn a_session_does_not_wait_for_its_lock_under_another_name_of_the_backend() {
    let Some(backend) = TestBackend::redis() else { return };
    let other = backend.url().replace("127.0.0.1", "localhost");
    for waits in ["acquire k --while-pid $$", "run k -- true", "wait k"] {
        let script = format!(
            "f={BINARY}; $f acquire k --while-pid $$ > /dev/null || exit; FENCELOCK_URL={other} $f {waits}; exit $?"
        );
        let output = shell(&backend, &script).end();
        assert!(
            output.status == 69 && output.stderr.contains("another URL for this backend"),
            "{waits}: {}",
            output.stderr
        );
        wait_until_free(&backend, "k");
    }
}

#[test]
fn a_lock_is_not_kept_with_other_options_than_its_request_gives() {
    let Some(backend) = TestBackend::redis() else { return };
    let session = Session::start();
    let holder = session.holder(&backend, "k");
    let with = |options: &str| session.acquire(&backend, &format!("-w 5 k --url {}&{options}", backend.url()));
    with("acks=1").says(64, &["here acks=1&timeout=5000"]);
    with("").says(0, &[&holder]);
}

#[test]
fn the_last_command_of_a_shell_releases_the_locks_of_it() {
    let backend = TestBackend::files();
    // A shell may do the same with a last command by itself.
    let script = format!("f={BINARY}; $f acquire k --while-pid $$ > /dev/null; exec $f release --all --while-pid $$");
    let output = shell(&backend, &script).end();
    assert_eq!((output.status, &*output.stdout), (0, "k: released\n"), "{}", output.stderr);
}

#[test]
fn a_session_finds_its_locks_where_nothing_can_be_written() {
    let test = "a_session_finds_its_locks_where_nothing_can_be_written";
    let Some(backend) = TestBackend::redis().filter(|_| has_namespaces(test)) else { return };
    let script = format!(
        "f={BINARY}; mount -t tmpfs none /run/lock -o ro; mount --bind /tmp /tmp; mount -o remount,ro,bind /tmp; \
         a=$($f acquire k --while-pid $$); b=$($f acquire k --while-pid $$); [ ${{#a}} = 32 ] && [ $a = $b ] || exit 9; \
         $f run j -- true || exit 8; $f run k -- true; [ $? = 64 ] || exit 7; $f release k --holder $a; $f status k"
    );
    let output = shell(&backend, &format!("exec unshare --mount sh -c '{script}'")).end();
    assert_eq!((output.status, &*output.stdout), (0, "k: released\nk: free\n"), "{}", output.stderr);
}

#[test]
fn a_keeper_that_cannot_be_asked_refuses_its_locks_and_no_others() {
    if !has_namespaces("a_keeper_that_cannot_be_asked_refuses_its_locks_and_no_others") {
        return;
    }
    let backend = TestBackend::files();
    let refused =
        ["run k -- true", "run -s k -- true", "wait k", "acquire k --while-pid $$", "release --all --while-pid $$"];
    let granted = ["run j -- true", "run -n k -- true"];
    let stop = "p=$($f --json status k | tr -c [:alnum:] \"\\n\" | grep -A 2 -m 1 -x pid | tail -n 1); kill -STOP $p";
    for (around, prepare, until) in [("unshare --net", "", ""), ("", stop, "kill -CONT $p")] {
        for (waits, status) in refused.iter().map(|line| (line, 69)).chain([(&granted[0], 0), (&granted[1], 75)]) {
            let script = format!(
                "f={BINARY}; $f acquire k --while-pid $$ > /dev/null; {prepare}\n{around} $f {waits}; e=$?\n{until}\nexit $e"
            );
            let output = shell(&backend, &script).end();
            assert_eq!(output.status, status, "{around} {waits}: {}", output.stderr);
            let told = output.stderr.contains("cannot be asked") || output.stderr.contains("does not answer");
            assert!(told || status != 69, "{}", output.stderr);
            wait_until_free(&backend, "k");
        }
    }
}

#[test]
fn an_address_that_another_user_has_taken_is_refused_with_its_cause() {
    let test = "an_address_that_another_user_has_taken_is_refused_with_its_cause";
    let Some(directory) = OpenDirectory::for_others(test) else { return };
    // The first request shows the address; the test, which is another user, then has it.
    let address = "grep -o \"fencelock/[^ ]*:$$:[0-9]*\" /proc/net/unix | sort -u";
    let script = format!(
        "h=$(./fencelock acquire k --while-pid $$); a=$({address}); ./fencelock -q release k --holder $h; echo $a > address; \
                          until [ -e taken ]; do sleep 0.05; done; ./fencelock acquire k --while-pid $$; echo $?"
    );
    let path = directory.0.path().to_owned();
    let taking = std::thread::spawn(move || {
        let address = wait_until("the address", || {
            fs::read_to_string(path.join("address")).ok().filter(|text| text.ends_with('\n'))
        });
        let address =
            <std::os::unix::net::SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(address.trim())
                .unwrap();
        let taken = wait_until("the end of the keeper", || std::os::unix::net::UnixListener::bind_addr(&address).ok());
        fs::write(path.join("taken"), "").unwrap();
        taken
    });
    let (_, stdout, stderr) = directory.shell(64322, "", &script);
    let _taken = taking.join().unwrap();
    assert_eq!(stdout, "69\n", "{stderr}");
    let why = format!("process {} of user 0 has taken the address of the keeper", std::process::id());
    assert!(stderr.contains(&why), "{stderr}");
}

/// Owners of one process that come and go, so that its keeper ends again and again while others ask for it.
#[test]
fn owners_that_come_and_go_count_exactly() {
    for backend in TestBackend::every_kind() {
        fs::write(backend.file("counter"), "0").unwrap();
        let script = format!(
            "f={BINARY}; session=$$; one() {{ for i in 1 2 3 4 5; do $f -q acquire k --owner $1 --while-pid $session > /dev/null || exit 9; \
             n=$(cat counter); echo $((n + 1)) > counter.$1; mv counter.$1 counter; \
             $f -q release --all --owner $1 --while-pid $session || exit 8; done; }}; \
             one a & a=$!; one b & b=$!; one c & c=$!; wait $a || exit; wait $b || exit; wait $c || exit; cat counter"
        );
        let output = shell(&backend, &script).end();
        assert_eq!((output.status, &*output.stdout), (0, "15\n"), "{}", output.stderr);
        wait_until_free(&backend, "k");
    }
}

#[test]
fn a_container_with_the_same_network_gets_no_answer_from_a_keeper() {
    if !has_namespaces("a_container_with_the_same_network_gets_no_answer_from_a_keeper") {
        return;
    }
    let backend = TestBackend::files();
    let session = Session::start();
    let holder = session.holder(&backend, "k");
    session.holder(&backend, "j");
    Test::new(&backend, "-q break --yes j").run();
    assert!(Test::new(&backend, "status j").output().stdout.contains("still runs"));
    let inside = |line: &str| shell(&backend, &format!("exec unshare --pid --fork --mount-proc {BINARY} {line}")).end();
    assert_eq!(inside("status j").stdout, "j: free\n");
    let output = inside(&format!("release k --holder {holder}"));
    assert_eq!(output.status, 64, "the right holder ID, but its keeper cannot be asked: {}", output.stderr);
    assert!(output.stderr.contains("is still held"), "{}", output.stderr);
    assert!(!is_free(&backend, "k"));
}

#[test]
fn a_request_that_waits_in_a_keeper_that_is_killed_goes_on_with_another_one() {
    for backend in TestBackend::every_kind() {
        let (first, second) = (Session::start(), Session::start());
        let holder = first.holder(&backend, "k");
        let waiting = second.acquire(&backend, "k --ttl 2s").start();
        waiting.wait_for_error("waiting for k");
        let [killed] = keepers_of(&waiting.pid().to_string()).try_into().unwrap();
        send(&killed, "KILL");
        let parent = waiting.pid().to_string();
        wait_until("another keeper", || (!keepers_of(&parent).is_empty()).then_some(()));
        Test::new(&backend, &format!("-q release k --holder {holder}")).run();
        let output = waiting.end();
        assert_eq!(output.status, 0, "{}", output.stderr);
        assert_ne!(keeper(&backend, "k"), killed);
    }
}

#[test]
fn who_cannot_reach_a_keeper_is_told_that_the_lock_is_held_and_what_ends_it() {
    let test = "who_cannot_reach_a_keeper_is_told_that_the_lock_is_held_and_what_ends_it";
    let Some(directory) = OpenDirectory::for_others(test) else { return };
    let (owner, stranger, root) = (64322, 64323, 0);
    fs::create_dir(directory.0.path().join("locks")).unwrap();
    fs::set_permissions(directory.0.path().join("locks"), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let script = "umask 0; sleep 1000 >/dev/null 2>&1 & ./fencelock acquire k --while-pid $!; echo $!";
    let (_, stdout, stderr) = directory.shell(owner, "", script);
    let [holder, process] = stdout.lines().collect::<Vec<_>>()[..] else { panic!("{stdout}{stderr}") };
    let (_, state, _) = directory.shell(root, "", "./fencelock --json status k");
    let state: Value = serde_json::from_str(&state).unwrap();
    let keeper = &state["owner"]["pid"];
    for user in [root, stranger] {
        for line in [&format!("release k --holder {holder}"), &format!("renew k --holder {holder}"), "break k --yes"] {
            let (code, stdout, stderr) = directory.shell(user, "", &format!("exec ./fencelock {line}"));
            assert_eq!((code, &*stdout), (Some(64), ""), "{user}, {line}: {stderr}");
            let why = format!(
                "process {keeper} keeps this lock for process {process}, ignores TERM, and answers only to user {owner}: \
                 run this as user {owner}, or end process {process}\n"
            );
            assert!(stderr.ends_with(&why), "{user}, {line}: {stderr}");
            assert_eq!(stderr.contains("still held"), !line.starts_with("break"), "{user}, {line}: {stderr}");
        }
    }
    // Both work.
    let (code, stdout, stderr) = directory.shell(owner, "", &format!("exec ./fencelock release k --holder {holder}"));
    assert_eq!((code, &*stdout), (Some(0), "k: released\n"), "{stderr}");
    let again = format!("exec ./fencelock acquire k --while-pid {process}");
    assert_eq!(directory.shell(owner, "", &again).0, Some(0));
    send(process, "TERM");
    wait_until("the end of k", || (directory.shell(root, "", "./fencelock status k").0 == Some(0)).then_some(()));
}

#[test]
fn a_label_that_looks_like_that_of_a_keeper_points_at_no_process() {
    let test = "a_label_that_looks_like_that_of_a_keeper_points_at_no_process";
    let Some(directory) = OpenDirectory::for_others(test) else { return };
    let script = "exec ./fencelock run --label 'while 1 init' k -- \
                  sh -c './fencelock break k --yes; ./fencelock release k --holder $FENCELOCK_HOLDER; echo $?'";
    for user in [64324, 0] {
        let (_, stdout, stderr) = directory.shell(user, "", script);
        let said: Vec<_> = stderr.lines().collect();
        assert_eq!(said.len(), 2, "{stderr}");
        assert!(
            said[0].contains("the kernel holds this lock for process ") && !stderr.contains("process 1,"),
            "{stderr}"
        );
        assert!(
            stdout == "64\n" && said[1].contains("is still held") && said[1].contains("only its process"),
            "{stderr}"
        );
    }
}
