//! Servers that lack something, and proxies that know few commands: what works does so in order, what does not is refused at once and
//! named by `doctor`, and nothing is held or waited for in doubt.

use crate::common::secs;
use crate::support::{client, command, in_line, is_free, renewed, server, waiting};
use fencelock::{Client, Error, Level, Topology};
use fencelock_testkit::{Intercept, Proxy, RedisServer};
use std::time::Duration;

/// Its renewals are in time on a machine that stops for seconds.
const TTL: Duration = Duration::from_secs(9);

/// A waiter that is not woken polls once a second. Without a poll, it would wait as long as the test.
const POLL: Duration = Duration::from_secs(20);

/// A server behind something that knows fewer commands.
struct Lacking {
    server: RedisServer,
    proxy: Proxy,
}

impl Lacking {
    fn start(rule: fn(&[String]) -> Intercept) -> Option<Self> {
        let server = server()?;
        let proxy = Proxy::to(server.port()).unwrap();
        proxy.intercept(rule);
        Some(Self { server, proxy })
    }

    fn url(&self, options: &str) -> String {
        format!("{}{options}", self.proxy.url())
    }

    /// Acquires, waits in the queue, hands over, renews, and releases. On a busy machine, a waiter may poll too late to keep its
    /// position.
    async fn locks_in_order(&self, options: &str) {
        for _ in 0..5 {
            if self.locks(options).await {
                return;
            }
        }
        panic!("{options}: the second waiter was the first, each time");
    }

    /// Whether it was in order.
    async fn locks(&self, options: &str) -> bool {
        let (a, b) = (client(&self.url(options)).await, client(&self.url(options)).await);
        let first = a.lock("k").ttl(TTL).await.unwrap();
        assert!(b.lock("k").try_acquire().await.unwrap().is_none(), "{options}");
        let mut second = waiting(&self.server, "k", b.lock("k").ttl(TTL)).await;
        let mut third = waiting(&self.server, "k", a.lock("k")).await;
        renewed(&first).await;
        assert!(first.is_held() && !second.is_finished() && !third.is_finished(), "{options}");
        let token = first.fencing_token();
        first.release().await.unwrap();
        let next = async {
            tokio::select! {
                guard = &mut second => (guard.unwrap(), true),
                guard = &mut third => (guard.unwrap(), false),
            }
        };
        let (next, in_order) = tokio::time::timeout(POLL, next).await.expect("it polls");
        let last = if in_order { third } else { second };
        assert!(next.fencing_token() > token && !last.is_finished(), "{options}");
        next.release().await.unwrap();
        last.await.unwrap().release().await.unwrap();
        assert!(is_free(&self.server, "k"), "{options}");
        assert_eq!(in_line(&self.server, "k"), 0, "{options}");
        in_order
    }

    async fn shared_locks_work(&self, options: &str) {
        let (a, b) = (client(&self.url(options)).await, client(&self.url(options)).await);
        let readers = (a.lock("r").shared().await.unwrap(), b.lock("r").shared().await.unwrap());
        assert!(b.lock("r").try_acquire().await.unwrap().is_none());
        readers.0.release().await.unwrap();
        readers.1.release().await.unwrap();
        let writer = b.lock("r").await.unwrap();
        assert!(a.lock("r").shared().try_acquire().await.unwrap().is_none());
        writer.release().await.unwrap();
    }

    /// What `doctor` says does not work.
    async fn lacks(&self, options: &str, features: &[&str]) {
        let report = client(&self.url(options)).await.diagnose().await;
        let server = &report.servers[0];
        let lacking: Vec<_> = server.features.iter().filter(|feature| !feature.works).collect();
        assert_eq!(lacking.iter().map(|feature| feature.name).collect::<Vec<_>>(), features, "{server:#?}");
        assert!(lacking.iter().all(|feature| !feature.reason.is_empty()), "{server:#?}");
        let text = self.doctor(options, "features").await;
        for feature in features {
            assert!(text.split_once("Do not work: ").unwrap().1.contains(&feature.replace('_', " ")), "{text}");
        }
    }

