//! Servers, and direct access to them.

use fencelock::{Client, Guard, Lock};
use fencelock_testkit::{RedisOptions, RedisServer, Reply, ServerVersion, start_or_skip};
use tokio::task::JoinHandle;

pub(crate) use fencelock_testkit::redis_or_skip as server;

/// As [`server`], started in another way.
pub(crate) fn server_with(options: RedisOptions) -> Option<RedisServer> {
    start_or_skip(options)
}

/// Facts of the server that the tests run on.
pub(crate) fn version() -> &'static ServerVersion {
    ServerVersion::of_tests().unwrap()
}

/// For clients that do not connect with [`client`].
pub(crate) fn patient(server: &RedisServer) -> String {
    format!("{}?timeout=30000", server.url())
}

/// Connects. A machine may stop for longer than the default timeout: a reply may take 30 s, unless the URL says otherwise, and one
/// error is none.
pub(crate) async fn client(url: &str) -> Client {
    let url = match (url.contains("timeout="), url.contains('?')) {
        (true, _) => url.to_owned(),
        (false, true) => format!("{url}&timeout=30000"),
        (false, false) => format!("{url}?timeout=30000"),
    };
    let connect = || Client::builder().sharing(crate::SHARING).connect(&url);
    match connect().await {
        Ok(client) => client,
        Err(_) => connect().await.unwrap(),
    }
}

/// Waits for the next renewal, from which the lease is a whole one.
pub(crate) async fn renewed(guard: &Guard) {
    let before = std::cell::Cell::new(guard.remaining());
    crate::common::eventually("renewed", async || before.replace(guard.remaining()) < guard.remaining()).await;
}

/// What the server says to a command that it must carry out.
pub(crate) fn command(server: &RedisServer, words: &[&str]) -> Reply {
    match server.command(words) {
        Reply::Error(why) | Reply::NoAnswer(why) => panic!("{words:?}: {why}"),
        reply => reply,
    }
}

pub(crate) fn text(server: &RedisServer, words: &[&str]) -> Option<String> {
    command(server, words).text().map(str::to_owned)
}

pub(crate) fn number(server: &RedisServer, words: &[&str]) -> i64 {
    match command(server, words) {
        Reply::Int(number) => number,
        other => panic!("{words:?}: {other:?}"),
    }
}

pub(crate) fn is_free(server: &RedisServer, key: &str) -> bool {
    number(server, &["EXISTS", key]) == 0
}

/// Calls of a command since the counters were reset.
pub(crate) fn calls(server: &RedisServer, command: &str) -> usize {
    let info = text(server, &["INFO", "commandstats"]).unwrap();
    let prefix = format!("cmdstat_{command}:calls=");
    let line = info.lines().find_map(|line| line.strip_prefix(&prefix));
    line.map_or(0, |rest| rest.split(',').next().unwrap().parse().unwrap())
}

/// Ends every connection to the server but the one that says so.
pub(crate) fn kill_connections(server: &RedisServer) {
    for kind in ["normal", "pubsub"] {
        command(server, &["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
    }
}

/// The number of clients that can be woken.
pub(crate) fn listeners(server: &RedisServer) -> usize {
    match command(server, &["PUBSUB", "CHANNELS", "fencelock:wake:*"]) {
        Reply::Array(channels) => channels.len(),
        other => panic!("{other:?}"),
    }
}

/// The number of waiters in the queue of a key.
pub(crate) fn in_line(server: &RedisServer, key: &str) -> i64 {
    number(server, &["ZCARD", &format!("fencelock:{{{key}}}:line")])
}

pub(crate) fn keys(server: &RedisServer) -> Vec<String> {
    match command(server, &["KEYS", "*"]) {
        Reply::Array(keys) => keys.iter().map(|key| key.text().unwrap().to_owned()).collect(),
        other => panic!("{other:?}"),
    }
}

/// Starts a wait in a task, and returns when it is in the queue.
pub(crate) async fn waiting(server: &RedisServer, key: &str, lock: Lock) -> JoinHandle<Guard> {
    let before = in_line(server, key);
    let task = tokio::spawn(async move { lock.acquire().await.unwrap() });
    crate::common::eventually("in line", async || in_line(server, key) > before).await;
    task
}
