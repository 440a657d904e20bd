//! The numbers for operators, as a recorder of the `metrics` facade receives them, and as docs/en/metrics.md promises them.
#![cfg(feature = "metrics")]
#![allow(missing_docs, clippy::unwrap_used)]

#[allow(unreachable_pub, reason = "users copy this file into programs of their own")]
#[path = "../../../contrib/prometheus/buckets.rs"]
mod buckets;

use fencelock::Client;
use metrics_exporter_prometheus::PrometheusBuilder;
use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

const PAGE: &str = include_str!("../../../docs/en/metrics.md");
const DOCS: &str = include_str!("../src/telemetry/mod.rs");

/// One series: its name, its labels and its value.
type Series = BTreeMap<(String, BTreeMap<String, String>), Seen>;

struct Seen {
    kind: MetricKind,
    unit: Option<&'static str>,
    help: Option<String>,
    value: DebugValue,
}

/// What a recorder of this thread alone has received when `work` is done.
fn recorded(work: impl Future<Output = ()>) -> Series {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || runtime.block_on(work));
    let seen = snapshots.snapshot().into_vec().into_iter().map(|(id, unit, help, value)| {
        let (kind, key) = id.into_parts();
        let labels = key.labels().map(|label| (label.key().to_owned(), label.value().to_owned())).collect();
        let unit = unit.map(|unit| unit.as_str());
        ((key.name().to_owned(), labels), Seen { kind, unit, help: help.map(|help| help.to_string()), value })
    });
    seen.collect()
}

fn rows<'a>(page: &'a str, head: &str) -> Vec<Vec<&'a str>> {
    let (_, table) = page.split_once(head).unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.contains('|'));
    rows.map(|row| row.split('|').map(str::trim).skip(1).collect()).collect()
}

fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

const HEAD: &str = "| number | kind | unit | labels | meaning |";

#[test]
fn from_the_beginning_every_series_of_the_page_is_there_and_zero() {
    let series = recorded(async {
        let _client = Client::connect("memory:start").await.unwrap();
    });
    let labels = rows(PAGE, "| label | of | values |");
    let values = |name: &str, label: &str| -> Vec<String> {
        let row =
            labels.iter().find(|row| row[0] == format!("`{label}`") && quoted(row[1]).iter().any(|of| of == name));
        quoted(row.unwrap_or_else(|| panic!("{label} of {name}"))[2])
    };
    let mut promised = BTreeSet::new();
    for row in rows(PAGE, HEAD) {
        let name = quoted(row[0]).remove(0);
        let backend = ("backend".to_owned(), "memory:start".to_owned());
        let others: Vec<_> = quoted(row[3]).into_iter().filter(|label| label != "backend").collect();
        let mut combinations = vec![BTreeMap::from([backend])];
        for label in others {
            let with = |labels: &BTreeMap<_, _>, value: &String| {
                let mut labels = labels.clone();
                labels.insert(label.clone(), value.clone());
                labels
            };
            let values = values(&name, &label);
            combinations =
                combinations.iter().flat_map(|labels| values.iter().map(|value| with(labels, value))).collect();
        }
        promised.extend(combinations.into_iter().map(|labels| (name.clone(), labels)));
        for (_, seen) in series.iter().filter(|((of, _), _)| *of == name) {
            assert_eq!(
                (format!("{:?}", seen.kind).to_lowercase().as_str(), seen.unit),
                (row[1], Some(row[2])),
                "{name}"
            );
            assert!(seen.help.as_ref().is_some_and(|help| !help.is_empty()), "{name}");
            let zero = match &seen.value {
                DebugValue::Counter(count) => *count == 0,
                DebugValue::Gauge(level) => level.0 == 0.0,
                DebugValue::Histogram(spans) => spans.is_empty(),
            };
            assert!(zero, "{name}: {:?}", seen.value);
        }
    }
    assert_eq!(series.keys().cloned().collect::<BTreeSet<_>>(), promised);
    assert!(PAGE.contains(&format!("there are {} series", promised.len())), "{}", promised.len());
}

#[test]
fn the_documentation_of_the_library_has_the_table_of_the_page() {
    let of_library: String = DOCS.lines().map(|line| line.trim_start_matches("//! ").to_owned() + "\n").collect();
    assert_eq!(rows(&of_library, HEAD), rows(PAGE, HEAD));
}

/// Backends in memory are the same for the whole process, so each test has one of its own.
async fn waits_holds_and_losses(backend: &str) {
    let client = Client::builder().sharing(false).connect(backend).await.unwrap();
    let held = client.lock("secret-order-7").await.unwrap();
    assert!(client.lock("secret-order-7").wait(Duration::from_millis(20)).await.is_err());
    assert!(client.lock("secret-order-7").retry(3, Duration::from_millis(1)).await.is_err());
    let given_up = tokio::time::timeout(Duration::from_millis(5), client.lock("secret-order-7").acquire()).await;
    assert!(given_up.is_err());
    while client.inspect("secret-order-7").await.unwrap().unwrap().waiters > 0 {
        tokio::task::yield_now().await;
    }
    let waiting = tokio::spawn(client.lock("secret-order-7").acquire());
    while client.inspect("secret-order-7").await.unwrap().unwrap().waiters == 0 {
        tokio::task::yield_now().await;
    }
    held.release().await.unwrap();
    let handed = waiting.await.unwrap().unwrap();
    let seen = client.inspect("secret-order-7").await.unwrap().unwrap();
    client.evict(&seen).await.unwrap();
    handed.lost().await;
    drop(handed);
    let holder = client.lock("secret-order-7").label("for alice").await.unwrap().into_holder();
    client.lock("secret-order-7").resume(holder).await.unwrap().release().await.unwrap();
    client.lock("read").shared().await.unwrap().release().await.unwrap();
    client.lock("read").await.unwrap().downgrade().await.unwrap().release().await.unwrap();
    let writer = client.lock("read").await.unwrap();
    assert!(client.lock("read").shared().try_acquire().await.unwrap().is_none());
    writer.release().await.unwrap();
    let reader = client.lock("read").shared().await.unwrap();
    client.evict(&client.inspect("read").await.unwrap().unwrap()).await.unwrap();
    reader.lost().await;
    drop(reader);
    let semaphore = client.semaphore("permits", 3);
    let permits = semaphore.acquire(2).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(5), semaphore.acquire(2)).await.is_err());
    permits.release().await.unwrap();
    client.close(Duration::from_secs(10)).await.unwrap();
}

