//! Checks everything on a server that the guarantees of a lock depend on, and reports what it is and what works there. It only
//! reads, except `trial`, which tries what a lock does, and takes it back.

pub(super) mod trial;

use super::Redis;
use crate::connection::fault::{fault_of, is_about_a_key, words};
use crate::connection::server_info::Info;
use crate::connection::session::Session;
use crate::doctor::CLOCK_FINE;
use crate::scripts::quarantine::{MarkerState, NOT_BEGUN, Quarantine, shown};
use crate::scripts::wire::WIRE;
use crate::sentinel::Mastership;
use crate::url::acks::Acks;
use crate::url::hosts;
use crate::url::target::Target;
use fencelock_core::{
    BackendReport, BootClock, Clock, ClockOffset, Fault, Feature, Finding, Level, ServerReport, Span, Topology, Ttl,
    Unknown, votes_for,
};
use redis::{RedisError, Value};
use std::collections::HashMap;
use std::time::Duration;
use trial::time_in_a_script;

pub(crate) async fn diagnose(redis: &Redis) -> BackendReport {
    let mut server = ServerReport::new(redis.link.node());
    let findings = match redis.link.session().await {
        Ok(session) => findings(redis, &session, &mut server).await,
        Err(unknown) => {
            server.failure = Some(unknown.to_string());
            let advice = unknown.nodes().first().map_or("", |node| trial::advice(node.fault));
            vec![Finding::failure("connection", unknown.to_string(), advice)]
        }
    };
    let mut report = BackendReport::of_server(server);
    (report.findings, report.options, report.wire) = (findings, options(&redis.link.target), WIRE.parse().ok());
    report
}

