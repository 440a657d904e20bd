//! Checks hand-written histories: the head of each describes it and lists the expected violations.
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock_chaos::checker::{CheckResults, Violation, check};
use fencelock_chaos::history::History;
use std::fs;
use std::path::{Path, PathBuf};

/// The expected and the actual violations of a fixture: `C3 lines 1, 1, 2`.
struct Case {
    path: PathBuf,
    head: String,
    results: CheckResults,
}

fn cases(kind: &str) -> Vec<Case> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/histories").join(kind);
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap();
            let history = History::read(text.as_bytes()).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
            let head = text.lines().take_while(|line| line.starts_with('#')).collect::<Vec<_>>().join("\n");
            Case { path, head, results: check(&history) }
        })
        .collect()
}

impl Case {
    fn wants(&self, kind: &str) -> Vec<String> {
        let prefix = format!("# {kind}: ");
        let mut wants: Vec<_> =
            self.head.lines().filter_map(|line| line.strip_prefix(&prefix)).map(str::to_owned).collect();
        wants.sort();
        wants
    }

    fn found(violations: &[Violation]) -> Vec<String> {
        let lines = |it: &Violation| it.lines.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let mut found: Vec<_> =
            violations.iter().map(|it| format!("{} lines {}", it.check, lines(it)).trim_end().to_owned()).collect();
        found.sort();
        found
    }

    fn assert(&self) {
        for (kind, violations) in
            [("broken", &self.results.broken), ("excused", &self.results.excused), ("wanted", &self.results.wanted)]
        {
            assert_eq!(Self::found(violations), self.wants(kind), "{kind} in {}: {violations:#?}", self.path.display());
        }
    }
}

#[test]
fn good_histories_have_no_violation() {
    let cases = cases("good");
    assert!(cases.len() >= 15, "only {} good histories", cases.len());
    for case in cases {
        assert!(case.wants("broken").is_empty(), "{} is not good", case.path.display());
        case.assert();
    }
}

#[test]
fn bad_histories_have_exactly_their_expected_violations() {
    let cases = cases("bad");
    assert!(cases.len() >= 15, "only {} bad histories", cases.len());
    for case in cases {
        assert!(!case.wants("broken").is_empty(), "{} lists no violation", case.path.display());
        case.assert();
    }
}

#[test]
fn every_check_has_a_bad_history() {
    let wants: Vec<String> = cases("bad").iter().flat_map(|case| case.wants("broken")).collect();
    for check in fencelock_chaos::checker::Check::ALL {
        assert!(wants.iter().any(|want| want.starts_with(&check.to_string())), "{check}");
    }
}

#[test]
fn an_invalid_line_is_reported() {
    let why = History::read("# head\n{\"op\":\"stop\"}\n".as_bytes()).unwrap_err().to_string();
    assert!(why.starts_with("line 2: "), "{why}");
}

#[test]
fn the_incomplete_last_line_of_a_killed_process_is_ignored() {
    let history = History::read_torn("{\"op\":\"stop\",\"invoke_us\":1,\"return_us\":2}\n{\"op\":\"st").unwrap();
    assert_eq!(history.lines.len(), 1);
}
