//! The facts that a server reports, without assessment.

use super::features::time_in_a_script;
use crate::connection::session::Session;
use crate::server::Redis;
use fencelock_core::{BootClock, Clock, ClockOffset, Health};
use redis::Value;
use std::collections::HashMap;
use std::time::Duration;

/// Several samples, so that a pause of a scheduler or a network is not mistaken for a clock difference.
const CLOCK_SAMPLES: usize = 3;

pub(crate) async fn of(redis: &Redis, session: &Session, info: &HashMap<String, String>) -> Health {
    let up_for = info.get("uptime_in_seconds").and_then(|seconds| seconds.parse().ok());
    let mut health = Health::default();
    health.identity = Some(session.server_info.run_id.clone()).filter(|run_id| !run_id.is_empty());
    health.host = Some(redis.link.target.host().to_lowercase()).filter(|host| !host.is_empty());
    health.clock = clock(redis, session).await;
    health.up_for = up_for.map(Duration::from_secs);
    health
}

/// The best of several samples; `None` if the server does not report its time.
async fn clock(redis: &Redis, session: &Session) -> Option<ClockOffset> {
    let mut best: Option<ClockOffset> = None;
    for _ in 0..CLOCK_SAMPLES {
        let before = BootClock.wall_micros();
        let answer = match session.send(&redis::cmd("TIME")).await {
            // A proxy selects the server by key, so the command needs one.
            Err(_) => session.send(&time_in_a_script(redis)).await.ok()?,
            Ok(answer) => answer,
        };
        let after = BootClock.wall_micros();
        let sample = ClockOffset::measured(before, micros(&answer)?, after);
        if best.is_none_or(|best| sample.within < best.within) {
            best = Some(sample);
        }
    }
    best
}

fn micros(value: &Value) -> Option<u64> {
    let (seconds, micros): (u64, u64) = redis::from_redis_value_ref(value).ok()?;
    Some(seconds.saturating_mul(1_000_000).saturating_add(micros))
}

/// The fields of `INFO` by name.
pub(crate) fn fields(info: &str) -> HashMap<String, String> {
    info.lines()
        .filter_map(|line| line.trim().split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_accepted() {
        let time = |seconds: &str, micros: &str| {
            micros_of(&[seconds, micros].map(|text| Value::BulkString(text.as_bytes().to_vec())))
        };
        assert_eq!(time("2", "3"), Some(2_000_003));
        assert_eq!(time("18446744073709551615", "18446744073709551615"), Some(u64::MAX));
        assert_eq!(time("-1", "0"), None);
    }

    fn micros_of(words: &[Value]) -> Option<u64> {
        micros(&Value::Array(words.to_vec()))
    }
}
