//! Checks everything on a server that the guarantees of a lock depend on, and reports what it is and what works there. It only
//! reads, except `trial`.
//!
//! | file | what |
//! |---|---|
//! | `features`, `health`, `product`, `topology`, `separation`, `scan` | what the server is, does and stores |
//! | `sentinels` | what its sentinels say |
//! | `trial` | tries what a lock does, and takes it back |

mod features;
mod health;
mod product;
mod scan;
mod sentinels;
mod separation;
mod topology;
pub(super) mod trial;

use super::Redis;
use crate::connection::fault::{fault_of, is_about_a_key, words};
use crate::connection::session::Session;
use crate::scripts::quarantine::{MarkerState, NOT_BEGUN, Quarantine, shown};
use crate::scripts::wire::WIRE;
use crate::url::acks::Acks;
use crate::url::target::Target;
use fencelock_core::{
    BackendReport, BootClock, Clock, Fault, Finding, Health, Level, ServerReport, Topology, Ttl, Unknown,
};
use product::Product;
use redis::RedisError;
use std::collections::HashMap;
use std::time::Duration;

/// The allowed difference of the server's clock: the fence is limited to a second around it.
const CLOCK_FINE: Duration = Duration::from_millis(500);

pub(crate) async fn diagnose(redis: &Redis) -> BackendReport {
    let mut server = ServerReport::new(redis.link.node());
    let findings = match redis.link.session().await {
        Ok(session) => findings(redis, &session, &mut server).await,
        Err(unknown) => {
            server.failure = Some(unknown.to_string());
            vec![away(&unknown)]
        }
    };
    let mut report = BackendReport::of_server(server);
    (report.findings, report.options, report.wire) = (findings, options(&redis.link.target), WIRE.parse().ok());
    report
}

/// All fields of `INFO`; none if it is refused.
async fn everything(session: &Session) -> HashMap<String, String> {
    let info = session.send(redis::cmd("INFO").arg("everything")).await;
    info.map_or_else(
        |_| HashMap::new(),
        |info| health::fields(&redis::from_redis_value::<String>(info).unwrap_or_default()),
    )
}

/// The options of the URL and their defaults. Files of passwords, certificates and keys are not named.
fn options(target: &Target) -> Vec<(&'static str, String)> {
    let millis = |span: Duration| span.as_millis().to_string();
    let on = |is_on| if is_on { "on" } else { "off" }.to_owned();
    let mut options = vec![
        ("db", target.client.get_connection_info().redis_settings().db().to_string()),
        ("prefix", target.prefix.clone()),
        ("timeout", millis(target.limit)),
        ("protocol", if target.resp3 { "resp3" } else { "resp2" }.to_owned()),
        ("push", on(target.push)),
        ("acks", target.acks.map_or(0, |acks| acks.replicas).to_string()),
    ];
    options.extend(target.acks.map(|acks| ("acks_timeout", millis(acks.limit))));
    options.push(("quarantine", on(target.quarantine.is_some())));
    if let Some(quarantine) = &target.quarantine {
        options.push(("max_ttl", millis(quarantine.max_ttl.get())));
        options.push(("trust_empty", quarantine.trust.to_string()));
    }
    options
}

fn away(unknown: &Unknown) -> Finding {
    let advice = match unknown.nodes().first().map(|node| node.fault) {
        Some(Fault::Denied) => "check the user and the password, and the rights of this user",
        Some(Fault::Timeout | Fault::Unreachable) => "check the address, that the server runs, and the network to it",
        Some(Fault::Loading) => "wait until the server has loaded its data",
        Some(Fault::Unsupported | Fault::Misconfigured) => "check the URL",
        _ => "check the address, the server and the credentials",
    };
    Finding::new(Level::Failure, "connection", unknown.to_string(), advice)
}

