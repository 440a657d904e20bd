//! Locks in files stay until the last process that works under them has ended, also after a kill of the wrapper.

use crate::backend::TestBackend;
use crate::running::{children, is_alive, is_stopped, send, wait_until};
use crate::test::{BINARY, Test};
use std::fs;

/// Starts a process that outlives it, and waits.
const REPORT: &str = "until [ -e go ]; do sleep 0.02; done\nsetsid sh -c 'echo left $$; exec sleep 1000' &\nwait\n";

/// The processes with this text in their arguments, as `pkill -f` finds them.
fn named(text: &str) -> Vec<String> {
    let names = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let arguments = |pid: &String| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let pids = names.filter(|name| name.parse::<u32>().is_ok());
    pids.filter(|pid| String::from_utf8_lossy(&arguments(pid)).contains(text)).collect()
}

fn status(backend: &TestBackend, key: &str) -> i32 {
    Test::new(backend, &format!("-q status {key}")).output().status
}

#[test]
fn a_kill_by_the_name_of_the_command_frees_no_lock_while_its_work_goes_on() {
    let modes = [("k", "k"), ("--shared k", "k"), ("--permits 2 k", "k"), ("--slots 1 k", "k#0"), ("k --also j", "k")];
    for (options, key) in modes {
        let backend = TestBackend::files();
        let script = backend.file("report.sh");
        fs::write(&script, REPORT).unwrap();
        let name = script.to_str().unwrap();
        // The kernel continues a stopped process whose parent has exited, unless the next parent is of the same session: the outer
        // watcher.
        let outer = format!("{BINARY} run {options} -- sh {name} & echo wrapper $!; touch go; read _");
        fs::write(backend.file("outer.sh"), outer).unwrap();
        let mut outer = Test::new(&backend, "run outer -- sh outer.sh").start();
        let mut number = |of: &str| outer.wait_for(of)[of.len()..].trim().to_owned();
        let (wrapper, left) = (number("wrapper"), number("left"));
        let [watcher] = children(wrapper.parse().unwrap()).try_into().expect("one child, the watcher");
        // Otherwise it ends at once what is left.
        send(&watcher, "STOP");
        wait_until("the stop", || is_stopped(&watcher).then_some(()));
        let named = named(name);
        assert!(!named.contains(&watcher) && named.len() >= 2, "{named:?}");
        for pid in &named {
            send(pid, "KILL");
        }
        wait_until("the end of the wrapper", || (!is_alive(&wrapper)).then_some(()));
        assert!(is_alive(&left));
        let keys: &[&str] = if options == "k --also j" { &["k", "j"] } else { &[key] };
        for key in keys {
            assert_eq!(status(&backend, key), 75, "{options}: {key} is free while its work goes on");
        }
        send(&watcher, "CONT");
        for key in keys {
            wait_until("the end of the locks", || (status(&backend, key) == 0).then_some(()));
        }
        assert!(!is_alive(&left), "{options}");
        outer.say("\n");
    }
}

#[test]
fn arguments_of_a_megabyte_reach_the_command() {
    let backend = TestBackend::files();
    let word = "x".repeat(100_000);
    let mut test =
        Test::script(&backend, "k", "shift; printf '%s|' $# \"$1\" \"$2\"; printf %s \"$*\" | wc -c").arg("sh");
    for word in ["first", "", "two words\n"].into_iter().chain([word.as_str(); 10]) {
        test = test.arg(word);
    }
    let output = test.output();
    assert_eq!((output.stdout.as_str(), output.status), ("12||two words\n|1000021\n", 0), "{}", output.stderr);
}
