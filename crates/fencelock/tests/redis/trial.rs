//! A trial of a lock may be interrupted at any moment.

use crate::support::{client, command, server};
use fencelock::Level;
use fencelock_testkit::{Intercept, Proxy, Reply};
use std::sync::{Arc, Mutex};

#[tokio::test]
async fn whatever_a_trial_has_written_at_any_moment_ends_within_5_s() {
    let Some(server) = server() else { return };
    let (proxy, port) = (Proxy::to(server.port()).unwrap(), server.port());
    let seen = Arc::new(Mutex::new((0, Vec::new())));
    let looks = Arc::clone(&seen);
    // Between two commands, as after a kill.
    proxy.intercept(move |_| {
        let mut connection = fencelock_testkit::RespClient::connect(port).unwrap();
        if let Reply::Array(keys) = connection.command(&["KEYS", "*"]) {
            let mut seen = looks.lock().unwrap();
            seen.0 = seen.0.max(keys.len());
            for key in keys.iter().filter_map(Reply::text) {
                match connection.command(&["PTTL", key]) {
                    Reply::Int(-2 | 0..=5000) => {}
                    left => seen.1.push(format!("{key}: {left:?}")),
                }
            }
        }
        Intercept::Forward
    });
    let findings = client(&proxy.url()).await.try_out(None).await.unwrap();
    assert!(findings.iter().all(|finding| finding.level == Level::Fine), "{findings:?}");
    let seen = seen.lock().unwrap();
    assert!(seen.0 >= 4 && seen.1.is_empty(), "{seen:?}");
    assert_eq!(command(&server, &["KEYS", "*"]), Reply::Array(Vec::new()), "all is removed");
}

#[tokio::test]
async fn a_trial_of_a_key_that_another_client_takes_meanwhile_harms_no_lock() {
    let Some(server) = server() else { return };
    let (proxy, port) = (Proxy::to(server.port()).unwrap(), server.port());
    // Other clients share the key as soon as the trial has looked whether it is in use.
    let taken = Mutex::new(false);
    let wire = ["fencelock:{k}:holds", "fencelock:{k}:held", "fencelock:{k}:fence", "k"];
    proxy.intercept(move |words| {
        let mut taken = taken.lock().unwrap();
        if words[0] == "EVAL" && !*taken {
            *taken = true;
            let id = "ab".repeat(16);
            let mut connection = fencelock_testkit::RespClient::connect(port).unwrap();
            connection.command(&["SET", "k", "fencelock:1:r:0:7", "PX", "60000"]);
            connection.command(&["ZADD", wire[0], "9999999999999", &id]);
            connection.command(&["HSET", wire[1], &id, "1 7 host:1"]);
            connection.command(&["SET", wire[2], "7"]);
            for key in &wire[..3] {
                connection.command(&["PEXPIRE", key, "120000"]);
            }
        }
        Intercept::Forward
    });
    let findings = client(&proxy.url()).await.try_out(Some("k")).await.unwrap();
    assert!(findings[0].text.contains("not tried"), "{findings:?}");
    for key in wire {
        let left = command(&server, &["PTTL", key]);
        assert!(matches!(left, Reply::Int(50_000..)), "{key}: {left:?}");
    }
}

#[tokio::test]
async fn a_connection_deletes_no_lock_of_any_name() {
    let Some(server) = server() else { return };
    for prefix in ["", "?prefix=p:"] {
        let url = format!("{}{prefix}", server.url());
        let guard = client(&url).await.lock("fencelock-doctor").await.unwrap();
        let other = client(&url).await;
        assert!(other.lock("fencelock-doctor").try_acquire().await.unwrap().is_none());
        other.try_out(None).await.unwrap();
        assert!(other.lock("fencelock-doctor").try_acquire().await.unwrap().is_none());
        assert!(guard.is_held());
    }
}