/// The options of the URL and their defaults. Files of passwords, certificates and keys are not named.
fn options(target: &Target) -> Vec<(&'static str, String)> {
    let (acks, guard) = (target.acks, target.quarantine.as_ref());
    let millis = |span: Duration| Some(span.as_millis().to_string());
    let on = |is_on| Some(if is_on { "on" } else { "off" }.to_owned());
    let options = [
        ("db", Some(target.client.get_connection_info().redis_settings().db().to_string())),
        ("prefix", Some(target.prefix.clone())),
        ("timeout", millis(target.limit)),
        ("protocol", Some(if target.resp3 { "resp3" } else { "resp2" }.to_owned())),
        ("push", on(target.push)),
        ("acks", Some(acks.map_or(0, |acks| acks.replicas).to_string())),
        ("acks_timeout", acks.and_then(|acks| millis(acks.limit))),
        ("quarantine", on(guard.is_some())),
        ("max_ttl", guard.and_then(|guard| millis(guard.max_ttl.get()))),
        ("trust_empty", guard.map(|guard| guard.trust.to_string())),
    ];
    options.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// One for each check.
async fn findings(redis: &Redis, session: &Session, server: &mut ServerReport) -> Vec<Finding> {
    let (info, target) = (Info::of(session).await, &redis.link.target);
    let (product, version, described) = info.product(&session.server_info.version);
    (server.product, server.version) = (product.map(str::to_owned), version);
    server.topology = info.topology(session);
    server.identity = Some(session.server_info.run_id.clone()).filter(|run_id| !run_id.is_empty());
    server.host = Some(target.host().to_lowercase()).filter(|host| !host.is_empty());
    server.up_for = info.number("uptime_in_seconds").map(Duration::from_secs);
    let mut findings = vec![connection(session, server, &described).await];
    if server.topology == Topology::Proxy {
        findings.push(Finding::note(
            "proxy",
            "a proxy that sends the requests for one key to another server, as one that ejects servers, lets two clients hold one lock",
            "disable the ejection of servers in the proxy, or connect to the server directly",
        ));
    }
    if info.has_peers() {
        let text = "another server accepts writes of the same keys, and grants locks: two clients can hold one lock";
        findings.push(Finding::failure("active-active", text, "use a server that is the only one to accept writes"));
    }
    if let Some(mastership) = &session.mastership {
        findings.extend(sentinels(mastership).await);
    }
    findings.extend(match redis.quarantine() {
        Some(guard) => Some(quarantine(guard, redis.link.inspect_marker(session, guard).await)),
        None => later_marker(redis, session).await,
    });
    let tested = trial::scripts(redis, session).await;
    findings.push(scripts(tested.as_ref().err()));
    server.features = trial::features(redis, session, server.topology, tested).await;
    findings.push(trial::finding(&server.features));
    findings.push(trial::wire(redis, session).await);
    findings.extend(pushes(session, &server.features));
    findings.extend(tenants(target, &session.server_info.version));
    server.clock = measured_clock(redis, session).await;
    findings.push(clock(server.clock));
    if info.is_refused() {
        let text = "INFO is refused, so eviction, persistence and replicas cannot be checked";
        findings.push(Finding::warning("server", text, "allow INFO to this user, or check these manually"));
        return findings;
    }
    findings.extend([eviction(&info), memory(&info)]);
    findings.extend(writes(session, &info).await);
    findings.extend([persistence(&info, redis), replication(&info, target.acks, is_guarded(redis))]);
    findings
}

/// Whether a quarantine follows a loss of data.
fn is_guarded(redis: &Redis) -> bool {
    redis.quarantine().is_some_and(|quarantine| !quarantine.trust)
}

async fn connection(session: &Session, server: &ServerReport, product: &str) -> Finding {
    let sent = BootClock.now();
    if let Err(error) = session.send(&redis::cmd("PING")).await {
        return Finding::failure("connection", error.to_string(), "check the server");
    }
    let topology = match server.topology {
        Topology::Single => "a single server",
        Topology::Replica => "a replica",
        Topology::SentinelMaster => "the master of its sentinels",
        Topology::ClusterNode => "a node of a cluster",
        Topology::Proxy => "behind a proxy",
        _ => "of unknown topology",
    };
    let (node, away) = (&server.node, BootClock.now().since(sent).as_secs_f64() * 1000.0);
    let protocol = if session.server_info.resp3 { "RESP3" } else { "RESP2" };
    let up_for = server.up_for.map_or_else(|| "an unknown time".to_owned(), |up_for| Span(up_for).to_string());
    let text = format!("{node} is {product}, {topology}, {away:.2} ms away, protocol {protocol}, up for {up_for}");
    Finding::fine("connection", text)
}

/// Whether the sentinels reply and agree on the master of this session.
async fn sentinels(mastership: &Mastership) -> Vec<Finding> {
    let answers = mastership.sentinels.query(|_| false).await;
    let (named, all) = (&mastership.named, answers.named.len());
    let (votes, answered) = (votes_for(&answers.named, named), answers.named.iter().flatten().count());
    let (master, epoch) = (hosts::shown(&named.address), named.config_epoch);
    let text = format!("{votes} of {all} name {master} as the master, in configuration epoch {epoch}");
    let faults: String = answers.faults.iter().fold(String::new(), |text, fault| text + "; " + &fault.to_string());
    let start = "start them; with quarantine=on nothing is granted until then";
    let (level, more, advice) = match votes {
        _ if votes == all => (Level::Fine, String::new(), ""),
        _ if votes * 2 <= all => (Level::Failure, format!(": no majority{faults}"), start),
        _ if answered < all => {
            (Level::Warning, faults, "check these sentinels, or remove them from the URL of all clients")
        }
        _ => (Level::Note, ": a failover is in progress".to_owned(), "repeat this command"),
    };
    let found = Finding::new(level, "sentinels", text + &more, advice);
    let text = format!("the URL lists {all}, and a majority of them must agree");
    let few = Finding::note("sentinels", text, "list at least three sentinels, on different machines");
    // Fewer cannot replace a master when one of them fails.
    [Some(found), (all < 3).then_some(few)].into_iter().flatten().collect()
}

fn quarantine(quarantine: &Quarantine, state: Result<MarkerState, Unknown>) -> Finding {
    const SUBJECT: &str = "quarantine";
    let span = quarantine.span().as_secs_f64();
    match state {
        Ok(MarkerState::Serving | MarkerState::Restarted | MarkerState::Unmarked) if quarantine.trust => {
            let text = "trust_empty=true: none after a restart or a flush, so two clients may then hold one lock";
            Finding::note(SUBJECT, text, "use it for tests only; remove it from the URL")
        }
        Ok(MarkerState::Serving) => {
            let text = "not active; after a restart, a flush or a failover the server grants nothing for";
            Finding::fine(SUBJECT, format!("{text} {span:.1} s"))
        }
        Ok(MarkerState::Quarantined(rest)) => {
            // Rounded, so that it is the same for nodes that started together.
            let rest = format!("it grants no lock for another {} s of {:.0} s", rest.as_secs() + 1, span.ceil());
            let text = format!("the server may have lost its locks: restarted, promoted, flushed or new; {rest}");
            Finding::warning(SUBJECT, text, format!("wait; or, {ALL_NEW}"))
        }
        Ok(_) => Finding::warning(SUBJECT, NOT_BEGUN, format!("{ALL_NEW}; otherwise fencelock init")),
        Err(cause) => {
            let advice = match cause.nodes().first().map(|node| node.fault) {
                Some(Fault::Misconfigured) => "use the URL of the other clients; or, if it is intended: fencelock init",
                Some(Fault::Unsupported) => "use a later fencelock",
                fault => fault.map_or("", trial::advice),
            };
            Finding::failure(SUBJECT, cause.causes(), advice)
        }
    }
}

const ALL_NEW: &str = "if all servers are new and no lock was ever acquired from them: fencelock init --trust-empty";

/// Without a quarantine, a client does not read the marker. Those that have one may use a later version.
async fn later_marker(redis: &Redis, session: &Session) -> Option<Finding> {
    let marker = Quarantine::alone(&redis.link.target.prefix, Ttl::default(), false).marker;
    // A cluster has no marker, and a user without a quarantine may not be allowed to read one.
    let answer = session.send(redis::cmd("HGET").arg(&marker).arg("version")).await.ok()?;
    let version = redis::from_redis_value::<Option<String>>(answer).ok()??;
    let text = format!(
        "this URL has no quarantine, and others here have one: the marker {marker:?} has wire version {:?}, this program reads version {WIRE}",
        shown(&version)
    );
    let advice = "use a later fencelock, and the URL of the other clients";
    (version != WIRE).then(|| Finding::warning("quarantine", text, advice))
}

fn scripts(refused: Option<&RedisError>) -> Finding {
    let Some(error) = refused else { return Finding::fine("scripts", "Lua scripts run") };
    let why = words(error);
    if is_about_a_key(&why) {
        return Finding::warning("scripts", format!("not tested: {why}"), trial::OTHER_KEY);
    }
    let text = format!("the server refuses to run scripts: {why}");
    Finding::failure("scripts", text, trial::advice(fault_of(error)))
}

/// What the server tells this client without a question.
fn pushes(session: &Session, features: &[Feature]) -> [Finding; 2] {
    let how = match (&session.shards, session.server_info.resp3) {
        (Some(_), true) => "waiters are woken by messages, on sharded channels from Redis 7.0 on",
        (None, true) => "waiters are woken by messages, on the same connection",
        (_, false) => "waiters are woken by messages, on a second connection",
    };
    let told = "the server reports immediately when another program deletes or sets a key";
    let wakes = "allow SUBSCRIBE, PUBLISH and the channels fencelock:wake:PREFIX* to this user";
    let tracks = "allow CLIENT TRACKING and CLIENT CACHING to this user";
    [
        ("wake_ups", "wake-ups", how, wakes, "use a server, or an address of it, that has SUBSCRIBE and PUBLISH"),
        ("tracking", "tracking", told, tracks, "use Redis 6 or later"),
    ]
    .map(|(name, subject, fine, denied, other)| {
        let lacks = features.iter().find(|feature| feature.name == name && !feature.works);
        let Some(Feature { reason, .. }) = lacks else { return Finding::fine(subject, fine) };
        let advice = match reason.to_lowercase() {
            why if why.contains("push=off") => "remove push=off from the URL",
            why if why.contains("protocol=resp2") => "remove protocol=resp2 from the URL",
            why if why.contains("noperm") => denied,
            _ => other,
        };
        Finding::note(subject, reason, advice)
    })
}

/// Whether the users of a server are separate, for a URL with a prefix or a user, which tells that others use it too.
fn tenants(target: &Target, version: &str) -> Option<Finding> {
    let has_user = || target.client.get_connection_info().redis_settings().username().is_some();
    let text = format!("Redis {version} does not separate its users: a script can change those that others run later");
    let advice = "use Redis 7.0 or later if a user of this server must not be able to harm another";
    ((!target.prefix.is_empty() || has_user()) && lets_scripts_meet(version))
        .then(|| Finding::warning("tenants", text, advice))
}

/// Before 7.0, scripts can change the environment that all scripts of the server share.
fn lets_scripts_meet(version: &str) -> bool {
    version.split('.').next().and_then(|major| major.parse::<u32>().ok()).is_some_and(|major| major < 7)
}

fn clock(clock: Option<ClockOffset>) -> Finding {
    let Some(clock) = clock else {
        let text = "TIME is refused: fencing tokens follow the clients' clocks, and the one that is furthest ahead";
        return Finding::note("clock", text, "allow TIME to this user");
    };
    let off = Span(Duration::from_micros(clock.ahead.unsigned_abs()));
    let text = format!("the clocks of the server and of this machine differ by {off}");
    if clock.off_at_least() <= CLOCK_FINE {
        return Finding::fine("clock", text);
    }
    let text = format!("{text}: if the server's is set back and it forgets its data, tokens repeat");
    Finding::warning("clock", text, "run NTP on both")
}

fn eviction(info: &Info) -> Finding {
    let advice = "CONFIG SET maxmemory-policy noeviction, or a separate server for locks";
    match info.get("maxmemory_policy") {
        None => Finding::note("eviction", "the server does not report its eviction policy", "use noeviction"),
        Some("noeviction") => Finding::fine("eviction", "noeviction: no lock is evicted"),
        Some(policy) if info.number("maxmemory").is_some_and(|limit| limit > 0) => {
            Finding::warning("eviction", format!("{policy}: the server may evict a held lock"), advice)
        }
        Some(policy) => Finding::note("eviction", format!("{policy}, but there is no memory limit yet"), advice),
    }
}

fn memory(info: &Info) -> Finding {
    let number = |name| info.number(name).unwrap_or(0);
    let (used, limit) = (number("used_memory"), number("maxmemory"));
    // As the server counts before it refuses a write: without the buffers of replicas and of the append-only file.
    let counted = used.saturating_sub(number("mem_not_counted_for_evict"));
    let of = format!("{} of {} MiB are used", used >> 20, limit >> 20);
    let then = "locks cannot be acquired, only renewed and released";
    let evicts = info.get("maxmemory_policy").is_some_and(|policy| policy != "noeviction");
    if limit > 0 && counted > limit && !evicts {
        let advice = "raise maxmemory, or remove other data";
        return Finding::failure("memory", format!("the memory is full, {of}: {then}"), advice);
    }
    if limit > 0 && used.saturating_mul(10) > limit.saturating_mul(9) {
        return Finding::warning("memory", format!("{of}: when the memory is full, {then}"), "raise maxmemory");
    }
    Finding::fine("memory", format!("{} MiB used", used >> 20))
}

/// Why a master refuses all writes although it answers, as far as it tells. Managed servers have no `CONFIG`.
async fn writes(session: &Session, info: &Info) -> Option<Finding> {
    const SAVE: &str = "see its log; free space on its disk, then BGSAVE";
    if info.is("aof_enabled", "1") && info.is("aof_last_write_status", "err") {
        let text = "the server cannot write its append-only file: until it can, no lock can be acquired";
        return Some(Finding::failure("writes", text, "see its log; free space on its disk"));
    }
    if info.is("rdb_last_bgsave_status", "err") {
        let text = "the last snapshot of the server failed";
        let (stops, when) = (setting(session, "stop-writes-on-bgsave-error").await, setting(session, "save").await);
        let (level, unless) = match stops.as_deref().zip(when.as_deref()) {
            Some(("no", _) | (_, "")) => (Level::Fine, ""),
            Some(_) => (Level::Failure, "until one succeeds"),
            None => (Level::Warning, "unless stop-writes-on-bgsave-error is no"),
        };
        if level > Level::Fine {
            return Some(Finding::new(level, "writes", format!("{text}: {unless}, no lock can be acquired"), SAVE));
        }
    }
    // It is missing unless the server requires replicas.
    let good = info.number("min_slaves_good_slaves")?;
    if good > 0 && good >= setting(session, "min-replicas-to-write").await?.parse().ok()? {
        return None;
    }
    let text = format!("min-replicas-to-write is set, and only {good} replicas follow: no lock can be acquired");
    Some(Finding::failure("writes", text, "start the replicas, or require fewer"))
}

async fn setting(session: &Session, name: &str) -> Option<String> {
    let answer = session.send(redis::cmd("CONFIG").arg("GET").arg(name)).await.ok()?;
    redis::from_redis_value::<HashMap<String, String>>(answer).ok()?.remove(name)
}

fn persistence(info: &Info, redis: &Redis) -> Finding {
    if info.is("aof_enabled", "1") {
        return Finding::fine("persistence", "append-only file: a restart loses at most the last second");
    }
    if is_guarded(redis) {
        let text = "no append-only file: a restart loses held locks, which the quarantine does not grant again";
        return Finding::fine("persistence", text);
    }
    let advice = match redis.quarantine() {
        Some(_) => "remove trust_empty=true from the URL, or CONFIG SET appendonly yes",
        None if redis.link.target.cluster.is_some() => "CONFIG SET appendonly yes",
        None => "quarantine=on in the URL, or CONFIG SET appendonly yes",
    };
    let text = "no append-only file: after a restart others may take held locks at once. Fencing tokens still grow";
    Finding::note("persistence", text, advice)
}

fn replication(info: &Info, acks: Option<Acks>, is_guarded: bool) -> Finding {
    if info.is("role", "slave") {
        let text = "this server is a replica: it refuses writes";
        return Finding::failure("role", text, "use the address of its master");
    }
    let replicas = info.number("connected_slaves").unwrap_or(0);
    if let Some(Acks { replicas: wanted, .. }) = acks {
        // A replica during its initial copy is connected, and confirms nothing.
        let is_online = |i: &u64| info.get(&format!("slave{i}")).is_some_and(|slave| slave.contains("state=online"));
        let online = (0..replicas).filter(is_online).count();
        if online < wanted as usize {
            let verb = if online == 1 { "is" } else { "are" };
            let text = format!("acks={wanted}, but only {online} {verb} online: no lock can be acquired");
            return Finding::failure("replicas", text, "start the replicas, or require fewer with acks=");
        }
        return Finding::fine("replicas", format!("a lock counts when {wanted} of {online} replicas have it"));
    }
    let copies = match replicas {
        0 => return Finding::fine("role", "a master without replicas"),
        1 => "a master with 1 replica that copies it asynchronously".to_owned(),
        _ => format!("a master with {replicas} replicas that copy it asynchronously"),
    };
    if is_guarded {
        let text = "a lock that a failover loses is not granted again before its lease has ended";
        return Finding::fine("role", format!("{copies}: {text}"));
    }
    let advice = "acks=N in the URL waits for N of them; or let the protected resource check fencing tokens";
    let text = format!("{copies}: a failover may lose a lock that was just acquired or renewed");
    Finding::note("role", text, advice)
}

// What a server tells of itself.

/// Several samples, so that a pause of a scheduler or a network is not mistaken for a clock difference.
const CLOCK_SAMPLES: usize = 3;

impl Info {
    /// Without a field if it was refused.
    async fn of(session: &Session) -> Self {
        let info = session.send(redis::cmd("INFO").arg("everything")).await;
        Self::read(&info.and_then(|info| Ok(redis::from_redis_value::<String>(info)?)).unwrap_or_default())
    }

    fn is_refused(&self) -> bool {
        self.0.is_empty()
    }

    fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == Some(value)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.get(name)?.parse().ok()
    }

    /// The program and its own version, if they are known, and both as users read them. Several programs use the protocol of Redis, and
    /// report a compatible version of it. `claimed` is the version without `INFO`.
    fn product(&self, claimed: &str) -> (Option<&'static str>, Option<String>, String) {
        for name in ["Valkey", "Dragonfly", "KeyDB"] {
            let lower = name.to_lowercase();
            if let Some(version) = self.get(&format!("{lower}_version")) {
                let version = version.trim_start_matches(|c: char| !c.is_ascii_digit());
                return (Some(name), Some(version.to_owned()), format!("{name} {version}"));
            }
            if self.is("server_name", &lower) {
                return (Some(name), None, format!("{name}, like Redis {claimed}"));
            }
        }
        match self.get("redis_version").unwrap_or(claimed) {
            "" => (None, None, "Redis of unknown version".to_owned()),
            version => (Some("Redis"), Some(version.to_owned()), format!("Redis {version}")),
        }
    }

    fn topology(&self, session: &Session) -> Topology {
        if session.mastership.is_some() {
            return Topology::SentinelMaster;
        }
        self.reported(session.server_info.limitations.iter().any(|lack| lacks_info(lack)))
    }

    fn reported(&self, lacks_info: bool) -> Topology {
        if self.has_mode("cluster") {
            return Topology::ClusterNode;
        }
        if self.is("role", "slave") {
            return Topology::Replica;
        }
        // A server reports the id of its run. A proxy in front of several servers has none.
        match self.get("run_id") {
            Some(_) => Topology::Single,
            None if lacks_info || !self.is_refused() => Topology::Proxy,
            None => Topology::Unknown,
        }
    }

    /// Active-Active databases of Redis Software and Redis Cloud, and active replicas of `KeyDB`.
    fn has_peers(&self) -> bool {
        self.0.keys().any(|key| key.starts_with("crdt_")) || self.is("role", "active-replica")
    }
}

