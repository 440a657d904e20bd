//! What is wrong from the start is said at once, by its name.

use crate::common::{eventually, secs};
use crate::support::{client, command, in_line, server, server_with, waiting};
use fencelock::{Client, Error, Fault};
use fencelock_testkit::{Proxy, RedisServer};
use std::time::Duration;

#[tokio::test]
async fn a_closed_port_is_unreachable_at_once() {
    let Some(mut server) = server() else { return };
    let url = server.url();
    server.kill();
    let Err(Error::Unreachable { cause, .. }) = Client::connect(&url).await else { panic!("no server is there") };
    assert_eq!(cause.nodes()[0].fault, Fault::Unreachable);
}

#[tokio::test]
async fn a_black_hole_is_unreachable_after_a_few_time_limits() {
    let Some(server) = server() else { return };
    let proxy = Proxy::to(server.port()).unwrap();
    proxy.black_hole();
    let connect = Client::connect(&format!("{}?timeout=100", proxy.url())).await;
    let Err(Error::Unreachable { cause, .. }) = connect else { panic!("{connect:?}") };
    assert_eq!(cause.nodes()[0].fault, Fault::Timeout);
}

#[tokio::test]
async fn wrong_and_missing_passwords_are_configuration_errors_that_do_not_repeat_them() {
    let Some(server) = server_with(RedisServer::options().password("right")) else { return };
    for options in ["", "?protocol=resp2"] {
        for login in ["", ":s3cret@", "nobody:s3cret@"] {
            let url = format!("redis://{login}127.0.0.1:{}{options}", server.port());
            let error = Client::connect(&url).await.unwrap_err();
            assert!(matches!(error, Error::Config(_)), "{url}: {error:?}");
            assert!(!error.to_string().contains("s3cret"), "{error}");
        }
    }
    assert!(client(&server.url()).await.lock("k").await.is_ok());
}

#[tokio::test]
async fn what_is_written_for_debugging_is_short_and_keeps_secrets() {
    let Some(server) = server_with(RedisServer::options().password("s3cret")) else { return };
    let client = client(&server.url()).await;
    let guard = client.lock("k").await.unwrap();
    for text in
        [format!("{client:?}"), format!("{guard:?}"), format!("{:?}", guard.held()), format!("{:?}", client.lock("k"))]
    {
        assert!(text.len() < 600 && !text.contains("s3cret"), "{text}");
        assert!(!text.contains(&guard.holder().to_string()), "the proof is a secret too: {text}");
    }
    let blocking =
        std::thread::spawn(move || fencelock::blocking::Client::connect(&server.url()).map(|c| format!("{c:?}")));
    let text = blocking.join().unwrap().unwrap();
    assert!(text.len() < 600 && !text.contains("s3cret"), "{text}");
}