    async fn doctor(&self, options: &str, subject: &str) -> String {
        let findings = client(&self.url(options)).await.diagnose().await.findings;
        let found = findings.iter().find(|finding| finding.subject == subject);
        found.unwrap_or_else(|| panic!("{subject}: {findings:#?}")).text.clone()
    }

    /// The text of the error, which comes at once and is not retried.
    async fn refused(&self, options: &str) -> String {
        let connect = async {
            let client = Client::connect(&self.url(options)).await?;
            client.lock("k").acquire().await.map(drop)
        };
        let refused = tokio::time::timeout(secs(20), connect).await.expect("it is not retried");
        let Err(error @ Error::Config(_)) = refused else { panic!("{options}: {refused:?}") };
        assert!(is_free(&self.server, "k") && in_line(&self.server, "k") == 0, "{options}");
        error.to_string()
    }
}

fn is(words: &[String], command: &str) -> bool {
    words.first().is_some_and(|word| word.eq_ignore_ascii_case(command))
}

/// As Redis answers.
fn unknown(words: &[String]) -> Intercept {
    Intercept::Refuse(format!("ERR unknown command '{}', with args beginning with: ", words[0]))
}

#[tokio::test]
async fn no_client_tracking() {
    let rule = |words: &[String]| match words {
        [client, tracking, ..] if client == "CLIENT" && tracking == "TRACKING" => {
            Intercept::Refuse("ERR unknown subcommand 'TRACKING'. Try CLIENT HELP.".to_owned())
        }
        _ => Intercept::Forward,
    };
    let Some(lacking) = Lacking::start(rule) else { return };
    lacking.locks_in_order("").await;
    lacking.lacks("", &["tracking"]).await;
}

#[tokio::test]
async fn no_pub_sub() {
    let rule = |words: &[String]| if is(words, "SUBSCRIBE") { unknown(words) } else { Intercept::Forward };
    let Some(lacking) = Lacking::start(rule) else { return };
    for options in ["", "?protocol=resp2"] {
        lacking.locks_in_order(options).await;
    }
    lacking.lacks("", &["wake_ups"]).await;
}

#[tokio::test]
async fn no_wait() {
    let rule = |words: &[String]| if is(words, "WAIT") { unknown(words) } else { Intercept::Forward };
    let Some(lacking) = Lacking::start(rule) else { return };
    lacking.lacks("", &["acks"]).await;
    let error = lacking.refused("?acks=1").await;
    assert!(error.contains("acks=1 needs WAIT"), "{error}");
}

#[tokio::test]
async fn no_time_in_scripts() {
    let Some(lacking) = Lacking::start(|_| Intercept::Forward) else { return };
    command(&lacking.server, &["ACL", "SETUSER", "default", "-time"]);
    lacking.locks_in_order("").await;
    let refused = tokio::time::timeout(secs(20), client(&lacking.url("")).await.lock("r").shared().acquire()).await;
    assert!(matches!(refused, Ok(Err(Error::Config(_)))), "{refused:?}");
    assert!(is_free(&lacking.server, "r") && in_line(&lacking.server, "r") == 0);
    lacking.lacks("", &["shared_locks", "semaphores", "tokens_by_server_time", "quarantine"]).await;
    let error = lacking.refused("?quarantine=on").await;
    assert!(error.contains("denied"), "{error}");
}