/// Every Redis server supports `INFO`; one that does not is a proxy. A missing permission does not show a proxy.
fn lacks_info(limitation: &str) -> bool {
    limitation.starts_with("INFO is refused") && limitation.to_lowercase().contains("unknown command")
}

/// The best of several samples; `None` if the server does not report its time.
async fn measured_clock(redis: &Redis, session: &Session) -> Option<ClockOffset> {
    let mut best: Option<ClockOffset> = None;
    for _ in 0..CLOCK_SAMPLES {
        let before = BootClock.wall_micros();
        let answer = match session.send(&redis::cmd("TIME")).await {
            // A proxy selects the server by key, so the command needs one.
            Err(_) => session.send(&time_in_a_script(redis)).await.ok()?,
            Ok(answer) => answer,
        };
        let sample = ClockOffset::measured(before, micros(&answer)?, BootClock.wall_micros());
        best = best.into_iter().chain([sample]).min_by_key(|sample| sample.within);
    }
    best
}

fn micros(value: &Value) -> Option<u64> {
    let (seconds, micros): (u64, u64) = redis::from_redis_value_ref(value).ok()?;
    Some(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_their_defaults_and_no_secret() {
        let of = |url| options(&Target::parse(url).unwrap());
        let plain = of("redis://alice:s3cret@h");
        assert!(!format!("{plain:?}").contains("s3cret") && !format!("{plain:?}").contains("alice"), "{plain:?}");
        let value = |options: &[(&str, String)], wanted: &str| {
            options.iter().find(|(name, _)| *name == wanted).map(|(_, value)| value.clone())
        };
        assert_eq!(value(&plain, "timeout").as_deref(), Some("1000"));
        assert_eq!(value(&plain, "max_ttl"), None);
        let set = of("redis://h/3?acks=1&timeout=300&quarantine=on&push=off");
        for (name, expected) in
            [("db", "3"), ("acks_timeout", "300"), ("quarantine", "on"), ("max_ttl", "60000"), ("push", "off")]
        {
            assert_eq!(value(&set, name).as_deref(), Some(expected), "{name}");
        }
    }

    #[test]
    fn versions_before_7_do_not_separate_users() {
        let table =
            [("5.0.14", true), ("6.2.14", true), ("7.0.0", false), ("7.2.4", false), ("10.0.1", false), ("", false)];
        for (version, expected) in table {
            assert_eq!(lets_scripts_meet(version), expected, "{version}");
        }
    }
}

#[cfg(test)]
mod info_tests {
    use super::*;

    #[test]
    fn every_time_is_accepted() {
        let time = |words: [&str; 2]| micros(&Value::Array(words.map(|it| Value::BulkString(it.into())).to_vec()));
        assert_eq!(time(["2", "3"]), Some(2_000_003));
        assert_eq!(time(["18446744073709551615", "18446744073709551615"]), Some(u64::MAX));
        assert_eq!(time(["-1", "0"]), None);
    }

    #[test]
    fn the_topology_is_derived_from_info() {
        for (info, lacks_info, topology) in [
            ("redis_mode:standalone\r\nrun_id:12\r\nrole:master\r\n", false, Topology::Single),
            ("redis_mode:standalone\r\nrun_id:12\r\nrole:slave\r\n", false, Topology::Replica),
            ("redis_mode:cluster\r\nrun_id:12\r\nrole:slave\r\n", false, Topology::ClusterNode),
            ("server_mode:cluster\r\nrun_id:12\r\n", false, Topology::ClusterNode),
            ("redis_version:7.0.0\r\n", false, Topology::Proxy),
            ("", true, Topology::Proxy),
            ("", false, Topology::Unknown),
        ] {
            assert_eq!(Info::read(info).reported(lacks_info), topology, "{info}");
        }
    }

    #[test]
    fn a_denied_command_does_not_make_a_proxy() {
        assert!(lacks_info("INFO is refused: unknown command 'INFO', with args beginning with: 'server'"));
        assert!(lacks_info("INFO is refused: \"ERR\": unknown command `INFO`"));
        assert!(!lacks_info("INFO is refused: \"NOPERM\": this user has no permissions to run the 'info' command"));
        assert!(!lacks_info("no client tracking (unknown command)"));
    }

    #[test]
    fn a_server_that_is_not_the_only_one_to_accept_writes_is_recognized() {
        for (info, expected) in [
            ("role:master\r\nrun_id:12\r\n", false),
            ("role:active-replica\r\n", true),
            ("role:master\r\ncrdt_config_version:1\r\n", true),
        ] {
            assert_eq!(Info::read(info).has_peers(), expected, "{info}");
        }
    }

    #[test]
    fn a_server_has_its_own_name_and_version() {
        for (info, name) in [
            ("redis_version:8.2.3\r\nredis_mode:standalone\r\n", "Redis 8.2.3"),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n", "Valkey 9.1.2"),
            ("redis_version:7.4.0\r\ndragonfly_version:df-v1.27.1\r\n", "Dragonfly 1.27.1"),
            ("redis_version:7.2.4\r\nserver_name:valkey\r\n", "Valkey, like Redis 7.2.4"),
        ] {
            assert_eq!(Info::read(info).product("7.2.4").2, name);
        }
        let without_info = |claimed| Info::read("").product(claimed);
        assert_eq!(without_info("7.0.15").2, "Redis 7.0.15");
        assert_eq!(without_info("").2, "Redis of unknown version");
        assert_eq!(without_info("").0, None);
    }
}
