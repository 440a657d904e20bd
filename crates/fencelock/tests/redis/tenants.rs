//! Users with the rights that `docs/en/operations.md` names, one trying to harm the other.

use crate::common::{eventually, ms, secs};
use crate::support::{calls, client, command, in_line, number, renewed, server, text, waiting};
use fencelock::LossReason;
use fencelock_testkit::{RedisServer, Reply, RespClient};

/// The rights in the page's block of this name, for another prefix.
fn rights(block: &str, prefix: &str) -> Vec<String> {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/en/operations.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once(&format!("```{block}\n")).unwrap_or_else(|| panic!("no block {block}"));
    let line = rest.lines().next().unwrap().replace("app:", prefix);
    line.split_whitespace().map(str::to_owned).collect()
}

/// A user of this name, whose prefix is its name and a colon.
fn user(server: &RedisServer, name: &str, blocks: &[&str]) -> String {
    let prefix = format!("{name}:");
    let rights: Vec<String> = blocks.iter().flat_map(|block| rights(block, &prefix)).collect();
    let words = ["ACL", "SETUSER", name].into_iter().chain(rights.iter().map(String::as_str));
    assert_eq!(command(server, &words.collect::<Vec<_>>()), Reply::Simple("OK".into()));
    format!("redis://{name}:secret@127.0.0.1:{}?prefix={prefix}", server.port())
}

/// A connection of this user.
fn login(server: &RedisServer, name: &str) -> RespClient {
    let mut connection = server.connect().unwrap();
    assert_eq!(connection.command(&["AUTH", name, "secret"]).text(), Some("OK"));
    connection
}

#[tokio::test]
async fn the_rights_of_the_page_suffice_for_everything_a_holder_and_a_waiter_do() {
    for key in ["orders", "{user:1}:cart", "}{"] {
        let Some(server) = server() else { return };
        let url = user(&server, "a", &["acl"]);
        let (one, other) = (client(&url).await, client(&url).await);
        let held = one.lock(key).ttl(secs(30)).await.unwrap();
        let next = tokio::spawn(other.lock(key).ttl(secs(30)).acquire());
        eventually("in line", async || other.inspect(key).await.unwrap().is_some_and(|held| held.waiters == 1)).await;
        let polls = number(&server, &["DBSIZE"]);
        assert!(polls >= 5, "lock, fence, line, waiters, alive: {polls}");
        held.release().await.unwrap();
        // Usually sooner than a waiter polls; on a slow machine, it only matters that the waiter is served.
        let next = tokio::time::timeout(secs(10), next).await.unwrap().unwrap().unwrap();
        renewed(&next).await;
        command(&server, &["DEL", &format!("a:{key}")]);
        let why = tokio::time::timeout(secs(10), next.lost()).await.expect("tracking reports at once");
        assert_eq!(why, LossReason::Deleted, "{key}");
        let findings = one.diagnose().await.findings;
        let bad = findings.iter().find(|finding| finding.text.contains("refused"));
        assert!(bad.is_none(), "{key}: {bad:?}");
    }
}

#[tokio::test]
async fn an_operator_may_list_and_a_locker_may_not() {
    let Some(server) = server() else { return };
    let (locker, operator) = (user(&server, "a", &["acl"]), user(&server, "o", &["acl", "operator"]));
    let (locker, operator) = (client(&locker).await, client(&operator).await);
    let _theirs = locker.lock("k").await.unwrap();
    let _own = operator.lock("k").await.unwrap();
    let listed = operator.list().await.unwrap();
    assert_eq!(listed.iter().map(|held| held.key.as_str()).collect::<Vec<_>>(), ["k"], "its own prefix alone");
    assert!(locker.list().await.unwrap_err().is_config() || locker.list().await.is_err());
}

#[tokio::test]
async fn a_quarantine_needs_the_rights_to_the_marker() {
    let Some(server) = server() else { return };
    let (with, without) = (user(&server, "a", &["acl", "marker"]), user(&server, "b", &["acl"]));
    let guarded = |url: &str| format!("{url}&quarantine=on&trust_empty=true");
    assert!(client(&guarded(&with)).await.lock("k").await.unwrap().is_held());
    let refused = fencelock::Client::connect(&guarded(&without)).await;
    let refused = match refused {
        Ok(client) => client.lock("k").try_acquire().await.err(),
        Err(error) => Some(error),
    };
    assert!(refused.is_some(), "no marker, no lock");
}

