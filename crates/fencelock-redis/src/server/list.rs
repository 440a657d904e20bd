//! Lists the locks on a server.

use super::Redis;
use crate::connection::batch::send_batch;
use crate::connection::session::Session;
use crate::scripts::quarantine::EpochCheck;
use crate::scripts::side_key::key_of_side_key;
use crate::scripts::{reply, script};
use fencelock_core::{BootClock, Clock, Fault, Holding, Key, Unknown};
use std::collections::{BTreeMap, BTreeSet};

/// The number of keys per request when locks are listed.
const SCAN_COUNT: u32 = 500;

/// The locks and the replies to `SCAN` of a list, so that a server cannot exhaust the memory of this process, or block it.
/// `fencelock list` of 100,000 locks takes about 80 MB, its table included; 200,000 pages are a database of 100 million keys.
const BOUNDS: (usize, usize) = (100_000, 200_000);

/// The locks on a server, by key: `SCAN` may return a key more than once.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) held: BTreeMap<Key, Holding>,
    /// Keys that a node of a cluster has in part, or no longer serves.
    pub(crate) moved: BTreeSet<Key>,
}

/// The locks that a node of a cluster serves.
pub(crate) async fn list_served(redis: &Redis) -> Result<Listed, Unknown> {
    list_within(redis, BOUNDS).await
}

/// Every lock of fencelock has a fence, which persists for a day. `SCAN` finds the fences without blocking the server.
/// Each page is processed before the next is requested: only held locks are kept.
async fn list_within(redis: &Redis, (locks, pages): (usize, usize)) -> Result<Listed, Unknown> {
    let session = redis.link.session().await?;
    let (mut found, mut cursor) = (Listed::default(), 0);
    for _ in 0..pages {
        let (next, names) = page(redis, &session, cursor, "fence").await?;
        for names in names.chunks(SCAN_COUNT as usize) {
            inspect_all(redis, &session, names, &mut found).await?;
            if found.held.len() > locks {
                return Err(too_many(redis, &format!("more than {locks} locks are held")));
            }
        }
        if next == 0 {
            return Ok(found);
        }
        cursor = next;
    }
    Err(too_many(redis, &format!("SCAN has not ended after {pages} replies")))
}

/// Whether this user may list locks.
pub(crate) async fn lists_a_page(redis: &Redis, session: &Session) -> Result<(), Unknown> {
    let (_, names) = page(redis, session, 0, "fence").await?;
    inspect_all(redis, session, &names, &mut Listed::default()).await
}

/// Names of side keys of this kind, all kinds for "*", and the next cursor; 0 at the end.
pub(crate) async fn page(
    redis: &Redis,
    session: &Session,
    cursor: u64,
    what: &str,
) -> Result<(u64, Vec<Vec<u8>>), Unknown> {
    let mut scan = redis::cmd("SCAN");
    scan.arg(cursor).arg("MATCH").arg(pattern(&redis.link.target.prefix, what)).arg("COUNT").arg(SCAN_COUNT);
    let answer = session.send(&scan).await;
    redis.link.check(session);
    answer.and_then(|value| Ok(redis::from_redis_value(value)?)).map_err(|error| redis.unknown(&error))
}

async fn inspect_all(redis: &Redis, session: &Session, fences: &[Vec<u8>], found: &mut Listed) -> Result<(), Unknown> {
    let keys: Vec<_> = fences.iter().filter_map(|name| key_of(redis, name, "fence")).collect();
    let calls = keys
        .iter()
        .map(|key| {
            let epoch_check = EpochCheck::without_marker(&session.server_info.run_id);
            script::inspect(&redis.link.target.redis_key(key), 1, epoch_check)
        })
        .collect();
    let answers = send_batch(session, calls, None).await.map_err(|error| redis.unknown(&error))?;
    for (key, answer) in keys.into_iter().zip(answers) {
        let answer = match answer.map_err(|error| redis.unknown(&error)) {
            Err(cause) if cause.is_moved() => {
                found.moved.insert(key);
                continue;
            }
            answer => answer?,
        };
        if let Err(why) = redis.check_queue(&redis.link.target.redis_key(&key), &answer).await {
            found.held.insert(key.clone(), Holding::unread(key, &why));
            continue;
        }
        if let Some(seen) = reply::read_inspect(redis.link.node(), answer)? {
            let holding = seen.holding(&key, BootClock.wall_micros());
            found.held.insert(key, holding);
        }
    }
    Ok(())
}

