//! The commands on Leases of Kubernetes: as far as they need no API server, and on one, beside candidates of client-go.

use crate::backend::TestBackend;
use crate::running::{PATIENCE, Running};
use crate::test::{Output, Test};
use fencelock_testkit::{KubeCluster, Proxy, SplitMix};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::thread::sleep;
use std::time::Duration;
use tokio::time::Instant;

#[test]
fn a_url_or_a_kubeconfig_that_is_wrong_is_refused_at_once() {
    let backend = TestBackend::files();
    for (url, text) in [
        ("kube-lease:///", "kube-lease:///NAMESPACE"),
        ("kube-lease:///jobs?contxt=x", "contxt"),
        ("kube-lease://s3cret@host/jobs", "kubeconfig"),
        ("kube-lease:///jobs?kubeconfig=/nowhere", "/nowhere: No such file"),
        ("kube-lease:///jobs", "set KUBECONFIG"),
    ] {
        let test = Test::new(&backend, "run k -- true").env("FENCELOCK_URL", url);
        let output = test.env("KUBECONFIG", "/nowhere").env("KUBERNETES_SERVICE_HOST", "").output();
        let shown = output.stderr;
        assert!(output.status == 64 && shown.contains(text) && !shown.contains("s3cret"), "{}: {shown}", output.status);
    }
}

/// Of the commands and of the candidates.
const LEASE: Duration = Duration::from_secs(4);
const COMMANDS: usize = 4;
const CANDIDATES: usize = 2;

/// Of two that overlap, both write the same number.
const INCREMENT: &str = "set -- $(tail -n 1 counter); sleep $0; echo $(($1 + 1)) $FENCELOCK_FENCE >>counter";

/// So many kinds happen one after another.
const FAULTS: usize = 7;

/// Commands that increment a counter and candidates that lead, in one election.
struct Race {
    cluster: KubeCluster,
    backend: TestBackend,
    /// In front of every second command, of the others, and of the candidates.
    proxies: [Proxy; 3],
    random: SplitMix,
    started: usize,
    running: Vec<Running>,
    /// How many commands have ended with each code.
    ended: BTreeMap<i32, usize>,
    /// Prints the Lease after each change.
    watch: Running,
    election: Election,
}

impl Race {
    fn new(cluster: KubeCluster) -> Self {
        let proxies = [(); 3].map(|()| Proxy::to(cluster.port()).unwrap());
        for (name, proxy) in ["even", "odd", "candidates"].into_iter().zip(&proxies) {
            cluster.write_kubeconfig(name, "token: admin", proxy.port());
        }
        let backend = TestBackend::files();
        std::fs::write(backend.file("counter"), "0 0\n").unwrap();
        let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
        let watch = format!("{leases}?watch=1&fieldSelector=metadata.name%3Dcounter&timeoutSeconds=86400");
        let watch = Running::start(cluster.curl("GET", &watch), "");
        let mut race = Self {
            cluster,
            backend,
            proxies,
            random: SplitMix::new(1),
            started: 0,
            running: Vec::new(),
            ended: BTreeMap::new(),
            watch,
            election: Election::default(),
        };
        for place in 0..COMMANDS + CANDIDATES {
            let running = race.start(place);
            race.running.push(running);
        }
        race
    }

    fn start(&mut self, place: usize) -> Running {
        self.started += 1;
        let command = if place < COMMANDS {
            let url = self.cluster.url(["even", "odd"][place % 2], "default");
            // Most are short. Some are renewed, and lost if they are cut off.
            let pause = if self.random.percent(4) { "6" } else { "0.02" };
            let run = format!("-q run --ttl {}s counter -- sh -c", LEASE.as_secs());
            Test::new(&self.backend, &run).arg(INCREMENT).arg(pause).env("FENCELOCK_URL", &url).command()
        } else {
            self.cluster.candidate("candidates", "counter", &format!("pod-{}", self.started), LEASE)
        };
        Running::start(command, "")
    }

    /// Starts those again that have ended, and looks at who has held the Lease.
    fn go_on(&mut self) {
        for place in 0..self.running.len() {
            if !self.running[place].has_ended() {
                continue;
            }
            let new = self.start(place);
            let Output { status, stderr, .. } = std::mem::replace(&mut self.running[place], new).end();
            if place < COMMANDS {
                assert!([0, 69, 76].contains(&status), "{status}: {stderr}");
                *self.ended.entry(status).or_default() += 1;
            }
        }
        while let Some(change) = self.watch.line() {
            let mut change: Value = serde_json::from_str(&change).unwrap();
            assert!(["ADDED", "MODIFIED"].contains(&change["type"].as_str().unwrap()), "{change}");
            self.election.see(change["object"].take());
        }
    }

    fn inject(&mut self, fault: usize) {
        let span = Duration::from_millis(500 + self.random.below(6000));
        let candidate = COMMANDS + self.random.index(CANDIDATES);
        match fault % FAULTS {
            0 => {
                let holder = self.election.holder();
                let holds = |running: &Running| holder.contains(&format!(":{}", running.pid()));
                let place = self.running.iter().position(holds).unwrap_or(candidate);
                // This kills it.
                self.running[place] = self.start(place);
            }
            1 => self.disturb(0..1, Proxy::cut, span),
            // A candidate leads then, and may free what it finds when it hears again.
            2 => self.disturb(0..2, Proxy::cut, LEASE * 2),
            3 => self.disturb(2..3, Proxy::hold, LEASE + span / 6),
            4 => self.running[candidate].kill("TERM"),
            5 => self.disturb(2..3, Proxy::cut, span),
            _ => self.running[candidate].kill("KILL"),
        }
    }