#[tokio::test]
async fn a_hostile_tenant_can_do_nothing_to_the_locks_of_another() {
    let Some(server) = server() else { return };
    let (_, theirs) = (user(&server, "a", &["acl", "operator", "marker"]), user(&server, "b", &["acl", "marker"]));
    let (holder, waiter) = (client(&theirs).await, client(&theirs).await);
    let held = holder.lock("k").ttl(secs(30)).await.unwrap();
    let _tagged = holder.lock("{x}y").await.unwrap();
    let next = waiting_of(&server, "b:k", waiter.lock("k").ttl(secs(30)).acquire()).await;
    let entry = command(&server, &["HVALS", "fencelock:{b:k}:waiters"]);
    let Reply::Array(entries) = entry else { panic!("{entry:?}") };
    let channel = entries[0].text().unwrap().split(' ').nth(2).unwrap().to_owned();
    assert!(channel.starts_with("fencelock:wake:b:"), "{channel}");
    let forged = format!("1 x {} 9007199254740991 1 30000\tb:k", "0".repeat(32));
    let mut hostile = login(&server, "a");
    let poison = "return redis.call('SET', 'fencelock:{b:k}:fence', '9007199254740991')";
    for attack in [
        &["GET", "b:k"][..],
        &["DEL", "b:k"],
        &["SET", "b:k", "x"],
        &["PEXPIRE", "b:k", "1"],
        &["SET", "fencelock:{b:k}:fence", "9007199254740991"],
        &["EVAL", poison, "0"],
        &["DEL", "fencelock:{b:k}:line"],
        &["ZPOPMIN", "fencelock:{b:k}:line"],
        &["HSET", "fencelock:{b:k}:waiters", "x", "x"],
        &["ZADD", "fencelock:{b:k}:alive", "1", "x"],
        &["DEL", "fencelock:key:b:{x}y:fence"],
        &["HSET", "fencelock:node:b:", "until", "0"],
        &["PUBLISH", &channel, &forged],
        &["SUBSCRIBE", &channel],
        &["CLIENT", "PAUSE", "60000"],
        &["CLIENT", "KILL", "TYPE", "normal"],
        &["CLIENT", "LIST"],
        &["CONFIG", "SET", "maxmemory", "1"],
        &["FLUSHALL"],
        &["SCRIPT", "FLUSH"],
        &["KEYS", "*"],
        &["SHUTDOWN", "NOSAVE"],
        &["ACL", "SETUSER", "a", "~*"],
    ] {
        let answer = hostile.command(attack);
        // Versions have words of their own for what a script may not do.
        let words = ["NOPERM", "ACL", "can't access"];
        let refused = matches!(&answer, Reply::Error(why) if words.iter().any(|word| why.contains(word)));
        assert!(refused, "{attack:?}: {answer:?}");
    }
    assert!(held.is_held() && !next.is_finished());
    held.release().await.unwrap();
    assert!(tokio::time::timeout(secs(10), next).await.unwrap().unwrap().unwrap().is_held());
}

async fn waiting_of<T: Send + 'static>(
    server: &RedisServer,
    wire: &str,
    acquire: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    let task = tokio::spawn(acquire);
    eventually("in line", async || in_line(server, wire) == 1).await;
    task
}

#[tokio::test]
async fn a_forged_message_gives_no_token_beyond_the_servers_time() {
    let Some(server) = server() else { return };
    let (holder, waiter) = (client(&server.url()).await, client(&server.url()).await);
    let held = holder.lock("k").ttl(secs(30)).await.unwrap();
    let next = waiting(&server, "k", waiter.lock("k").ttl(secs(30))).await;
    let Reply::Array(ids) = command(&server, &["HGETALL", "fencelock:{k}:waiters"]) else { panic!("no hash") };
    let (id, entry) = (ids[0].text().unwrap(), ids[1].text().unwrap());
    let channel = entry.split(' ').nth(2).unwrap();
    let info = text(&server, &["INFO", "server"]).unwrap();
    let run_id = info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap().trim();
    let far = held.fencing_token().get() + 3_600_000_000;
    for token in [9_007_199_254_740_991, far] {
        let subscribers = command(&server, &["PUBLISH", channel, &format!("1 {run_id} {id} {token} 1 3000\tk")]);
        assert_eq!(subscribers, Reply::Int(1), "the waiter receives it");
    }
    // It polls after each message that it does not trust; a reply shows that it has received them.
    tokio::time::sleep(ms(1500)).await;
    assert!(!next.is_finished() && held.is_held());
    held.release().await.unwrap();
    let next = tokio::time::timeout(secs(10), next).await.unwrap().unwrap();
    assert!(next.fencing_token().get() < far);
}

