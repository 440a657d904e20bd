//! Looks at everything on a server that the promises rest on.

use super::Redis;
use super::fault::fault_of;
use super::session::Session;
use fencelock_core::{Fault, Finding, Level, Unknown};
use redis::{RedisError, Value};
use std::collections::HashMap;
use std::time::Duration;

/// The server's clock may be this far off: the fence is clamped to a second around it.
const CLOCK_FINE: Duration = Duration::from_millis(500);

pub(crate) fn away(unknown: &Unknown) -> Finding {
    Finding::new(Level::Failure, "connection", unknown.to_string(), "check the address, the server and the credentials")
}

pub(crate) async fn examine(redis: &Redis, session: &Session) -> Vec<Finding> {
    let info = match session.send(redis::cmd("INFO").arg("everything")).await {
        Ok(value) => fields(&redis::from_redis_value::<String>(value).unwrap_or_default()),
        Err(_) => HashMap::new(),
    };
    let mut findings = vec![connection(redis, session, &info).await];
    findings.push(scripts(redis, session).await);
    findings.push(wake_ups(session));
    findings.push(tracking(session));
    findings.push(clock(redis, session).await);
    if info.is_empty() {
        findings.push(Finding::new(
            Level::Warning,
            "server",
            "INFO is refused, so eviction, persistence and replicas cannot be looked at",
            "allow INFO to this user, or check these by hand",
        ));
        return findings;
    }
    findings.push(eviction(&info));
    findings.push(memory(&info));
    findings.push(persistence(&info));
    findings.extend(replication(&info));
    findings
}

async fn connection(redis: &Redis, session: &Session, info: &HashMap<String, String>) -> Finding {
    let sent = redis.clock.now();
    let answer = session.send(&redis::cmd("PING")).await;
    let took = redis.clock.now().since(sent);
    match answer {
        Ok(_) => Finding::fine(
            "connection",
            format!(
                "{} is Redis {}, {} ms away, protocol {}, up for {}",
                redis.link.node(),
                if session.facts.version.is_empty() { "of unknown version" } else { &session.facts.version },
                format_millis(took),
                if session.facts.resp3 { "RESP3" } else { "RESP2" },
                uptime(info)
            ),
        ),
        Err(error) => Finding::new(Level::Failure, "connection", error.to_string(), "check the server"),
    }
}

fn format_millis(span: Duration) -> String {
    format!("{:.2}", span.as_secs_f64() * 1000.0)
}

fn uptime(info: &HashMap<String, String>) -> String {
    let seconds: u64 = info.get("uptime_in_seconds").and_then(|s| s.parse().ok()).unwrap_or(0);
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

async fn scripts(redis: &Redis, session: &Session) -> Finding {
    let call = super::script::inspect("fencelock:doctor");
    match redis.link.call(session, &call).await {
        Ok(_) => Finding::fine("scripts", "Lua scripts run"),
        Err(error) => Finding::new(Level::Failure, "scripts", refused(&error), advice_for(&error)),
    }
}

fn refused(error: &RedisError) -> String {
    format!("the server refuses to run scripts: {error}")
}

fn advice_for(error: &RedisError) -> &'static str {
    match fault_of(error) {
        Fault::Denied => {
            "allow this user EVAL, EVALSHA and the commands in them: ACL SETUSER ... +@scripting +@read +@write"
        }
        Fault::Full => "give the server memory or disk",
        Fault::ReadOnly => "use the address of the master",
        _ => "every lock needs them",
    }
}

fn wake_ups(session: &Session) -> Finding {
    let how = if session.facts.resp3 { "on the same connection" } else { "on a second connection" };
    lack(session, "no wake-ups", "wake-ups", "allow SUBSCRIBE and the channels fencelock:wake:* to this user")
        .unwrap_or_else(|| Finding::fine("wake-ups", format!("waiters are woken by messages, {how}")))
}

fn tracking(session: &Session) -> Finding {
    lack(session, "no client tracking", "tracking", "use a server from Redis 6 on without protocol=resp2")
        .unwrap_or_else(|| {
            Finding::fine("tracking", "the server tells at once when another program deletes or takes a key")
        })
}

