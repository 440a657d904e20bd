//! The main promises also without RESP3, and without wake-ups.

use crate::common::{eventually, ms, secs};
use crate::support::{client, command, in_line, is_free, server, waiting};
use fencelock::LossReason;

const OPTIONS: [&str; 4] = ["?protocol=resp2", "?push=off", "?protocol=resp2&push=off", "?protocol=resp3"];

#[tokio::test]
async fn locks_exclude_and_are_handed_over_in_order() {
    let Some(server) = server() else { return };
    for options in OPTIONS {
        let url = format!("{}{options}", server.url());
        let (a, b) = (client(&url).await, client(&url).await);
        let first = a.lock("k").await.unwrap();
        assert!(b.lock("k").try_acquire().await.unwrap().is_none(), "{options}");
        let second = waiting(&server, "k", b.lock("k")).await;
        let third = waiting(&server, "k", a.lock("k")).await;
        let token = first.fencing_token();
        first.release().await.unwrap();
        let second = second.await.unwrap();
        assert!(second.fencing_token() > token && !third.is_finished(), "{options}");
        second.release().await.unwrap();
        third.await.unwrap().release().await.unwrap();
        assert!(is_free(&server, "k"), "{options}");
    }
}

#[tokio::test]
async fn waits_that_are_given_up_leave_nothing() {
    let Some(server) = server() else { return };
    for options in OPTIONS {
        let client = client(&format!("{}{options}", server.url())).await;
        let held = client.lock("k").await.unwrap();
        waiting(&server, "k", client.lock("k")).await.abort();
        eventually("out of line", async || in_line(&server, "k") == 0).await;
        assert!(client.lock("k").wait(ms(30)).await.is_err());
        eventually(options, async || in_line(&server, "k") == 0).await;
        drop(held);
        eventually("free", async || is_free(&server, "k")).await;
    }
}

#[tokio::test]
async fn a_foreign_delete_is_reported_by_the_next_renewal_at_the_latest() {
    let Some(server) = server() else { return };
    for options in OPTIONS {
        let client = client(&format!("{}{options}", server.url())).await;
        let guard = client.lock("k").ttl(secs(3)).await.unwrap();
        tokio::time::sleep(ms(100)).await;
        command(&server, &["DEL", "k"]);
        assert_eq!(guard.lost().await, LossReason::Deleted, "{options}: notified before the lease ended");
        assert!(is_free(&server, "k"));
    }
}

#[tokio::test]
async fn a_foreign_release_is_noticed_by_the_next_poll_at_the_latest() {
    let Some(server) = server() else { return };
    for options in OPTIONS {
        let client = client(&format!("{}{options}", server.url())).await;
        command(&server, &["SET", "k", "theirs"]);
        let next = waiting(&server, "k", client.lock("k")).await;
        command(&server, &["DEL", "k"]);
        let next = tokio::time::timeout(secs(20), next).await.expect(options).unwrap();
        next.release().await.unwrap();
    }
}
