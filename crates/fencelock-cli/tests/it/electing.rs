//! `elect`: one leads, the others wait, and each change can be observed.

use crate::backend::TestBackend;
use crate::running::{Running, wait_until};
use crate::test::Test;
use std::io::BufRead;

/// A candidate whose command reports that it runs, and ends on request.
fn candidate(backend: &TestBackend, options: &str) -> Running {
    Test::new(backend, &format!("elect {options} e -- sh -c")).arg("echo $FENCELOCK_FENCE; read _").start()
}

/// The term of a command that has just begun.
fn term(candidate: &mut Running) -> u64 {
    candidate.wait_for("").parse().unwrap()
}

#[test]
fn the_command_of_the_leader_gets_its_term_and_its_exit_status_is_that_of_the_program() {
    let backend = TestBackend::files();
    Test::new(&backend, "elect --value 10.0.0.7:80 e -- sh -c")
        .arg("echo $FENCELOCK_KEY $((FENCELOCK_FENCE > 0)) ${#FENCELOCK_HOLDER}; exit 3")
        .stdout("e 1 32\n")
        .status(3)
        .run();
    Test::new(&backend, "status e").stdout("e: free\n").run();
}

#[test]
fn status_list_and_run_treat_the_leader_as_the_holder_of_the_lock() {
    let backend = TestBackend::files();
    let mut leader = candidate(&backend, "--value 10.0.0.7:80");
    term(&mut leader);
    Test::new(&backend, "status e").stdout("e: held by * (10.0.0.7:80) for *\n").status(75).run();
    Test::new(&backend, "list").stdout("KEY *\ne *(10.0.0.7:80)\n").run();
    for line in ["run -n e -- true", "elect -n e -- true"] {
        Test::new(&backend, line).stderr("fencelock: e is held by * (10.0.0.7:80)*\n").status(75).run();
    }
    leader.finish();
}

#[test]
fn a_signal_ends_the_command_and_no_campaign_follows() {
    let backend = TestBackend::files();
    // It does not end with its standard input.
    let mut leader = Test::new(&backend, "elect e -- sh -c").arg("echo $FENCELOCK_FENCE; exec sleep 1000").start();
    term(&mut leader);
    let standby = candidate(&backend, "");
    standby.wait_for_error("fencelock: waiting for e, ");
    standby.kill("TERM");
    assert_eq!(standby.end().status, 143);
    leader.kill("TERM");
    assert_eq!(leader.end().status, 143);
    Test::new(&backend, "status e").stdout("e: free\n").run();
}

#[test]
fn a_leader_whose_key_is_deleted_leads_again_each_time_with_a_greater_term() {
    let Some(backend) = TestBackend::redis() else { return };
    let mut leader = Test::new(&backend, "elect e -- sh -c").arg("echo $FENCELOCK_FENCE; exec sleep 1000").start();
    let terms: Vec<u64> = (0..5)
        .map(|_| {
            let term = term(&mut leader);
            backend.server().command(&["DEL", "e"]);
            term
        })
        .collect();
    assert!(terms.is_sorted_by(|one, next| one < next), "{terms:?}");
}

#[test]
fn an_observer_prints_each_change_as_one_line() {
    let Some(backend) = TestBackend::redis() else { return };
    let mut observer = Test::new(&backend, "elect --observe e").start();
    observer.wait_for("e: no leader");
    let mut leader = candidate(&backend, "--value 10.0.0.7:80");
    let term = term(&mut leader);
    let line = observer.wait_for("e: 10.0.0.7:80 on ");
    assert!(line.ends_with(&format!(" leads, term {term}")), "{line}");
    leader.say("\n");
    leader.end();
    observer.wait_for("e: no leader");
    observer.kill("INT");
    let output = observer.end();
    assert_eq!(
        (output.status, output.stderr.as_str(), output.stdout.lines().count()),
        (130, "", 3),
        "{}",
        output.stdout
    );
}

#[test]
fn an_observer_ends_when_its_output_is_closed() {
    let backend = TestBackend::files();
    let mut command = Test::new(&backend, "elect --observe e").command();
    let mut observer = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    // After its first line it has nothing to write.
    let mut output = std::io::BufReader::new(observer.stdout.take().unwrap());
    output.read_line(&mut String::new()).unwrap();
    drop(output);
    let ended = wait_until("its end", || observer.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn bad_input_is_refused_and_nothing_runs() {
    let backend = TestBackend::files();
    let long = "x".repeat(129);
    for (line, argument, expected) in [
        ("elect", "", "fencelock: the following required arguments were not provided"),
        ("elect e", "", "fencelock: no command to run as the leader of e: "),
        ("elect -- touch ran", "", "fencelock: no NAME before `--`: the words after `--` are the command"),
        ("elect e --grace 20s -- touch ran", "", "fencelock: --grace 20 s is more than half of --ttl 30 s"),
        ("elect e --observe --value v", "", "fencelock: the argument '--observe' cannot be used with '--value"),
        ("elect e --observe -- touch ran", "", "fencelock: the argument '--observe' cannot be used with"),
        ("-q elect e --observe", "", "fencelock: --observe prints the leader, so it cannot be combined with -q"),
        ("elect e --label v -- touch ran", "", "fencelock: unexpected argument '--label' found"),
        ("elect e", "--value=", "fencelock: the value of a candidate is empty"),
        ("elect e", "--value=a\nb", "fencelock: the value of a candidate must not contain control characters"),
        ("elect e", &format!("--value={long}"), "fencelock: the value of a candidate has at most 128 bytes"),
    ] {
        let mut test = Test::new(&backend, line);
        if !argument.is_empty() {
            test = ["--", "touch", "ran"].into_iter().fold(test.arg(argument), Test::arg);
        }
        test.says(64, &[expected]);
    }
    for name in ["", "a\nb"] {
        Test::new(&backend, "elect").arg(name).arg("--").arg("touch").arg("ran").says(64, &[]);
    }
    assert!(!backend.file("ran").exists());
}

#[test]
fn a_command_of_the_leader_cannot_wait_for_its_own_election() {
    let backend = TestBackend::files();
    let nested = format!("{} elect e -- true", crate::test::BINARY);
    Test::new(&backend, "elect e -- sh -c").arg(&nested).says(64, &["e is the lock that this program runs under"]);
}