fn lack(session: &Session, begins: &str, subject: &'static str, advice: &str) -> Option<Finding> {
    let text = session.facts.lacks.iter().find(|lack| lack.starts_with(begins))?;
    Some(Finding::new(Level::Note, subject, text, advice))
}

async fn clock(redis: &Redis, session: &Session) -> Finding {
    let before = redis.clock.wall_micros();
    let answer = session.send(&redis::cmd("TIME")).await;
    let after = redis.clock.wall_micros();
    let Some(server) = answer.ok().as_ref().and_then(micros) else {
        return Finding::new(
            Level::Note,
            "clock",
            "TIME is refused: fencing tokens follow the clients' clocks without a check, so a client far in the \
             future pushes them ahead, and after a server forgets they are in order only as far as the clients' clocks are",
            "allow TIME to this user",
        );
    };
    let here = before.midpoint(after);
    let off = Duration::from_micros(server.abs_diff(here));
    let text = format!("the server's clock and this one differ by {} ms", format_millis(off));
    if off <= CLOCK_FINE + Duration::from_micros(after.saturating_sub(before)) {
        return Finding::fine("clock", text);
    }
    Finding::new(
        Level::Warning,
        "clock",
        format!("{text}; leases are safe, but tokens after a server forgot are in order only up to that"),
        "run NTP on both",
    )
}

fn micros(value: &Value) -> Option<u64> {
    let (seconds, micros): (u64, u64) = redis::from_redis_value_ref(value).ok()?;
    Some(seconds * 1_000_000 + micros)
}

fn eviction(info: &HashMap<String, String>) -> Finding {
    let limit = info.get("maxmemory").is_some_and(|limit| limit != "0");
    match info.get("maxmemory_policy").map(String::as_str) {
        None => Finding::new(Level::Note, "eviction", "the server does not tell its eviction policy", "use noeviction"),
        Some("noeviction") => Finding::fine("eviction", "noeviction: no lock is dropped to make room"),
        Some(policy) if limit => Finding::new(
            Level::Warning,
            "eviction",
            format!("{policy} with a memory limit: the server may drop a held lock to make room"),
            "CONFIG SET maxmemory-policy noeviction, or a server for locks alone",
        ),
        Some(policy) => Finding::new(
            Level::Note,
            "eviction",
            format!("{policy}, but without a memory limit nothing is dropped"),
            "CONFIG SET maxmemory-policy noeviction before a limit is set",
        ),
    }
}

fn memory(info: &HashMap<String, String>) -> Finding {
    let number = |name: &str| info.get(name).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let (used, limit) = (number("used_memory"), number("maxmemory"));
    if limit > 0 && used * 10 > limit * 9 {
        return Finding::new(
            Level::Warning,
            "memory",
            format!(
                "{} of {} MiB are used: when it is full, locks cannot be taken, only released",
                used >> 20,
                limit >> 20
            ),
            "raise maxmemory",
        );
    }
    Finding::fine("memory", format!("{} MiB used", used >> 20))
}

fn persistence(info: &HashMap<String, String>) -> Finding {
    let aof = info.get("aof_enabled").is_some_and(|on| on == "1");
    if aof {
        return Finding::fine("persistence", "append-only file: a restart forgets at most the last second");
    }
    Finding::new(
        Level::Note,
        "persistence",
        "no append-only file: a restart forgets held locks, and others may take them at once. Fencing tokens still grow",
        "CONFIG SET appendonly yes, or let a restarted server stay away for the longest TTL",
    )
}

fn replication(info: &HashMap<String, String>) -> Vec<Finding> {
    let role = info.get("role").map_or("", String::as_str);
    if role == "slave" {
        return vec![Finding::new(
            Level::Failure,
            "role",
            "this server is a replica: it refuses writes",
            "use the address of its master",
        )];
    }
    let replicas = info.get("connected_slaves").and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
    if replicas == 0 {
        return vec![Finding::fine("role", "a master without replicas")];
    }
    vec![Finding::new(
        Level::Note,
        "role",
        format!(
            "a master with {replicas} replicas that copy it later: a fail-over may lose a lock that was just taken"
        ),
        "let the protected resource check fencing tokens",
    )]
}

fn fields(info: &str) -> HashMap<String, String> {
    info.lines()
        .filter_map(|line| line.trim().split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}