#[tokio::test]
async fn a_password_that_is_changed_ends_a_wait_at_the_next_connection() {
    let Some(server) = server() else { return };
    let (holder, waiter) = (client(&server.url()).await, client(&server.url()).await);
    let _held = holder.lock("k").await.unwrap();
    let waiting = tokio::spawn(waiter.lock("k").acquire());
    eventually("in line", async || in_line(&server, "k") == 1).await;
    let mut admin = server.connect().unwrap();
    admin.command(&["CONFIG", "SET", "requirepass", "new"]);
    admin.command(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    admin.command(&["CLIENT", "KILL", "TYPE", "pubsub", "SKIPME", "yes"]);
    let ended = tokio::time::timeout(secs(10), waiting).await.expect("it is no use to go on").unwrap();
    assert!(matches!(ended, Err(Error::Config(_))), "{ended:?}");
}

#[tokio::test]
async fn tls_with_its_own_authority_works() {
    let Some(server) = server_with(RedisServer::options().tls()) else { return };
    let ca = server.tls_files().ca.display().to_string();
    for options in ["", "&protocol=resp2"] {
        let client = client(&format!("{}?ca={ca}{options}", server.tls_url())).await;
        let first = client.lock("k").await.unwrap();
        let second = waiting(&server, "k", client.lock("k")).await;
        first.release().await.unwrap();
        assert!(second.await.unwrap().is_held());
        eventually("free", async || client.inspect("k").await.unwrap().is_none()).await;
    }
}

#[tokio::test]
async fn a_server_that_wants_a_certificate_gets_the_one_of_the_url() {
    let Some(server) = server_with(RedisServer::options().tls().args(["--tls-auth-clients", "yes"])) else { return };
    let files = server.tls_files().clone();
    let trusting = format!("{}?ca={}", server.tls_url(), files.ca.display());
    let refused = Client::connect(&trusting).await.unwrap_err();
    let Error::Unreachable { cause, .. } = &refused else { panic!("{refused:?}") };
    assert!(cause.to_string().contains("cert=FILE and key=FILE"), "{cause}");
    let shown = |cert: &std::path::Path, key: &std::path::Path| {
        format!("{trusting}&cert={}&key={}", cert.display(), key.display())
    };
    let client = client(&shown(&files.client_certificate, &files.client_key)).await;
    client.lock("k").await.unwrap().release().await.unwrap();
    for (cert, key) in [
        (&files.client_key, &files.client_key),
        (&files.client_certificate, &files.client_certificate),
        (&files.client_certificate, &std::path::PathBuf::from("/dev/zero")),
    ] {
        let refused = Client::connect(&shown(cert, key)).await.unwrap_err();
        assert!(matches!(refused, Error::Config(_)), "{refused:?}");
    }
    let alone = Client::connect(&format!("{trusting}&cert={}", files.client_certificate.display())).await;
    assert!(alone.unwrap_err().to_string().contains("require each other"));
}

#[tokio::test]
async fn nodes_of_a_quorum_get_the_certificate_too() {
    let Some(first) = server_with(RedisServer::options().tls().args(["--tls-auth-clients", "yes"])) else { return };
    let (files, address) = (first.tls_files().clone(), first.tls_url());
    let host = address.strip_prefix("rediss://").unwrap();
    let tls = format!(
        "ca={}&cert={}&key={}",
        files.ca.display(),
        files.client_certificate.display(),
        files.client_key.display()
    );
    let client = client(&format!("redlock+tls://{host}?{tls}&trust_empty=true")).await;
    client.lock("k").await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_password_comes_from_a_file_and_no_error_shows_it() {
    let Some(server) = server_with(RedisServer::options().password("s3cret/@")) else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    std::fs::write(&file, "s3cret/@\n").unwrap();
    let url = format!("redis://127.0.0.1:{}?password_file={}", server.port(), file.display());
    client(&url).await.lock("k").await.unwrap().release().await.unwrap();
    let quorum = url.replace("redis://", "redlock://").replace('?', "?trust_empty=true&");
    client(&quorum).await.lock("j").await.unwrap().release().await.unwrap();
    std::fs::write(&file, "wr0ng\n").unwrap();
    let both = url.replace("127.0.0.1", ":wr0ng@127.0.0.1");
    for url in [&url, &both] {
        let error = Client::connect(url).await.unwrap_err();
        assert!(!format!("{error:#} {error:?}").contains("wr0ng"), "{error:?}");
    }
}

#[tokio::test]
async fn a_password_that_is_changed_first_at_the_server_and_then_in_its_file_loses_no_lock_and_ends_no_wait() {
    let Some(server) = server() else { return };
    command(&server, &["ACL", "SETUSER", "app", "on", ">first", "~*", "&*", "+@all"]);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("password");
    std::fs::write(&file, "first\n").unwrap();
    let url = format!("redis://app@127.0.0.1:{}?password_file={}", server.port(), file.display());
    for url in [url.clone(), format!("{url}&protocol=resp2")] {
        let (holder, other) = (client(&url).await, client(&url).await);
        let guard = holder.lock("k").ttl(secs(30)).await.unwrap();
        let waits = tokio::spawn({
            let other = other.clone();
            async move { other.lock("k").ttl(secs(30)).await.map(drop) }
        });
        eventually("in the queue", async || in_line(&server, "k") == 1).await;
        let previous = std::fs::read_to_string(&file).unwrap();
        let next = if previous == "first\n" { "second" } else { "first" };
        command(&server, &["ACL", "SETUSER", "app", "resetpass", &format!(">{next}")]);
        command(&server, &["CLIENT", "KILL", "USER", "app"]);
        for client in [&other, &holder] {
            let refused = async || matches!(client.inspect("k").await, Err(Error::Unreachable { cause, .. }) if cause.is_revoked());
            eventually("the old password is refused", refused).await;
        }
        std::fs::write(&file, format!("{next}\n")).unwrap();
        assert!(guard.remaining() > Duration::ZERO);
        // At once: the refusal of the old password is no answer to it.
        guard.release().await.unwrap();
        waits.await.unwrap().unwrap();
    }
}
