//! The server answers, and its answer is no.

use crate::common::{eventually, ms, secs};
use crate::support::{client, command, renewed, server, server_with, version, waiting};
use fencelock::{Error, Fault};
use fencelock_testkit::{RedisServer, Reply, say_skipped};

/// Why the server refused a claim.
#[track_caller]
fn fault_of<T>(claimed: Result<T, Error>) -> Fault {
    match claimed {
        Err(Error::Unreachable { cause, .. }) => cause.nodes()[0].fault,
        Ok(_) => panic!("no fault"),
        Err(other) => panic!("{other}"),
    }
}

/// A server with a user `app`, and the URL of that user.
fn with_user(rights: &[&str]) -> Option<(RedisServer, String)> {
    let server = server()?;
    let mut words = vec!["ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"];
    words.extend(rights);
    command(&server, &words);
    let url = format!("redis://app:pw@127.0.0.1:{}", server.port());
    Some((server, url))
}

#[test]
fn a_look_after_the_end_of_its_runtime_says_so() {
    let Some(server) = server() else { return };
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let client = first.block_on(async {
        let client = client(&server.url()).await;
        assert!(client.inspect("k").await.unwrap().is_none());
        client
    });
    drop(first);
    runtime().block_on(async {
        let error = client.inspect("k").await.unwrap_err();
        assert!(error.is_config() && error.to_string().contains("the runtime of this client has ended"), "{error}");
    });
}

#[tokio::test]
async fn users_without_messages_tracking_time_or_info_still_get_locks() {
    for lack in ["-subscribe", "-publish", "-client|tracking", "-time", "-info", "resetchannels", "-client"] {
        if lack.contains('|') && server().is_some() && !version().can_deny_subcommands() {
            continue;
        }
        let Some((server, url)) = with_user(&[lack]) else { return };
        let client = client(&url).await;
        let held = client.lock("k").await.unwrap();
        let next = waiting(&server, "k", client.lock("k")).await;
        let token = held.fencing_token();
        held.release().await.unwrap();
        let next = tokio::time::timeout(secs(10), next).await.unwrap_or_else(|_| panic!("{lack}")).unwrap();
        assert!(next.fencing_token() > token, "{lack}");
        tokio::time::sleep(ms(100)).await;
        assert!(next.is_held(), "{lack}");
        next.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_server_that_loads_its_data_is_waited_for() {
    if server().is_none() {
        return;
    }
    if !version().answers_while_loading() {
        return say_skipped(&format!("{} loads so little in one go", version()));
    }
    let options = ["--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024"];
    let options = [version().debug_arguments(), &options].concat();
    let Some(server) = server_with(RedisServer::options().args(options)) else { return };
    let client = client(&server.url()).await;
    let held = client.lock("held").ttl(secs(20)).await.unwrap();
    let mut admin = server.connect().unwrap();
    admin.command(&["DEBUG", "POPULATE", "1000", "filler", "100"]);
    admin.send(&["DEBUG", "RELOAD"]).unwrap();
    eventually(
        "loading",
        async || matches!(server.command(&["GET", "x"]), Reply::Error(why) if why.starts_with("LOADING")),
    )
    .await;
    assert_eq!(fault_of(client.lock("k").try_acquire().await), Fault::Loading);
    assert!(tokio::time::timeout(secs(15), client.lock("k").acquire()).await.unwrap().unwrap().is_held());
    assert!(held.is_held());
}

#[tokio::test]
async fn a_script_that_blocks_the_server_for_a_while_is_waited_for() {
    if server().is_none() {
        return;
    }
    let options = RedisServer::options().args([version().slow_script_argument(), "50"]);
    let Some(server) = server_with(options) else { return };
    let client = client(&server.url()).await;
    let held = client.lock("held").ttl(secs(9)).await.unwrap();
    let mut other = server.connect().unwrap();
    other.send(&["EVAL", "while true do end", "0"]).unwrap();
    eventually("busy", async || matches!(server.command(&["GET", "x"]), Reply::Error(why) if why.starts_with("BUSY")))
        .await;
    assert_eq!(fault_of(client.lock("k").try_acquire().await), Fault::Busy);
    let waiting = tokio::spawn(client.lock("k").acquire());
    tokio::time::sleep(ms(1200)).await;
    command(&server, &["SCRIPT", "KILL"]);
    assert!(tokio::time::timeout(secs(10), waiting).await.unwrap().unwrap().unwrap().is_held());
    assert!(held.is_held());
    renewed(&held).await;
}