fn too_many(redis: &Redis, what: &str) -> Unknown {
    let detail = format!("{what}, so they are not listed: list those of one prefix, with prefix= in the URL");
    Unknown::new(redis.link.node(), Fault::Other, detail)
}

pub(crate) fn key_of(redis: &Redis, name: &[u8], what: &str) -> Option<Key> {
    let redis_key = key_of_side_key(std::str::from_utf8(name).ok()?, what)?;
    Key::new(redis_key.strip_prefix(redis.link.target.prefix.as_str())?).ok()
}

/// The pattern of the names of side keys. The server filters by the prefix, if it appears in the name unchanged; the
/// result is checked in any case.
fn pattern(prefix: &str, what: &str) -> String {
    if prefix.contains(['{', '}', '%']) {
        return format!("fencelock:*:{what}");
    }
    let mut pattern = String::from("fencelock:*");
    for c in prefix.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^' | '-') {
            pattern.push('\\');
        }
        pattern.push(c);
    }
    if !prefix.is_empty() {
        pattern.push('*');
    }
    pattern + ":" + what
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_testkit::ScriptedServer;

    #[test]
    fn special_characters_of_the_prefix_are_escaped_in_a_pattern() {
        assert_eq!(pattern("", "fence"), "fencelock:*:fence");
        assert_eq!(pattern("app:", "fence"), "fencelock:*app:*:fence");
        assert_eq!(pattern("a*b[", "fence"), "fencelock:*a\\*b\\[*:fence");
        assert_eq!(pattern("a{b", "fence"), "fencelock:*:fence");
    }

    /// Each reply to `SCAN` returns three other locks, and none is the last.
    fn endless(held: bool) -> ScriptedServer {
        use std::sync::atomic::{AtomicU64, Ordering};
        let next = AtomicU64::new(1);
        ScriptedServer::start(move |words| match words[0].as_str() {
            "SCAN" => {
                let n = next.fetch_add(1, Ordering::Relaxed);
                let cursor = n.to_string();
                let bulk = |name: &str| format!("${}\r\n{name}\r\n", name.len());
                let names = [0, 1, 2].map(|i| bulk(&format!("fencelock:{{k{n}-{i}}}:fence"))).concat();
                format!("*2\r\n${}\r\n{cursor}\r\n*3\r\n{names}", cursor.len()).into_bytes()
            }
            "EVALSHA" if held => b"*6\r\n$1\r\nx\r\n$0\r\n\r\n:5000\r\n$0\r\n\r\n:0\r\n$0\r\n\r\n".to_vec(),
            "EVALSHA" => b":0\r\n".to_vec(),
            _ => ScriptedServer::greeting(words).unwrap_or_else(|| b"-ERR unknown command\r\n".to_vec()),
        })
        .unwrap()
    }

    async fn refused(server: &ScriptedServer, bounds: (usize, usize)) -> String {
        let redis = Redis::lazy(&server.url()).unwrap();
        list_within(&redis, bounds).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn an_endless_scan_is_stopped_at_the_page_limit() {
        let error = refused(&endless(false), (10, 50)).await;
        assert!(error.contains("after 50 replies") && error.contains("prefix="), "{error}");
    }

    #[tokio::test]
    async fn too_many_locks_are_an_error_instead_of_a_partial_list() {
        let error = refused(&endless(true), (10, 50)).await;
        assert!(error.contains("more than 10 locks") && error.contains("prefix="), "{error}");
    }
}
