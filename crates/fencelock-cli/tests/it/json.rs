//! What docs/en/json.md says, and what the program writes.

use crate::backend::TestBackend;
use crate::running::{hold, wait_for_waiters, wait_until};
use crate::test::{Output, Test};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = include_str!("../../../../docs/en/json.md");

/// The items of the list below a heading: names, and what is said of them.
fn items(heading: &str) -> Vec<(Vec<String>, String)> {
    let (_, below) = PAGE.split_once(&format!("\n{heading}\n")).expect(heading);
    let section = below.split("\n#").next().unwrap();
    let items = section.lines().filter_map(|line| line.strip_prefix("- `")).map(|item| {
        let end = item.find("` (").into_iter().chain(item.find("`:")).min().expect(item);
        (item[..end].split("`, `").map(str::to_owned).collect(), item[end + 1..].to_owned())
    });
    let items: Vec<_> = items.collect();
    assert!(!items.is_empty(), "{heading}");
    items
}

fn quoted(text: &str) -> BTreeSet<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The type of each field of a list, whose items have one type for all of their fields, or one for each.
fn types(heading: &str) -> BTreeMap<String, String> {
    let typed = items(heading).into_iter().flat_map(|(names, rest)| {
        let (kinds, _) = rest.strip_prefix(" (").and_then(|rest| rest.split_once(')')).expect(&rest);
        let kinds: Vec<_> = kinds.split(", ").map(str::to_owned).collect();
        assert!(kinds.len() == 1 || kinds.len() == names.len(), "{names:?}: {kinds:?}");
        names.into_iter().zip(kinds.into_iter().cycle()).collect::<Vec<_>>()
    });
    let above = |name: &str, kind: String| if kind == "as above" { types("## Fields")[name].clone() } else { kind };
    typed.map(|(name, kind)| (name.clone(), above(&name, kind))).collect()
}

/// What the page says of an answer or an event.
fn item(heading: &str, name: &str) -> String {
    let found = items(heading).into_iter().find(|(names, _)| names.iter().any(|found| found == name));
    found.unwrap_or_else(|| panic!("{name} is not below {heading}")).1
}

/// What `command` answers, by the page.
fn answer_of(command: &str) -> BTreeSet<String> {
    let said = item("## Results", command);
    let mut fields = quoted(&said);
    if fields.remove("status") {
        fields.extend(answer_of("status"));
    }
    if said.contains("without `done`") {
        for only_of_status in ["done", "slots", "lost"] {
            fields.remove(only_of_status);
        }
    }
    fields
}

fn assert_is(fields: &BTreeSet<String>, object: &Value, heading: &str) {
    let names: BTreeSet<_> = object.as_object().expect("an object").keys().cloned().collect();
    assert_eq!(&names, fields, "{object}");
    let types = types(heading);
    for (name, value) in object.as_object().unwrap() {
        let wanted = types.get(name).unwrap_or_else(|| panic!("{name} is not in the table of {heading}"));
        let is = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_u64() => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        assert!(wanted.split(" or ").any(|wanted| wanted == is), "{name} is {is} and not {wanted}: {object}");
        if name == "owner" && !value.is_null() {
            assert_is(&types_of("### owner"), value, "### owner");
        }
        if name == "done" && !value.is_null() {
            assert_is(&types_of("### done"), value, "### done");
        }
        // They have the fields of `list`.
        if name == "locks" {
            value.as_array().unwrap().iter().for_each(|lock| assert_is(&answer_of("list"), lock, "## Fields"));
            continue;
        }
        for item in value.as_array().into_iter().flatten().filter(|item| !item.is_string()) {
            let heading = match name.as_str() {
                "nodes" => "### node",
                "servers" => "### server",
                "features" => "### feature",
                "holders" => "### holder",
                "queue" => "### waiter",
                "lost" => "### lost",
                _ => "### finding",
            };
            assert_is(&types_of(heading), item, heading);
        }
    }
}

fn types_of(heading: &str) -> BTreeSet<String> {
    types(heading).into_keys().collect()
}

/// Its answer, which has the fields of the page.
fn answer(backend: &TestBackend, line: &str, status: i32) -> Value {
    let output = Test::new(backend, &format!("--json {line}")).output();
    assert_eq!(output.status, status, "{line}: {}{}", output.stdout, output.stderr);
    assert!(events(&output).iter().all(|name| name == "backend"), "{line}: {}", output.stderr);
    assert_eq!(output.stdout.lines().count(), 1, "{line}: {}", output.stdout);
    let answer: Value = serde_json::from_str(&output.stdout).unwrap();
    let command = line.split(' ').next().unwrap();
    let fields = answer_of(match command {
        "doctor" if line.contains("--report") => "doctor --report",
        "top" => "top --once",
        command => command,
    });
    match &answer {
        Value::Array(items) => items.iter().for_each(|item| assert_is(&fields, item, "## Fields")),
        object => assert_is(&fields, object, "## Fields"),
    }
    answer
}