async fn findings(redis: &Redis, session: &Session, server: &mut ServerReport) -> Vec<Finding> {
    let info = everything(session).await;
    let product = Product::of(&info, &session.server_info.version);
    let topology = topology::topology(session, &info);
    let mut findings = vec![connection(redis, session, &info, &product, topology).await];
    findings.extend(topology::diagnose(topology, &info));
    if let Some(mastership) = &session.mastership {
        findings.extend(sentinels::diagnose(mastership).await);
    }
    findings.extend(quarantine(redis, session).await);
    let tested = features::scripts(redis, session).await;
    findings.push(scripts(tested.as_ref().err()));
    (server.product, server.version, server.topology) = (product.name.map(str::to_owned), product.version, topology);
    server.features = features::features(redis, session, topology, tested).await;
    findings.push(features::finding(&server.features));
    findings.push(scan::diagnose(redis, session).await);
    findings.push(wake_ups(redis, session));
    findings.push(tracking(session));
    findings.extend(separation::diagnose(redis, session));
    server.health = health::of(redis, session, &info).await;
    findings.push(clock(&server.health));
    if info.is_empty() {
        findings.push(Finding::new(
            Level::Warning,
            "server",
            "INFO is refused, so eviction, persistence and replicas cannot be checked",
            "allow INFO to this user, or check these manually",
        ));
        return findings;
    }
    findings.push(eviction(&info));
    findings.push(memory(&info));
    findings.extend(writes(session, &info).await);
    findings.push(persistence(&info, redis.quarantine(), redis.link.target.cluster.is_some()));
    findings.extend(replication(
        &info,
        redis.link.target.acks,
        redis.quarantine().is_some_and(|quarantine| !quarantine.trust),
    ));
    findings
}

async fn connection(
    redis: &Redis,
    session: &Session,
    info: &HashMap<String, String>,
    product: &Product,
    topology: Topology,
) -> Finding {
    let sent = BootClock.now();
    let answer = session.send(&redis::cmd("PING")).await;
    let took = BootClock.now().since(sent);
    match answer {
        Ok(_) => Finding::fine(
            "connection",
            format!(
                "{} is {product}, {}, {} ms away, protocol {}, up for {}",
                redis.link.node(),
                topology::words(topology),
                format_millis(took),
                if session.server_info.resp3 { "RESP3" } else { "RESP2" },
                uptime(info)
            ),
        ),
        Err(error) => Finding::new(Level::Failure, "connection", error.to_string(), "check the server"),
    }
}

async fn quarantine(redis: &Redis, session: &Session) -> Option<Finding> {
    let Some(quarantine) = redis.quarantine() else { return later_marker(redis, session).await };
    let span = quarantine.span().as_secs_f64();
    Some(match redis.link.inspect_marker(session, quarantine).await {
        Ok(MarkerState::Serving | MarkerState::Restarted | MarkerState::Unmarked) if quarantine.trust => Finding::new(
            Level::Note,
            "quarantine",
            "trust_empty=true: no quarantine after a restart or a flush, so two clients may then hold one lock",
            "use it for tests only; remove it from the URL",
        ),
        Ok(MarkerState::Serving) => Finding::fine(
            "quarantine",
            format!("not active; after a restart, a flush or a failover the server grants nothing for {span:.1} s"),
        ),
        Ok(MarkerState::Quarantined(rest)) => Finding::new(
            Level::Warning,
            "quarantine",
            format!(
                "the server may have lost its locks: it is restarted, promoted, flushed or new. It grants none for another {} s of {:.0} s",
                // Rounded, so that it is the same for nodes that started together.
                rest.as_secs() + 1,
                span.ceil()
            ),
            "wait; or, if all servers are new and no lock was ever acquired from them: fencelock init --trust-empty",
        ),
        Ok(MarkerState::Restarted | MarkerState::Unmarked) => Finding::new(
            Level::Warning,
            "quarantine",
            NOT_BEGUN,
            "if all servers are new and no lock was ever acquired from them: fencelock init --trust-empty; otherwise fencelock init",
        ),
        Err(cause) => {
            let details: Vec<_> = cause.nodes().iter().map(|node| format!("{}: {}", node.fault, node.detail)).collect();
            let advice = match cause.nodes().first().map(|node| node.fault) {
                Some(Fault::Misconfigured) => {
                    "use the URL of the other clients; or, if the change is intended: fencelock init"
                }
                Some(Fault::Unsupported) => "use a later fencelock",
                Some(Fault::Denied) if details.iter().any(|detail| is_about_a_key(detail)) => {
                    "allow this user the key of the marker, as docs/en/operations.md lists it"
                }
                Some(Fault::Denied) => "allow this user INFO, HMGET, HSET and TIME",
                _ => "check the server",
            };
            Finding::new(Level::Failure, "quarantine", details.join("; "), advice)
        }
    })
}

