//! Manual pages and completions.

use crate::backend::TestBackend;
use crate::test::{BINARY, Test};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::time::Instant;

#[test]
fn completions_are_written_for_every_shell() {
    let backend = TestBackend::files();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        Test::new(&backend, &format!("completions {shell}")).says(0, &["max-hold"]);
    }
}

/// The completions of bash for the last of these words.
fn offered(script: &str, words: &str) -> Vec<String> {
    let count = words.split(' ').count() - 1;
    let line = format!(
        "{script}\nCOMP_WORDS=({words}); COMP_CWORD={count}; COMP_LINE='{words}'; \"$(complete -p fencelock | sed 's/.*-F \\([^ ]*\\) .*/\\1/')\" \
         fencelock \"${{COMP_WORDS[-1]}}\" \"${{COMP_WORDS[-2]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let output = Command::new("bash").args(["--norc", "--noprofile", "-c", &line]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn after_two_dashes_bash_offers_commands() {
    let script = Test::new(&TestBackend::files(), "completions bash").output().stdout;
    assert!(offered(&script, "fencelock run k -- ech").contains(&"echo".to_owned()));
    assert!(offered(&script, "fencelock run k -- cat /de").contains(&"/dev".to_owned()));
    assert_eq!(offered(&script, "fencelock run --max-h"), ["--max-hold"]);
    assert_eq!(offered(&script, "fencelock stat"), ["status"]);
}

/// What a shell prints that has the program in its path, and the URL in its environment.
fn in_shell(backend: &TestBackend, shell: &str, options: &[&str], commands: &str) -> String {
    let folder = Path::new(BINARY).parent().unwrap();
    let path = std::env::join_paths([folder, Path::new("/usr/bin"), Path::new("/bin")]).unwrap();
    let mut command = Command::new(shell);
    command.args(options).args(["-c", commands]).env("PATH", path);
    let output = command.env("FENCELOCK_URL", backend.url()).env("LC_ALL", "C.UTF-8").output().unwrap();
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Only bash must be there.
fn has(shell: &str) -> bool {
    let found = Command::new(shell).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: there is no {shell}");
    }
    found
}

const HELD: [&str; 7] = ["app:job:1", "app:job:2", "my key", "it's", "$(touch started)", "订单 7", "a!b"];

fn with_held_keys() -> Option<TestBackend> {
    let backend = TestBackend::redis()?;
    for key in HELD {
        Test::new(&backend, "acquire --ttl 5m").arg(key).ok();
    }
    Some(backend)
}

#[test]
fn bash_offers_held_keys_as_it_reads_them() {
    let Some(backend) = with_held_keys() else { return };
    let script = Test::new(&backend, "completions bash").output().stdout;
    // The words as Readline splits them, the last one as the shell passes it, and the line.
    let offered = |words: &str, last: &str, line: &str| {
        let call = format!("COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); COMP_LINE={line}");
        let call = format!("{call}; _fencelock_or_command fencelock {last} x; printf '%s|' \"${{COMPREPLY[@]}}\"");
        in_shell(&backend, "bash", &["--norc", "--noprofile"], &format!("{script}\n{call}"))
    };
    for command in ["status", "break", "release", "renew", "resize", "wait"] {
        let all = offered(&format!("fencelock {command} ''"), "''", &format!("'fencelock {command} '"));
        assert_eq!(all, r"\$\(touch\ started\)|a\!b|app:job:1|app:job:2|it\'s|my\ key|订单\ 7|", "{command}");
    }
    for (words, last, line, keys) in [
        (r"fencelock status app : j", "j", "'fencelock status app:j'", "job:1|job:2|"),
        (r"fencelock status app : job :", "''", "'fencelock status app:job:'", "1|2|"),
        (r"fencelock wait 'my\ k'", r"'my\ k'", r"'fencelock wait my\ k'", r"my\ key|"),
        (r#"fencelock status "'my k""#, "'my k'", r#""fencelock status 'my k""#, "my key|"),
        (r#"fencelock status '"it'"#, "it", r#"'fencelock status "it'"#, "it's|"),
        (r"fencelock release --holder x it", "it", "'fencelock release --holder x it'", r"it\'s|"),
        (r"fencelock release --holder it", "it", "'fencelock release --holder it'", "|"),
        (
            r"fencelock status --url redis : //127.0.0.1 : 1 it",
            "it",
            "'fencelock status --url redis://127.0.0.1:1 it'",
            "|",
        ),
        (r"fencelock status --url = file : / it", "it", "'fencelock status --url=file:/ it'", "|"),
        (r"fencelock list it", "it", "'fencelock list it'", "|"),
    ] {
        assert_eq!(offered(words, last, line), keys, "{words}");
    }
}

#[test]
fn fish_offers_held_keys() {
    let Some(backend) = with_held_keys() else { return };
    if !has("fish") {
        return;
    }
    let script = Test::new(&backend, "completions fish").output().stdout;
    for (line, keys) in [
        ("fencelock status app", "app:job:1\napp:job:2\n"),
        ("fencelock break my", "my key\n"),
        ("fencelock wait -w 5 it", "it's\n"),
        ("fencelock --url redis://127.0.0.1:1 status it", ""),
        ("fencelock help stat", "status\tShow whether KEY is free (exit 0), or who holds it (exit 75)\n"),
    ] {
        assert_eq!(
            in_shell(&backend, "fish", &["--no-config"], &format!("{script}\ncomplete -C '{line}'")),
            keys,
            "{line}"
        );
    }
}

#[test]
fn zsh_offers_held_keys_where_they_are_meant() {
    let script = Test::new(&TestBackend::files(), "completions zsh").output().stdout;
    assert_eq!(script.matches(":key -- ").count(), 9, "{script}");
    assert_eq!(script.matches(":_fencelock_held' ").count(), 6, "{script}");
    assert!(!script.contains("_users") && script.matches("funcstack").count() == 1, "{script}");
    let Some(backend) = with_held_keys() else { return };
    if !has("zsh") {
        return;
    }
    for (words, prefix, keys) in [
        ("fencelock status", "app", "app:job:1|app:job:2|"),
        ("fencelock status", r"my\ k", "my key|"),
        ("fencelock --url redis://127.0.0.1:1 status", "it", ""),
        ("fencelock status --url=redis://127.0.0.1:1", "it", ""),
    ] {
        // The functions of the completion system, as far as the script uses them.
        let stubs = "_wanted() { (( $#keys )) && printf '%s|' $keys }; PREFIX='";
        let call = format!("{stubs}{prefix}'; _fencelock_words=({words} x); _fencelock_held");
        let call = format!("compdef() {{ : }}\n{script}\n{call}");
        assert_eq!(in_shell(&backend, "zsh", &["-f"], &call), keys, "{words} {prefix}");
    }
}

#[test]
fn completion_ends_soon_without_an_answer_and_creates_nothing() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}?timeout=60000", silent.local_addr().unwrap());
    let files = TestBackend::files();
    for url in [&url, files.url()] {
        let start = Instant::now();
        let output = Test::new(&files, "list").env("_FENCELOCK_COMPLETE", "1").env("FENCELOCK_URL", url).output();
        assert_eq!((output.status, &*output.stdout, &*output.stderr), (0, "", ""), "{url}");
        assert!(start.elapsed() < Duration::from_secs(20), "{url}: {:?}", start.elapsed());
    }
    assert!(!files.file("locks").exists());
}

#[test]
fn manual_pages_are_written() {
    let backend = TestBackend::files();
    let page = Test::new(&backend, "man run").output().stdout;
    assert!(page.contains(".TH fencelock-run 1 20") && page.contains(".SH \"EXIT STATUS\""), "{page}");
    assert!(page.contains(".SH \"SEE ALSO\"\nfencelock(1)"), "{page}");
    let page = Test::new(&backend, "man").output().stdout;
    for part in ["fencelock\\-doctor(1)", "FENCELOCK_URL", "trust_empty=true", ".SH ENVIRONMENT"] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn what_is_no_command_has_no_manual_page() {
    let backend = TestBackend::files();
    for line in ["man nonsense", "man run stock"] {
        assert_eq!(Test::new(&backend, line).output().status, 64, "{line}");
    }
}
