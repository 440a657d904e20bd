//! Text of others in labels, values, keys, markers and errors reaches the terminal only as lines of harmless text.

use crate::backend::{TestBackend, patient};
use crate::test::{Output, Test};
use fencelock_testkit::{ScriptedServer, redis_or_skip};

/// Clears a screen in two ways, and starts a line that imitates a message of this program.
const HOSTILE: &str = "\x1b[2J\u{9b}2J\r\nfencelock: forged";

fn run(backend: &TestBackend, url: &str, line: &str) -> Output {
    let output = Test::new(backend, line).env("FENCELOCK_URL", url).output();
    for text in [&output.stdout, &output.stderr] {
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{line}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("fencelock: forged")), "{line}: {text}");
    }
    output
}

/// Whether any of these commands has shown the text at all: else nothing was tried.
fn run_all(backend: &TestBackend, url: &str, lines: &[&str]) {
    let shown = lines
        .iter()
        .map(|line| run(backend, url, line))
        .filter(|output| [&output.stdout, &output.stderr].into_iter().any(|text| text.contains("[2J")));
    assert!(shown.count() > 0, "no output shows it: {lines:?}");
}

#[test]
fn a_marker_commands_no_terminal() {
    let Some(server) = redis_or_skip() else { return };
    let backend = TestBackend::files();
    let url = format!("{}&quarantine=on", patient(&server));
    Test::new(&backend, "init --trust-empty").env("FENCELOCK_URL", &url).ok();
    server.command(&["HSET", "fencelock:node", "quorum", HOSTILE, "nodes", HOSTILE]);
    run_all(
        &backend,
        &url,
        &["run -n -v k -- true", "run -n -vv k -- true", "doctor", "status k", "init", "--json doctor"],
    );
}

#[test]
fn what_another_client_wrote_commands_no_terminal() {
    let Some(backend) = TestBackend::redis() else { return };
    let (url, server) = (backend.url().to_owned(), backend.server());
    Test::new(&backend, "acquire --ttl 60s k").output();
    // Our own clients clean their labels before they write them.
    let value = format!("{} {HOSTILE}", server.command(&["GET", "k"]).text().unwrap());
    server.command(&["SET", "k", &value, "PX", "60000"]);
    server.command(&["SET", "f", HOSTILE, "PX", "60000"]);
    for key in [HOSTILE.replace('\n', ""), HOSTILE.to_owned()] {
        server.command(&["SET", &key, "v", "PX", "60000"]);
        server.command(&["SET", &format!("fencelock:{{{key}}}:fence"), "5"]);
    }
    server.command(&["SET", "fencelock:{f}:fence", "5"]);
    let lines =
        ["status k", "status f", "list", "-v list", "run -n -v k -- true", "run -w 1ms -vv f -- true", "break k"];
    for line in lines {
        run(&backend, &url, line);
    }
    run(&backend, &url, "--json list");
    let text = run(&backend, &url, "status k").stdout;
    assert!(text.contains("forged"), "the owner is shown: {text}");
}

#[test]
fn an_error_of_a_server_commands_no_terminal() {
    let backend = TestBackend::files();
    let error = format!("-ERR {}\r\n", HOSTILE.replace('\r', ""));
    let server = ScriptedServer::start(move |words| {
        ScriptedServer::greeting(words).unwrap_or_else(|| error.clone().into_bytes())
    });
    let url = server.as_ref().unwrap().url();
    run_all(&backend, &url, &["status k", "list", "doctor", "run -n -v k -- true", "break k --yes", "--json status k"]);
}