    fn disturb(&mut self, proxies: Range<usize>, how: fn(&Proxy), span: Duration) {
        self.proxies[proxies.clone()].iter().for_each(how);
        self.run_for(span);
        self.proxies[proxies].iter().for_each(Proxy::forward);
    }

    fn counter(&self) -> String {
        std::fs::read_to_string(self.backend.file("counter")).unwrap()
    }

    fn run_for(&mut self, span: Duration) {
        let started = Instant::now();
        while started.elapsed() < span {
            self.go_on();
            sleep(Duration::from_millis(20));
        }
    }
}

/// Who has held a Lease.
#[derive(Default)]
struct Election {
    lease: Value,
    /// How often candidates have led.
    led: usize,
    /// How often a lease was over when another one took it.
    over: usize,
    /// The tokens of commands whose Lease a candidate has freed.
    freed: BTreeSet<u64>,
}

impl Election {
    fn holder(&self) -> String {
        holder(&self.lease)
    }

    /// Each change is the end of a lease, or is made by its holder: or a candidate frees what it finds.
    fn see(&mut self, lease: Value) {
        let (before, after) = (self.holder(), holder(&lease));
        let is_candidate = before.starts_with("pod-");
        if before != after && !before.is_empty() {
            // client-go does not know it.
            let record = |lease: &Value| lease["metadata"]["annotations"]["fencelock.dev/record"].clone();
            let by_candidate = record(&self.lease) == record(&lease);
            if !after.is_empty() {
                // What a command has written within a second of its last renewal seems to be of the next one.
                let slack = if is_candidate { 0.0 } else { 1.0 };
                let spec = &self.lease["spec"];
                let end = seconds(&spec["renewTime"]) + spec["leaseDurationSeconds"].as_f64().unwrap() - slack;
                let late = (seconds(&lease["spec"]["acquireTime"]) - end).rem_euclid(86_400.0);
                assert!(late < 43_200.0, "{after} took the Lease from {before} too early: {} {lease}", self.lease);
                self.over += 1;
            } else if is_candidate {
                assert!(by_candidate, "a command has freed the Lease of {before}: {lease}");
            } else if by_candidate {
                let record = record(&lease);
                let token = record.as_str().unwrap().lines().find_map(|line| line.strip_prefix("token "));
                self.freed.insert(token.unwrap().parse().unwrap());
            }
        }
        self.led += usize::from(before != after && after.starts_with("pod-"));
        self.lease = lease;
    }
}

fn holder(lease: &Value) -> String {
    lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
}

/// Since midnight, of `2026-11-25T08:32:30.000001Z`.
fn seconds(time: &Value) -> f64 {
    let time = time.as_str().unwrap()[11..].trim_end_matches('Z');
    time.split(':').fold(0.0, |sum, part| sum * 60.0 + part.parse::<f64>().unwrap())
}

/// How many increments there were, and how many of them overlapped with one whose Lease a candidate had freed.
fn increments(counter: &str, freed: &BTreeSet<u64>) -> (usize, usize) {
    let (mut last, mut overlaps) = ((0, 0), 0);
    for line in counter.lines().skip(1) {
        let (number, token) = line.split_once(' ').unwrap();
        let (number, token) = (number.parse::<u64>().unwrap(), token.parse::<u64>().unwrap());
        if number != last.0 + 1 || token <= last.1 {
            assert!(freed.contains(&token.min(last.1)), "{line} after {last:?}, and its Lease was not freed");
            overlaps += 1;
        }
        last = (number, token);
    }
    (counter.lines().count() - 1, overlaps)
}

#[test]
#[should_panic(expected = "1 7 after (1, 5), and its Lease was not freed")]
fn a_number_that_is_written_twice_is_an_overlap_if_a_lease_was_freed_and_an_error_otherwise() {
    assert_eq!(increments("0 0\n1 5\n1 7\n2 9\n", &BTreeSet::from([5])), (3, 1));
    increments("0 0\n1 5\n1 7\n2 9\n", &BTreeSet::from([7]));
}

#[test]
#[ignore = "takes a minute, or FENCELOCK_SECONDS; scripts/test-servers runs it"]
fn a_counter_loses_no_increment_beside_candidates_of_client_go() {
    let Some(cluster) = KubeCluster::start_or_skip() else { return };
    let length = std::env::var("FENCELOCK_SECONDS").map_or(60, |seconds| seconds.parse().unwrap());
    let mut race = Race::new(cluster);
    let (started, mut faults) = (Instant::now(), 0);
    while started.elapsed() < Duration::from_secs(length) || faults < FAULTS {
        let pause = Duration::from_millis(500 + race.random.below(2500));
        race.run_for(pause);
        race.inject(faults);
        faults += 1;
    }
    race.running.truncate(COMMANDS);
    // They go on when the last candidate is dead.
    let (started, before) = (Instant::now(), race.counter().lines().count());
    while race.counter().lines().count() < before + 10 {
        assert!(started.elapsed() < PATIENCE, "no command goes on");
        race.run_for(Duration::from_secs(1));
    }
    let (increments, overlaps) = increments(&race.counter(), &race.election.freed);
    let Race { ended, election: Election { led, over, freed, .. }, .. } = race;
    println!(
        "{increments} increments, {faults} faults; commands ended with {ended:?}; candidates led {led} times; {over} leases \
         were over; candidates freed {} locks of commands: {overlaps} overlaps",
        freed.len()
    );
    assert!(led > 0 && over > 0);
}
