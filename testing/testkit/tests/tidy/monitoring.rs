//! The alerts and the dashboard in `contrib` name what the library reports.

use crate::tree::root;
use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn is_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// What follows `start` in a text, each up to the first character that no name has.
fn names<'a>(text: &'a str, start: &'a str) -> BTreeSet<&'a str> {
    let ends = |rest: &'a str| rest.split(|c| !is_name(c)).next().unwrap_or_default();
    text.match_indices(start).map(|(at, _)| ends(&text[at..])).collect()
}

/// The metrics of the page, and the series that an exporter makes of a histogram.
fn series() -> BTreeSet<String> {
    let page = read("docs/en/metrics.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `fencelock_")?.split_once("` | "));
    let series = rows.flat_map(|(name, rest)| {
        let endings: &[&str] = if rest.starts_with("histogram") { &["_bucket", "_sum", "_count"] } else { &[""] };
        endings.iter().map(move |ending| format!("fencelock_{name}{ending}"))
    });
    let series: BTreeSet<_> = series.collect();
    assert!(series.len() > 10, "{series:?}");
    series
}

const QUERIES: [&str; 3] = [
    "contrib/prometheus/fencelock.rules.yml",
    "contrib/prometheus/fencelock.test.yml",
    "contrib/grafana/fencelock.json",
];

#[test]
fn alerts_and_dashboard_name_only_metrics_that_exist() {
    let known = series();
    for path in QUERIES {
        let text = read(path);
        // Names of files and of the dashboard have no underscore.
        let used = names(&text, "fencelock_");
        assert!(used.len() >= 3, "{path}: {used:?}");
        let unknown: Vec<_> = used.iter().filter(|name| !known.contains(**name)).collect();
        assert!(unknown.is_empty(), "{path}: {unknown:?}");
    }
}

#[test]
fn the_buckets_are_those_of_all_histograms() {
    let (known, buckets) = (series(), read("contrib/prometheus/buckets.rs"));
    let histograms: BTreeSet<_> = known.iter().filter_map(|series| series.strip_suffix("_bucket")).collect();
    // The name of the function has no unit.
    let named: BTreeSet<_> =
        names(&buckets, "fencelock_").into_iter().filter(|name| *name != "fencelock_buckets").collect();
    assert_eq!(named, histograms);
}

#[test]
fn alerts_and_dashboard_compare_labels_only_with_values_that_exist() {
    let page = read("docs/en/metrics.md");
    let mut compared = 0;
    for path in QUERIES {
        let text = read(path).replace("\\\"", "\"");
        for label in ["outcome", "reason", "mode"] {
            let values = text.split(label).skip(1).filter_map(|rest| {
                let quoted = ["=", "!=", "=~", "!~"].iter().find_map(|is| rest.strip_prefix(is)?.strip_prefix('"'));
                quoted?.split('"').next()
            });
            for value in values.flat_map(|values| values.split('|')) {
                compared += 1;
                assert!(page.contains(&format!("`{value}`")), "{path}: {label}={value:?}");
            }
        }
    }
    assert!(compared >= 5, "{compared}");
}

#[test]
fn every_alert_has_its_section_in_the_runbook() {
    let (rules, runbook) = (read("contrib/prometheus/fencelock.rules.yml"), read("contrib/runbook.md"));
    let after = |line: &str, start: &str| line.trim().strip_prefix(start).map(str::to_owned);
    let alerts: BTreeSet<_> = rules.lines().filter_map(|line| after(line, "- alert: ")).collect();
    let sections: BTreeSet<_> = runbook.lines().filter_map(|line| after(line, "## ")).collect();
    assert!(alerts.len() >= 6 && alerts.is_subset(&sections), "{alerts:?} {sections:?}");
    assert!(
        sections.difference(&alerts).all(|section| section.contains(' ')),
        "of an alert that is gone: {sections:?}"
    );
    for alert in alerts {
        let link = format!("runbook: contrib/runbook.md#{}", alert.to_lowercase());
        assert!(rules.contains(&link), "{link}");
    }
}

#[test]
fn the_alerts_fire_when_they_should() {
    for (verb, file) in [("check", "fencelock.rules.yml"), ("test", "fencelock.test.yml")] {
        let mut promtool = Command::new("promtool");
        promtool.args([verb, "rules", file]).current_dir(root().join("contrib/prometheus"));
        let Ok(output) = promtool.output() else {
            return eprintln!("skipped: there is no promtool");
        };
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
    }
}
