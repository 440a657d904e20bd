//! The server answers, and its answer is no.

use crate::common::{Counter, eventually, ms, secs};
use crate::support::{client, command, is_free, keys, number, renewed, server, server_with, version, waiting};
use fencelock::{Error, Fault, Released, ReleasedAll};
use fencelock_testkit::{RedisServer, Reply, say_skipped};
use tokio::time::Instant;

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
async fn a_user_without_scripts_is_a_configuration_error_at_once() {
    let Some((_server, url)) = with_user(&["-@scripting"]) else { return };
    let client = client(&url).await;
    let claimed = tokio::time::timeout(secs(20), client.lock("k").acquire()).await.expect("no use in waiting");
    let Err(error @ Error::Config(_)) = claimed else { panic!("{claimed:?}") };
    assert!(error.to_string().contains("access denied"), "{error}");
}

#[tokio::test]
async fn a_user_without_the_commands_in_the_scripts_is_one_too() {
    let Some((_server, url)) = with_user(&["-set"]) else { return };
    let client = client(&url).await;
    let claimed = tokio::time::timeout(secs(20), client.lock("k").acquire()).await.expect("no use in waiting");
    assert!(matches!(claimed, Err(Error::Config(_))), "{claimed:?}");
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
async fn a_master_that_becomes_a_replica_is_read_only_and_not_a_loss() {
    let Some(server) = server() else { return };
    let client = client(&server.url()).await;
    let held = client.lock("held").ttl(secs(5)).await.unwrap();
    tokio::time::sleep(ms(100)).await;
    // A master that does not exist: the data stay, and writes are refused.
    command(&server, &["REPLICAOF", "127.0.0.1", "1"]);
    assert_eq!(fault_of(client.lock("k").try_acquire().await), Fault::ReadOnly);
    let waiting = tokio::spawn(client.lock("k").acquire());
    tokio::time::sleep(ms(500)).await;
    assert!(!waiting.is_finished() && held.is_held());
    command(&server, &["REPLICAOF", "NO", "ONE"]);
    assert!(tokio::time::timeout(secs(10), waiting).await.unwrap().unwrap().unwrap().is_held());
    renewed(&held).await;
}

#[tokio::test]
async fn a_full_server_refuses_locks_clearly_and_takes_them_back() {
    let Some(server) = server() else { return };
    let client = client(&server.url()).await;
    let held = client.lock("held").await.unwrap();
    let handed = client.lock("handed").await.unwrap();
    let next = waiting(&server, "handed", client.lock("handed")).await;
    command(&server, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    command(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    assert_eq!(fault_of(client.lock("k").try_acquire().await), Fault::Full);
    assert_eq!(held.release().await.unwrap(), Released::Released);
    assert!(is_free(&server, "held"));
    assert_eq!(handed.release().await.unwrap(), Released::Released);
    assert!(tokio::time::timeout(secs(20), next).await.expect("handed over").unwrap().is_held());
    command(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    assert!(client.lock("k").await.is_ok());
}

#[track_caller]
fn is_full<T>(claimed: Result<T, Error>) {
    assert_eq!(fault_of(claimed), Fault::Full);
}

#[tokio::test]
async fn a_full_server_refuses_every_kind_of_lock_and_keeps_nothing_of_it() {
    let Some(server) = server() else { return };
    let client = client(&server.url()).await;
    let held = client.lock_all(["a", "b"]).await.unwrap();
    let reader = client.lock("reader").shared().await.unwrap();
    let permits = client.semaphore("permits", 3).acquire(2).await.unwrap();
    let slot = client.slots("pool", 2).acquire().await.unwrap();
    let leader = client.election("election").campaign().await.unwrap();
    let before = keys(&server);
    command(&server, &["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    command(&server, &["CONFIG", "SET", "maxmemory", "1"]);
    is_full(client.lock("k").shared().try_acquire().await);
    is_full(client.semaphore("k", 3).try_acquire(1).await);
    is_full(client.lock_all(["k", "l"]).try_acquire().await);
    is_full(client.lock_all(["k", "l"]).wait(secs(3)).acquire().await);
    is_full(client.slots("k", 2).try_acquire().await);
    is_full(client.election("k").wait(ms(0)).campaign().await);
    let did = client.once("k", secs(3600)).wait(ms(100)).run(async |_held| Ok::<_, std::io::Error>(())).await;
    assert!(did.is_err(), "the work did not begin");
    // The other slot is refused, and so are a reader and a permit beside those that are in use.
    is_full(client.slots("pool", 2).try_acquire().await);
    is_full(client.lock("reader").shared().try_acquire().await);
    is_full(client.semaphore("permits", 3).try_acquire(1).await);
    assert_eq!(keys(&server), before);
    assert_eq!(held.release().await.unwrap(), ReleasedAll::Released);
    for guard in [reader, permits, slot.into_guard()] {
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
    assert_eq!(leader.resign().await.unwrap(), Released::Released);
    let fences = keys(&server);
    assert!(fences.iter().all(|key| key.ends_with(":fence")), "{fences:?}");
    command(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    assert!(client.lock_all(["a", "b"]).await.is_ok());
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn scripts_flushed_every_few_milliseconds_cost_no_lock() {
    let Some(server) = server() else { return };
    let client = client(&server.url()).await;
    let (ttl, begun) = (secs(3), Instant::now());
    let long = client.lock("long").ttl(ttl).await.unwrap();
    let inside = Counter::default();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let (client, inside) = (client.clone(), inside.clone());
            tokio::spawn(async move {
                for _ in 0..50 {
                    let guard = client.lock("k").await.unwrap();
                    assert_eq!(inside.up(), 1);
                    tokio::time::sleep(ms(1)).await;
                    inside.down();
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    let mut flushes = 0;
    while begun.elapsed() < ttl * 3 / 2 || !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
        command(&server, &["SCRIPT", "FLUSH"]);
        flushes += 1;
        tokio::time::sleep(ms(3)).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!(flushes > 10 && long.is_held(), "{flushes}");
    assert_eq!(number(&server, &["EXISTS", "k"]), 0);
}