/// As Dragonfly answers, if `INFO` did not say that it is Dragonfly.
#[tokio::test]
async fn only_keys_that_the_call_names() {
    let rule = |words: &[String]| {
        let names_few = ["3", "4"].contains(&words.get(2).map_or("", String::as_str));
        if names_few && (is(words, "EVALSHA") || is(words, "EVAL")) {
            let error =
                "ERR Error running script (call to 4c5a6b): @user_script:1: script tried accessing undeclared key";
            return Intercept::Refuse(error.to_owned());
        }
        Intercept::Forward
    };
    let Some(lacking) = Lacking::start(rule) else { return };
    for options in ["", "?quarantine=on&trust_empty=true"] {
        lacking.locks_in_order(options).await;
        lacking.shared_locks_work(options).await;
    }
    // Also if the first request is the release of another process.
    let held = client(&lacking.server.url()).await.lock("k").await.unwrap();
    let holder = held.into_holder();
    client(&lacking.url("")).await.release("k", holder).await.unwrap();
    assert!(is_free(&lacking.server, "k"));
    lacking.lacks("", &[]).await;
}

/// As the proxy of a cluster of Tair, which reads the text of each script.
#[tokio::test]
async fn only_literal_keys_in_scripts() {
    let rule = |words: &[String]| {
        if is(words, "EVAL") && words[1].contains("(...)") {
            let error = "ERR bad lua script for redis cluster, all the keys that the script uses should be passed using the KEYS array, \
                         and KEYS should not be in expression";
            return Intercept::Refuse(error.to_owned());
        }
        Intercept::Forward
    };
    let Some(lacking) = Lacking::start(rule) else { return };
    let error = lacking.refused("").await;
    assert!(error.contains("bad lua script") && error.contains("connect to the server itself"), "{error}");
    let findings = client(&lacking.url("")).await.diagnose().await.findings;
    let features = findings.iter().find(|finding| finding.subject == "features").unwrap();
    assert_eq!(features.level, Level::Failure, "{features:?}");
}

fn without_run_id(words: &[String]) -> Intercept {
    if is(words, "INFO") {
        return Intercept::Answer("redis_version:7.0.0\r\nredis_mode:standalone\r\nrole:master\r\n".to_owned());
    }
    Intercept::Forward
}

#[tokio::test]
async fn no_run_id() {
    let Some(lacking) = Lacking::start(without_run_id) else { return };
    lacking.locks_in_order("").await;
    lacking.shared_locks_work("").await;
    lacking.lacks("", &["quarantine"]).await;
    assert!(lacking.doctor("", "connection").await.contains("behind a proxy"));
    let error = lacking.refused("?quarantine=on").await;
    assert!(error.contains("INFO does not contain a run id") && !error.contains("allow INFO"), "{error}");
}

#[tokio::test]
async fn no_info() {
    let rule = |words: &[String]| if is(words, "INFO") { unknown(words) } else { Intercept::Forward };
    let Some(lacking) = Lacking::start(rule) else { return };
    lacking.locks_in_order("").await;
    lacking.lacks("", &["quarantine"]).await;
    let error = lacking.refused("?quarantine=on").await;
    assert!(error.contains("INFO is refused"), "{error}");
}

/// Answers an error to a command that it does not know, and `INFO` of all servers together.
fn like_envoy(words: &[String]) -> Intercept {
    const KNOWN: [&str; 8] = ["AUTH", "PING", "EVAL", "EVALSHA", "SELECT", "SCAN", "ECHO", "QUIT"];
    if is(words, "INFO") {
        return Intercept::Answer("# Server\r\nredis_version:7.0.0\r\nconnected_clients:12\r\n".to_owned());
    }
    if KNOWN.iter().any(|known| is(words, known)) {
        return Intercept::Forward;
    }
    Intercept::Refuse(format!("ERR unknown command '{}'", words[0].to_lowercase()))
}

#[tokio::test]
async fn a_proxy_that_answers_errors() {
    let Some(lacking) = Lacking::start(like_envoy) else { return };
    lacking.locks_in_order("").await;
    lacking.shared_locks_work("").await;
    lacking.lacks("", &["wake_ups", "tracking", "acks", "quarantine"]).await;
    assert!(lacking.doctor("", "proxy").await.contains("two clients hold one lock"));
    let listed = client(&lacking.url("")).await;
    let held = listed.lock("k").await.unwrap();
    assert_eq!(listed.list().await.unwrap().len(), 1);
    held.release().await.unwrap();
    for options in ["?quarantine=on", "?acks=1"] {
        lacking.refused(options).await;
    }
}

