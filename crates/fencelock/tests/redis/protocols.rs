//! The main promises also without RESP3, and without wake-ups.

use crate::common::{ms, secs};
use crate::support::{client, command, is_free, server, waiting};
use fencelock::LossReason;

const OPTIONS: [&str; 4] = ["?protocol=resp2", "?push=off", "?protocol=resp2&push=off", "?protocol=resp3"];

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