/// Without a quarantine, a client does not read the marker. Those that have one may use a later version.
async fn later_marker(redis: &Redis, session: &Session) -> Option<Finding> {
    let marker = Quarantine::alone(&redis.link.target.prefix, Ttl::default(), false).marker;
    // A cluster has no marker, and a user without a quarantine may not be allowed to read one.
    let answer = session.send(redis::cmd("HGET").arg(&marker).arg("version")).await.ok()?;
    let version = redis::from_redis_value::<Option<String>>(answer).ok()??;
    (version != WIRE).then(|| {
        Finding::new(
            Level::Warning,
            "quarantine",
            format!(
                "this URL has no quarantine, but clients of another version use one here: the marker {marker:?} has wire \
                 version {:?}, and this program reads version {WIRE}",
                shown(&version)
            ),
            "use a later fencelock, and the URL of the other clients",
        )
    })
}

fn format_millis(span: Duration) -> String {
    format!("{:.2}", span.as_secs_f64() * 1000.0)
}

fn uptime(info: &HashMap<String, String>) -> String {
    let seconds: Option<u64> = info.get("uptime_in_seconds").and_then(|s| s.parse().ok());
    let Some(seconds) = seconds else { return "an unknown time".to_owned() };
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn scripts(refused: Option<&RedisError>) -> Finding {
    let Some(error) = refused else { return Finding::fine("scripts", "Lua scripts run") };
    let why = words(error);
    if is_about_a_key(&why) {
        return Finding::new(Level::Warning, "scripts", format!("not tested: {why}"), trial::OTHER_KEY);
    }
    let text = format!("the server refuses to run scripts: {why}");
    Finding::new(Level::Failure, "scripts", text, trial::advice(fault_of(error)))
}

fn wake_ups(redis: &Redis, session: &Session) -> Finding {
    if let Some(reason) = redis.link.failure("wake_ups") {
        let text = format!("messages cannot be published, so waiters poll once per second: {reason}");
        return Finding::new(Level::Note, "wake-ups", text, "allow PUBLISH, and the channels fencelock:wake:PREFIX*");
    }
    let how = match (&session.shards, session.server_info.resp3) {
        (Some(_), true) => "on sharded channels since Redis 7.0, before on one channel of the cluster",
        (None, true) => "on the same connection",
        (_, false) => "on a second connection",
    };
    lack(session, "no wake-ups", "wake-ups", |text| match text {
        _ if text.contains("push=off") => "remove push=off from the URL",
        _ if is_denied(text) => "allow SUBSCRIBE and the channels fencelock:wake:PREFIX* to this user",
        _ => "use a server, or an address of it, that has SUBSCRIBE",
    })
    .unwrap_or_else(|| Finding::fine("wake-ups", format!("waiters are woken by messages, {how}")))
}

fn tracking(session: &Session) -> Finding {
    lack(session, "no client tracking", "tracking", |text| match text {
        _ if text.contains("push=off") => "remove push=off from the URL",
        _ if text.contains("protocol=resp2") => "remove protocol=resp2 from the URL",
        _ if is_denied(text) => "allow CLIENT TRACKING and CLIENT CACHING to this user",
        _ => "use Redis 6 or later",
    })
    .unwrap_or_else(|| {
        Finding::fine("tracking", "the server reports immediately when another program deletes or sets a key")
    })
}

/// The driver writes the code in another way.
fn is_denied(text: &str) -> bool {
    text.contains("NOPERM") || text.contains("NoPerm")
}

fn lack(session: &Session, begins: &str, subject: &'static str, advice: fn(&str) -> &'static str) -> Option<Finding> {
    let text = session.server_info.limitations.iter().find(|lack| lack.starts_with(begins))?;
    Some(Finding::new(Level::Note, subject, text, advice(text)))
}

fn clock(health: &Health) -> Finding {
    let Some(offset) = health.clock else {
        return Finding::new(
            Level::Note,
            "clock",
            "TIME is refused: fencing tokens follow the clients' clocks without a check. A client whose clock is far \
             ahead pushes them ahead, and after a server loses its data they are only as ordered as the clients' clocks",
            "allow TIME to this user",
        );
    };
    let off = Duration::from_micros(offset.ahead.unsigned_abs());
    let text = format!("the clocks of the server and of this machine differ by {} ms", format_millis(off));
    if off <= CLOCK_FINE + offset.within {
        return Finding::fine("clock", text);
    }
    Finding::new(
        Level::Warning,
        "clock",
        format!(
            "{text}; leases and tokens follow the server's clock alone. If it is set back and the server forgets its data, \
             tokens repeat"
        ),
        "run NTP on both",
    )
}

fn eviction(info: &HashMap<String, String>) -> Finding {
    let limit = info.get("maxmemory").is_some_and(|limit| limit != "0");
    match info.get("maxmemory_policy").map(String::as_str) {
        None => {
            Finding::new(Level::Note, "eviction", "the server does not report its eviction policy", "use noeviction")
        }
        Some("noeviction") => Finding::fine("eviction", "noeviction: no lock is evicted"),
        Some(policy) if limit => Finding::new(
            Level::Warning,
            "eviction",
            format!("{policy} with a memory limit: the server may evict a held lock"),
            "CONFIG SET maxmemory-policy noeviction, or a separate server for locks",
        ),
        Some(policy) => Finding::new(
            Level::Note,
            "eviction",
            format!("{policy}, but without a memory limit no key is evicted"),
            "CONFIG SET maxmemory-policy noeviction before a limit is set",
        ),
    }
}

fn number(info: &HashMap<String, String>, name: &str) -> u64 {
    info.get(name).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn memory(info: &HashMap<String, String>) -> Finding {
    let (used, limit) = (number(info, "used_memory"), number(info, "maxmemory"));
    // As the server counts before it refuses a write: without the buffers of replicas and of the append-only file.
    let counted = used.saturating_sub(number(info, "mem_not_counted_for_evict"));
    let of = format!("{} of {} MiB are used", used >> 20, limit >> 20);
    let evicts = info.get("maxmemory_policy").is_some_and(|policy| policy != "noeviction");
    if limit > 0 && counted > limit && !evicts {
        let text = format!("the memory is full, {of}: locks cannot be acquired, only renewed and released");
        return Finding::new(Level::Failure, "memory", text, "raise maxmemory, or remove other data");
    }
    if limit > 0 && used.saturating_mul(10) > limit.saturating_mul(9) {
        let text = format!("{of}: when the memory is full, locks cannot be acquired, only renewed and released");
        return Finding::new(Level::Warning, "memory", text, "raise maxmemory");
    }
    Finding::fine("memory", format!("{} MiB used", used >> 20))
}

/// Why a master refuses all writes although it answers, as far as it tells. Managed servers have no `CONFIG`.
async fn writes(session: &Session, info: &HashMap<String, String>) -> Option<Finding> {
    let is = |name: &str, value: &str| info.get(name).is_some_and(|found| found == value);
    let failure = |text: String, advice| Some(Finding::new(Level::Failure, "writes", text, advice));
    if is("aof_enabled", "1") && is("aof_last_write_status", "err") {
        let text =
            "the server cannot write its append-only file, and refuses writes until it can: no lock can be acquired";
        return failure(text.to_owned(), "see its log; free space on its disk");
    }
    if is("rdb_last_bgsave_status", "err") {
        const SAVE: &str = "see its log; free space on its disk, then BGSAVE";
        let text = "the last snapshot of the server failed";
        match (setting(session, "stop-writes-on-bgsave-error").await, setting(session, "save").await) {
            (Some(stops), Some(when)) if stops == "yes" && !when.is_empty() => {
                return failure(
                    format!("{text}, and it refuses writes until one succeeds: no lock can be acquired"),
                    SAVE,
                );
            }
            (Some(_), Some(_)) => {}
            _ => {
                let text = format!("{text}: unless stop-writes-on-bgsave-error is no, no lock can be acquired");
                return Some(Finding::new(Level::Warning, "writes", text, SAVE));
            }
        }
    }
    // It is missing unless the server requires replicas.
    let good: u64 = info.get("min_slaves_good_slaves")?.parse().ok()?;
    let wanted = match good {
        0 => 1,
        _ => setting(session, "min-replicas-to-write").await?.parse().ok()?,
    };
    if good >= wanted {
        return None;
    }
    let text =
        format!("min-replicas-to-write is set, and only {good} replicas follow in time: no lock can be acquired");
    failure(text, "start the replicas, or require fewer")
}

async fn setting(session: &Session, name: &str) -> Option<String> {
    let answer = session.send(redis::cmd("CONFIG").arg("GET").arg(name)).await.ok()?;
    redis::from_redis_value::<HashMap<String, String>>(answer).ok()?.remove(name)
}

fn persistence(info: &HashMap<String, String>, quarantine: Option<&Quarantine>, has_no_quarantine: bool) -> Finding {
    let aof = info.get("aof_enabled").is_some_and(|on| on == "1");
    if aof {
        return Finding::fine("persistence", "append-only file: a restart loses at most the last second");
    }
    if quarantine.is_some_and(|quarantine| !quarantine.trust) {
        return Finding::fine(
            "persistence",
            "no append-only file: a restart loses held locks, and the quarantine prevents the server from granting them again",
        );
    }
    Finding::new(
        Level::Note,
        "persistence",
        "no append-only file: a restart forgets held locks, and others may take them at once. Fencing tokens still grow, unless its clock is set \
         back too",
        if has_no_quarantine {
            "CONFIG SET appendonly yes"
        } else if quarantine.is_some() {
            "remove trust_empty=true from the URL, or CONFIG SET appendonly yes"
        } else {
            "quarantine=on in the URL, or CONFIG SET appendonly yes"
        },
    )
}

fn replication(info: &HashMap<String, String>, acks: Option<Acks>, has_quarantine: bool) -> Vec<Finding> {
    let role = info.get("role").map_or("", String::as_str);
    if role == "slave" {
        return vec![Finding::new(
            Level::Failure,
            "role",
            "this server is a replica: it refuses writes",
            "use the address of its master",
        )];
    }
    let connected = info.get("connected_slaves").and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
    let Some(acks) = acks else { return vec![unconfirmed(connected, has_quarantine)] };
    // A replica during its initial copy is connected, and confirms nothing.
    let online = (0..connected).filter(|i| info.get(&format!("slave{i}")).is_some_and(|s| s.contains("state=online")));
    let (online, wanted) = (online.count(), acks.replicas);
    if online < wanted as usize {
        let verb = if online == 1 { "is" } else { "are" };
        return vec![Finding::new(
            Level::Failure,
            "replicas",
            format!("acks={wanted}, but only {online} {verb} online: no lock can be acquired"),
            "start the replicas, or require fewer with acks=",
        )];
    }
    vec![Finding::fine("replicas", format!("a lock counts when {wanted} of {online} replicas have it"))]
}

fn unconfirmed(replicas: u32, has_quarantine: bool) -> Finding {
    if replicas == 0 {
        return Finding::fine("role", "a master without replicas");
    }
    let copies = if replicas == 1 { "1 replica that copies" } else { &format!("{replicas} replicas that copy") };
    if has_quarantine {
        return Finding::fine(
            "role",
            format!(
                "a master with {copies} it asynchronously: a lock that a failover loses is not granted again before its lease has ended"
            ),
        );
    }
    Finding::new(
        Level::Note,
        "role",
        format!(
            "a master with {copies} it asynchronously: a failover may lose a lock that was just acquired or renewed"
        ),
        "acks=N in the URL waits for N of them; or let the protected resource check fencing tokens",
    )
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
}