#[test]
fn waits_holds_and_losses_are_counted_by_how_they_ended() {
    let series = recorded(waits_holds_and_losses("memory:metrics"));
    let of = |name: &str, labels: &[(&str, &str)]| {
        let backend = ("backend".to_owned(), "memory:metrics".to_owned());
        let labels = labels.iter().map(|(label, value)| ((*label).to_owned(), (*value).to_owned())).chain([backend]);
        let key = (name.to_owned(), labels.collect());
        &series.get(&key).unwrap_or_else(|| panic!("{key:?}")).value
    };
    for (mode, outcome, count) in [
        ("exclusive", "claimed", 4),
        ("exclusive", "handed", 1),
        ("exclusive", "busy", 2),
        ("exclusive", "cancelled", 1),
        ("exclusive", "resumed", 1),
        ("exclusive", "closed", 0),
        ("shared", "claimed", 2),
        ("shared", "busy", 1),
        ("permits", "claimed", 1),
        ("permits", "cancelled", 1),
    ] {
        let counted = of("fencelock_acquisitions_total", &[("mode", mode), ("outcome", outcome)]);
        assert_eq!(*counted, DebugValue::Counter(count), "{mode} {outcome}");
    }
    let DebugValue::Counter(wasted) = of("fencelock_wasted_wakeups_total", &[]) else { panic!("a counter") };
    assert!(*wasted >= 2, "of three questions two came after an answer: {wasted}");
    for (mode, counts) in [("exclusive", [0, 1, 0, 0]), ("shared", [0, 1, 0, 0]), ("permits", [0; 4])] {
        let lost = ["expired", "deleted", "taken", "max_hold"]
            .map(|reason| of("fencelock_lost_total", &[("mode", mode), ("reason", reason)]));
        assert!(lost.into_iter().eq(&counts.map(DebugValue::Counter)), "{mode}: {lost:?}");
        for gauge in ["fencelock_held", "fencelock_waiters"] {
            assert_eq!(*of(gauge, &[("mode", mode)]), DebugValue::Gauge(0.0.into()), "as often up as down");
        }
    }
    for name in ["fencelock_wait_seconds", "fencelock_hold_seconds"] {
        for (mode, count) in [("exclusive", 6), ("shared", 3), ("permits", 1)] {
            // A downgrade ends an exclusive hold and begins a shared one, without a wait.
            let count = if (name, mode) == ("fencelock_wait_seconds", "shared") { 2 } else { count };
            let spans = of(name, &[("mode", mode)]);
            assert!(matches!(spans, DebugValue::Histogram(spans) if spans.len() == count), "{name} {mode}: {spans:?}");
        }
    }
}

#[test]
fn no_label_contains_a_key_or_a_holder() {
    let series = recorded(waits_holds_and_losses("memory:labels"));
    for (name, labels) in series.keys() {
        for (label, value) in labels {
            assert!(["backend", "outcome", "reason", "mode"].contains(&label.as_str()), "{name} {label}");
            assert!(!value.contains("order") && !value.contains("alice"), "{name} {label}={value}");
        }
    }
    let start = recorded(async {
        let _client = Client::connect("memory:labels").await.unwrap();
    });
    assert!(series.keys().eq(start.keys()), "nothing that is done adds a series");
}

#[test]
fn with_the_buckets_of_contrib_every_histogram_can_be_added_up() {
    let recorder = buckets::with_fencelock_buckets(PrometheusBuilder::new()).unwrap().build_recorder();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let histograms: Vec<_> =
        rows(PAGE, HEAD).iter().filter(|row| row[1] == "histogram").map(|row| quoted(row[0]).remove(0)).collect();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(waits_holds_and_losses("memory:buckets"));
        // Locks in memory are not renewed.
        metrics::histogram!("fencelock_renewal_seconds", "backend" => "memory:buckets").record(0.002);
    });
    let text = recorder.handle().render();
    assert!(histograms.len() == 3 && !text.contains("quantile="), "{text}");
    for name in histograms {
        assert!(text.contains(&format!("# TYPE {name} histogram\n")), "{name}: {text}");
        let buckets = text.lines().filter(|line| line.starts_with(&format!("{name}_bucket{{")));
        assert!(
            buckets.filter(|line| line.contains("le=\"0.001\"") || line.contains("le=\"+Inf\"")).count() >= 2,
            "{name}"
        );
    }
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut promtool) = promtool.spawn() else { return eprintln!("skipped: there is no promtool") };
    promtool.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
}