/// Closes the connection at a command that it does not know. The commands were tried on twemproxy 0.5.
fn like_twemproxy(words: &[String]) -> Intercept {
    let has_key = words.get(2).is_some_and(|keys| keys != "0");
    if is(words, "PING") || has_key && (is(words, "EVAL") || is(words, "EVALSHA")) {
        return Intercept::Forward;
    }
    Intercept::Close
}

#[tokio::test]
async fn a_proxy_that_closes_connections() {
    let Some(lacking) = Lacking::start(like_twemproxy) else { return };
    for options in ["", "?protocol=resp2&push=off"] {
        lacking.locks_in_order(options).await;
    }
    lacking.shared_locks_work("").await;
    lacking.lacks("", &["wake_ups", "tracking", "acks", "quarantine", "list"]).await;
    assert!(lacking.doctor("", "proxy").await.contains("two clients hold one lock"));
    assert!(lacking.doctor("", "clock").await.contains("differ by"), "scripts return the time");
    for (options, needed) in [("?quarantine=on", "INFO"), ("?acks=1", "WAIT"), ("/3", "SELECT")] {
        let error = lacking.refused(options).await;
        assert!(error.contains(needed) && error.contains("closes the connection"), "{error}");
    }
    let error = client(&lacking.url("")).await.list().await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { cause, .. } if cause.to_string().contains("SCAN")), "{error:?}");
}

/// A connection that is closed once, during the handshake, does not make a proxy of a server.
#[tokio::test]
async fn a_server_that_closes_a_connection_once_is_no_proxy() {
    let Some(lacking) = Lacking::start(|_| Intercept::Forward) else { return };
    for command in ["HELLO", "INFO", "CLIENT", "SUBSCRIBE"] {
        let once = std::sync::atomic::AtomicBool::new(true);
        lacking.proxy.intercept(move |words| {
            let closes = is(words, command) && once.swap(false, std::sync::atomic::Ordering::SeqCst);
            if closes { Intercept::Close } else { Intercept::Forward }
        });
        let client = Client::builder().sharing(crate::SHARING).connect(&lacking.url("")).await;
        let client = match client {
            Ok(client) => client,
            Err(_) => crate::support::client(&lacking.url("")).await,
        };
        let report = client.diagnose().await;
        assert!(report.servers[0].features.iter().all(|feature| feature.works), "{command}: {report:#?}");
    }
}

#[tokio::test]
async fn a_replica_has_no_locks() {
    let Some(lacking) = Lacking::start(|_| Intercept::Forward) else { return };
    let master = RedisServer::start().unwrap();
    lacking.server.follow(master.port());
    let report = client(&lacking.url("")).await.diagnose().await;
    assert_eq!(report.servers[0].topology, Topology::Replica);
    let of_modes = ["exclusive_locks", "shared_locks", "semaphores"];
    let lacks = |name| report.servers[0].features.iter().any(|feature| feature.name == name && !feature.works);
    assert!(of_modes.into_iter().all(lacks), "{report:#?}");
    assert!(lacking.doctor("", "connection").await.contains(", a replica, "));
}

/// As a database of an Active-Active set reports itself.
#[tokio::test]
async fn a_server_whose_peers_accept_writes_is_a_failure() {
    let rule = |words: &[String]| {
        if is(words, "INFO") {
            let info = "redis_version:7.4.0\r\nrun_id:12\r\nrole:master\r\n# CRDT\r\ncrdt_config_version:1\r\n";
            return Intercept::Answer(info.to_owned());
        }
        Intercept::Forward
    };
    let Some(lacking) = Lacking::start(rule) else { return };
    let findings = client(&lacking.url("")).await.diagnose().await.findings;
    let found = findings.iter().find(|finding| finding.subject == "active-active").unwrap();
    assert_eq!(found.level, Level::Failure);
    assert!(found.text.contains("two clients can hold one lock"), "{found:?}");
}