/// The names of its events, each of which has the fields of the page.
fn events(output: &Output) -> Vec<String> {
    let check = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let name = event["event"].as_str().unwrap().to_owned();
        let said = item("## Events", &name);
        let mut fields = said
            .strip_prefix(" (")
            .and_then(|said| said.split_once(')'))
            .map_or_else(BTreeSet::new, |(fields, _)| quoted(fields));
        fields.insert("event".to_owned());
        assert_is(&fields, &event, "## Fields");
        name
    };
    output.stderr.lines().map(check).collect()
}

#[test]
fn every_answer_is_as_documented() {
    let Some(backend) = TestBackend::redis() else { return };
    answer(&backend, "status k", 0);
    answer(&backend, "once k", 0);
    let once = Test::new(&backend, "--json run --once-per 365d k -- true");
    assert_eq!(once.output().status, 0);
    assert!(answer(&backend, "once k", 0)["done"].is_object());
    let again = Test::new(&backend, "--json run --once-per 365d k -- true").output();
    assert_eq!(events(&again), ["backend", "already_done"]);
    let taken = answer(&backend, "acquire --ttl 20s --label nightly k", 0);
    assert_eq!(taken["while_pid"], Value::Null);
    let holder = taken["holder"].as_str().unwrap().to_owned();
    let held = answer(&backend, "status k", 75);
    assert_eq!(held["owner"]["label"], "nightly");
    assert_eq!(answer(&backend, "list", 0).as_array().unwrap().len(), 1);
    assert_eq!(answer(&backend, "top --once", 0)["locks"][0]["owner"]["label"], "nightly");
    assert_eq!(answer(&backend, "wait -w 0 k", 75)["held"], true);
    let renewed = answer(&backend, &format!("renew k --ttl 60s --holder {holder}"), 0);
    assert!(renewed["expires_in_ms"].as_u64().unwrap() > 30_000, "{renewed}");
    assert_eq!(answer(&backend, &format!("release k --holder {holder}"), 0)["released"], true);
    assert_eq!(answer(&backend, &format!("release k --holder {holder}"), 76)["released"], false);
    assert_eq!(answer(&backend, &format!("renew k --holder {holder}"), 76)["renewed"], false);
    assert_eq!(answer(&backend, "wait k", 0)["held"], false);
    assert_eq!(answer(&backend, "break --yes k", 0)["broken"], false);
    answer(&backend, "acquire k", 0);
    let broken = answer(&backend, "break --yes k", 0);
    assert_eq!((&broken["broken"], &broken["held"]), (&true.into(), &true.into()));
    let kept = answer(&backend, &format!("acquire --while-pid {} kept", std::process::id()), 0);
    assert_eq!((&kept["while_pid"], &kept["slot"]), (&std::process::id().into(), &Value::Null));
    assert_eq!(answer(&backend, "status kept -q", 75)["owner"]["while_pid"], std::process::id());
    let holder = kept["holder"].as_str().unwrap().to_owned();
    assert_eq!(answer(&backend, &format!("renew kept --holder {holder}"), 0)["renewed"], true);
    answer(&backend, "break --yes kept", 0);
    let lost = answer(&backend, "status kept", 0);
    assert_eq!(lost["lost"][0]["pid"], std::process::id(), "{lost}");
    assert_eq!(answer(&backend, &format!("renew kept --holder {holder}"), 76)["renewed"], false);
    assert_eq!(answer(&backend, &format!("release kept --holder {holder}"), 76)["released"], false);
    answer(&backend, "acquire --permits 2 pool", 0);
    let resized = answer(&backend, "resize --permits 3 pool", 0);
    assert_eq!((&resized["resized"], &resized["limit_before"]), (&true.into(), &2.into()));
    assert_eq!(answer(&backend, "resize --permits 3 pool", 0)["resized"], false);
    assert_eq!(answer(&backend, "config", 0)["ttl_ms"], 30_000);
    answer(&backend, "doctor", 0);
    let quiet = answer(&backend, "doctor -q", 0);
    assert_eq!(quiet["findings"], Value::Array(Vec::new()), "nothing is wrong there");
    let report = answer(&backend, "doctor --report", 0);
    let server = &report["servers"][0];
    assert_eq!((&server["topology"], &server["reason"]), (&"single".into(), &Value::Null), "{report}");
    assert!(server["product"].is_string() && server["version"].is_string(), "{report}");
    let lacking: Vec<_> =
        server["features"].as_array().unwrap().iter().filter(|feature| feature["works"] != true).collect();
    assert!(lacking.is_empty() && !server["features"].as_array().unwrap().is_empty(), "{report}");
    assert_eq!((&report["wire"], &report["options"]["timeout"]), (&1.into(), &"5000".into()));
    assert_eq!(report["modes"], serde_json::json!(["exclusive", "shared", "permits"]));
}

