//! Manual pages and completions.

use crate::backend::TestBackend;
use crate::test::Test;
use std::process::Command;

#[test]
fn completions_are_written_for_every_shell() {
    let backend = TestBackend::files();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = Test::new(&backend, &format!("completions {shell}")).output();
        assert!(output.status == 0 && output.stdout.contains("max-hold"), "{shell}");
    }
}

/// The completions of bash for the last of these words.
fn offered(script: &str, words: &str) -> Vec<String> {
    let count = words.split(' ').count() - 1;
    let line = format!(
        "{script}\nCOMP_WORDS=({words}); COMP_CWORD={count}; \"$(complete -p fencelock | sed 's/.*-F \\([^ ]*\\) .*/\\1/')\" \
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
    for line in ["man nonsense", "man run stock", "man bench worker"] {
        assert_eq!(Test::new(&backend, line).output().status, 64, "{line}");
    }
}
