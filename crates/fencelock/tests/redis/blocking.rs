//! The same without async.

use crate::common::{ms, secs};
use crate::support::{is_free, number, patient, server};
use fencelock::blocking::Client;
use fencelock::{Error, LossReason, Released, RunError};

#[test]
fn a_lock_is_renewed_while_its_owner_computes() {
    let Some(server) = server() else { return };
    let client = Client::connect(&patient(&server)).unwrap();
    let guard = client.lock("k").ttl(secs(4)).acquire().unwrap();
    for _ in 0..50 {
        std::thread::sleep(ms(100));
        assert!(guard.is_held());
    }
    assert!(number(&server, &["PTTL", "k"]) > 0);
    assert_eq!(guard.release().unwrap(), Released::Released);
}

#[test]
fn the_last_guard_of_the_last_client_frees_its_lock() {
    let Some(server) = server() else { return };
    let client = Client::connect(&patient(&server)).unwrap();
    let guard = client.lock("k").acquire().unwrap();
    drop(client);
    drop(guard);
    assert!(is_free(&server, "k"));
}

#[tokio::test]
async fn it_works_inside_an_async_runtime() {
    let Some(server) = server() else { return };
    let client = Client::connect(&patient(&server)).unwrap();
    let guard = client.lock("k").acquire().unwrap();
    assert!(client.lock("k").try_acquire().unwrap().is_none());
    assert!(matches!(client.lock("k").wait(secs(3)).acquire(), Err(Error::Busy { .. })));
    drop(guard);
    drop(client);
    assert!(is_free(&server, "k"));
}

#[test]
fn a_loss_is_reported() {
    let Some(server) = server() else { return };
    let client = Client::connect(&patient(&server)).unwrap();
    let guard = client.lock("k").acquire().unwrap();
    assert_eq!(guard.lost_within(ms(100)), None);
    server.command(&["DEL", "k"]);
    assert_eq!(guard.lost_within(secs(20)), Some(LossReason::Deleted));
    assert!(guard.check().is_err());
    let ran = client.lock("j").run(|held| Ok::<_, ()>(held.is_held()));
    assert_eq!(ran, Ok(true));
    assert!(is_free(&server, "j"));
    let ran = client.lock("j").run(|held| {
        server.command(&["DEL", "j"]);
        assert_eq!(held.lost_within(secs(20)), Some(LossReason::Deleted));
        Ok::<_, ()>("value")
    });
    let Err(RunError::LostAfter { value, reason, .. }) = ran else { panic!("{ran:?}") };
    assert_eq!((value, reason), ("value", LossReason::Deleted));
}