#[test]
fn a_report_is_json_without_the_option_and_has_no_password() {
    let Some(backend) = TestBackend::redis() else { return };
    let secret = backend.url().replace("redis://", "redis://default:s3cret@");
    backend.server().command(&["CONFIG", "SET", "requirepass", "s3cret"]);
    for (url, answers) in [(secret.as_str(), true), (backend.url(), false)] {
        let output = Test::new(&backend, "doctor --report --url").arg(url).output();
        assert_eq!(output.status, if answers { 0 } else { 69 }, "{}{}", output.stdout, output.stderr);
        let report: Value = serde_json::from_str(&output.stdout).unwrap();
        assert!(!output.stdout.contains("s3cret"), "{report}");
        assert_eq!(report["servers"][0]["reason"].is_null(), answers, "{report}");
        assert_eq!(report["options"]["push"], "on", "the options do not depend on the server: {report}");
    }
}

#[test]
fn a_backend_without_servers_has_a_report() {
    let report = answer(&TestBackend::files(), "doctor --report", 0);
    assert_eq!((&report["servers"], &report["wire"]), (&Value::Array(Vec::new()), &Value::Null), "{report}");
}

#[test]
fn the_answer_of_init_is_as_documented() {
    let Some(backend) = TestBackend::redis() else { return };
    let url = backend.url().replace("redis://", "redlock://");
    let nodes = answer(&backend, &format!("init --trust-empty --url {url}"), 0);
    assert_eq!((&nodes["nodes"][0]["was"], &nodes["nodes"][0]["ready_in_ms"]), (&"new".into(), &0.into()));
}

#[test]
fn what_another_program_has_put_there_is_foreign() {
    let Some(backend) = TestBackend::redis() else { return };
    backend.server().command(&["SET", "k", "5f3b12ab-secret", "PX", "600000"]);
    let held = answer(&backend, "status k", 75);
    assert!(held["owner"].is_null() && held["foreign"].is_string() && held["fence"].is_null(), "{held}");
    assert!(!held.to_string().contains("secret"), "{held}");
}

#[test]
fn every_event_is_as_documented() {
    let Some(backend) = TestBackend::redis() else { return };
    let run = |line: &str| events(&Test::new(&backend, &format!("--json {line}")).output());
    assert_eq!(run("run k -- true"), ["backend", "acquired", "started", "exited", "released"]);
    let kept = run("run k --hold-for 3s -- true");
    assert!(kept.iter().any(|name| name == "keeping"), "{kept:?}");
    let killed = events(&Test::script(&backend, "--json k", "kill -KILL $$").output());
    assert_eq!(killed, ["backend", "acquired", "started", "exited", "released"]);
}

#[test]
fn the_output_of_an_election_is_as_documented() {
    let Some(backend) = TestBackend::redis() else { return };
    let mut leader = Test::new(&backend, "--json elect --value v --ttl 3s e -- sh -c").arg("echo runs; read _").start();
    leader.wait_for("runs");
    let mut observer = Test::new(&backend, "--json elect --observe e").start();
    observer.wait_for("{");
    answer(&backend, "break --yes e", 0);
    leader.wait_for("runs");
    leader.say("\n");
    let reported = events(&leader.end());
    for name in ["acquired", "started", "terminating", "exited", "campaigning", "released"] {
        assert!(reported.iter().any(|reported| reported == name), "{name} in {reported:?}");
    }
    wait_until("the end", || (answer_or_busy(&backend)["held"] == false).then_some(()));
    observer.wait_for("\"led\":false");
    backend.server().freeze();
    observer.wait_for("\"led\":null");
    backend.server().thaw();
    observer.kill("TERM");
    let seen: Vec<Value> = observer.end().stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for line in &seen {
        assert_is(&answer_of("elect --observe"), line, "## Fields");
    }
    assert_eq!((&seen[0]["value"], &seen[0]["owner"]["label"]), (&"v".into(), &"v".into()));
    assert!(seen[0]["fence"].is_u64() && seen.iter().any(|line| line["reason"].is_string()), "{seen:?}");
}