/// Reports every change of any key to all connections of this user.
fn redirect_tracking_to(server: &RedisServer, victim: &str, hostile: &str) -> Vec<RespClient> {
    let listed = text(server, &["CLIENT", "LIST"]).unwrap();
    let ids = listed.lines().filter(|line| line.contains(&format!(" user={victim} ")));
    let ids: Vec<_> = ids.map(|line| line.split([' ', '=']).nth(1).unwrap().to_owned()).collect();
    assert!(!ids.is_empty(), "{listed}");
    let redirect = |id: &String| {
        let mut connection = login(server, hostile);
        let answer = connection.command(&["CLIENT", "TRACKING", "ON", "REDIRECT", id, "BCAST"]);
        assert_eq!(answer.text(), Some("OK"), "{answer:?}");
        connection
    };
    ids.iter().map(redirect).collect()
}

#[tokio::test]
async fn with_the_rules_for_secret_names_locks_work_and_no_name_is_shown() {
    let Some(server) = server() else { return };
    let (_, theirs) = (user(&server, "a", &["private"]), user(&server, "b", &["private"]));
    let (one, other) = (client(&theirs).await, client(&theirs).await);
    let held = one.lock("k").ttl(secs(30)).await.unwrap();
    let next = waiting_of(&server, "b:k", other.lock("k").ttl(secs(30)).acquire()).await;
    held.release().await.unwrap();
    assert!(tokio::time::timeout(secs(10), next).await.unwrap().unwrap().unwrap().is_held());
    let mut hostile = login(&server, "a");
    for attack in [
        &["CLIENT", "TRACKING", "ON", "BCAST"][..],
        &["CLIENT", "LIST"],
        &["CLIENT", "ID"],
        &["PUBSUB", "CHANNELS"],
        &["PSUBSCRIBE", "*"],
        &["SUBSCRIBE", "__redis__:invalidate"],
        &["SUBSCRIBE", "__keyspace@0__:b:k"],
        &["SCAN", "0"],
        &["RANDOMKEY"],
        &["DBSIZE"],
        &["MONITOR"],
        &["SLOWLOG", "GET"],
        &["LATENCY", "LATEST"],
        &["OBJECT", "FREQ", "b:k"],
        &["ACL", "LOG"],
        &["EXISTS", "b:k"],
        &["TYPE", "b:k"],
        &["EVAL", "return redis.call('RANDOMKEY')", "0"],
        &["EVAL", "return redis.call('PUBSUB', 'CHANNELS')", "0"],
    ] {
        let answer = hostile.command(attack);
        assert!(matches!(answer, Reply::Error(_)), "{attack:?}: {answer:?}");
    }
}

#[tokio::test]
async fn a_tenant_that_redirects_its_tracking_causes_a_few_looks_a_second() {
    let Some(server) = server() else { return };
    let (_, theirs) = (user(&server, "a", &["acl"]), user(&server, "b", &["acl"]));
    let (one, other) = (client(&theirs).await, client(&theirs).await);
    let held = one.lock("k").ttl(secs(30)).await.unwrap();
    let shared = one.lock("s").shared().ttl(secs(30)).await.unwrap();
    let next = waiting_of(&server, "b:k", other.lock("k").ttl(secs(30)).acquire()).await;
    let _redirected = redirect_tracking_to(&server, "b", "a");
    // Two renewals start it.
    for key in ["b:k", "b:s"] {
        command(&server, &["PEXPIRE", key, "30000"]);
    }
    command(&server, &["CONFIG", "RESETSTAT"]);
    let begun = tokio::time::Instant::now();
    tokio::time::sleep(secs(2)).await;
    let (looks, span) = (calls(&server, "evalsha"), begun.elapsed());
    let most = 30 * span.as_millis() / 1000;
    assert!(u128::try_from(looks).unwrap() < most, "{looks} in {span:?}, for two holds and a waiter");
    command(&server, &["DEL", "b:s"]);
    assert_eq!(tokio::time::timeout(secs(10), shared.lost()).await.unwrap(), LossReason::Deleted);
    held.release().await.unwrap();
    assert!(tokio::time::timeout(secs(10), next).await.unwrap().unwrap().unwrap().is_held());
}