fn answer_or_busy(backend: &TestBackend) -> Value {
    Test::new(backend, "--json status e").json()
}

#[test]
fn events_about_several_locks_list_them() {
    let backend = TestBackend::files();
    let output = Test::script(&backend, "--json --max-hold 1s b --also a", "exec sleep 1000").output();
    let names = events(&output);
    assert_eq!(names[..5], ["backend", "backend", "acquired", "acquired", "started"]);
    let lines = output.stderr.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ended = lines.clone().find(|event| event["event"] == "terminating").unwrap();
    assert_eq!((&ended["key"], &ended["keys"]), (&Value::Null, &serde_json::json!(["b", "a"])));
    let acquired: Vec<_> =
        lines.filter(|event| event["event"] == "acquired").map(|event| event["key"].clone()).collect();
    assert_eq!(acquired, ["b", "a"]);
}

#[test]
fn an_end_by_force_is_reported_as_documented() {
    let backend = TestBackend::files();
    let script = "trap '' TERM; echo ready; while :; do sleep 0.1; done";
    let reported = events(&crate::holding::held_too_long(&backend, "--json --grace 1s", script));
    // On a busy machine the second process is first, which is reported as `late`.
    for names in [&["acquired"][..], &["started"], &["terminating"], &["killing", "late"], &["exited"]] {
        assert!(reported.iter().any(|reported| names.contains(&reported.as_str())), "{names:?} in {reported:?}");
    }
}

#[test]
fn a_wait_is_reported_as_documented() {
    let Some(backend) = TestBackend::redis() else { return };
    let holder = answer(&backend, "acquire --ttl 10m --label nightly k", 0)["holder"].as_str().unwrap().to_owned();
    let waiter = Test::new(&backend, "--json acquire --ttl 20s k").start();
    wait_for_waiters(&backend, "k", 1);
    answer(&backend, &format!("release k --holder {holder}"), 0);
    let output = waiter.end();
    assert_eq!(events(&output)[..2], ["backend", "waiting"]);
    let waiting: Value = serde_json::from_str(output.stderr.lines().nth(1).unwrap()).unwrap();
    assert_eq!((&waiting["owner"]["label"], &waiting["ahead"]), (&"nightly".into(), &0.into()));
    // What a hand-off gives is short until it is renewed.
    let taken: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_is(&answer_of("acquire"), &taken, "## Fields");
    assert!(taken["expires_in_ms"].as_u64().unwrap() > 15_000, "{taken}");
}

#[test]
fn every_failure_is_an_event_with_a_kind() {
    let backend = TestBackend::files();
    let holder = hold(&backend, "taken");
    for (line, kind, exit) in [
        ("--json", "usage", 64),
        ("--json nonsense", "usage", 64),
        ("run --json", "usage", 64),
        ("status --json --nonsense k", "usage", 64),
        ("release k --json", "usage", 64),
        ("run --json -w nan k -- true", "usage", 64),
        ("--json acquire k", "usage", 64),
        ("--json break taken", "usage", 64),
        ("--json list --url redis://127.0.0.1:1", "unreachable", 69),
        ("--json run -n taken -- true", "busy", 75),
        ("--json run -n -E 3 taken -- true", "busy", 3),
        ("--json run k -- no-such-command-here", "not_found", 127),
        ("--json run k -- /dev/null", "not_executable", 126),
    ] {
        let output = Test::new(&backend, line).output();
        assert_eq!(output.status, exit, "{line}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{line}");
        assert_eq!(events(&output).last().unwrap(), "error", "{line}");
        let last: Value = serde_json::from_str(output.stderr.lines().last().unwrap()).unwrap();
        assert_eq!((&last["kind"], &last["exit"]), (&kind.into(), &exit.into()), "{line}: {last}");
    }
    drop(holder);
}

#[test]
fn a_flag_of_the_command_is_not_ours() {
    let backend = TestBackend::files();
    Test::new(&backend, "run --nonsense k -- c --json").says(64, &["fencelock: unexpected"]);
}

#[test]
fn every_field_of_the_page_is_in_a_result_or_an_event() {
    let said = items("## Results").into_iter().chain(items("## Events"));
    let used: BTreeSet<_> = said.flat_map(|(_, said)| quoted(&said)).chain(["event".to_owned()]).collect();
    for field in types_of("## Fields") {
        assert!(used.contains(&field), "{field}");
    }
}
