//! A request is carried out, and its reply is lost: nothing is done twice, and nothing is left.

use crate::common::{eventually, ms, secs};
use crate::support::{client, in_line, is_free, renewed, server, text};
use fencelock::{Error, Released};
use fencelock_testkit::{Proxy, Then};

const THEN: [Then; 2] = [Then::Close, Then::StaySilent];

#[tokio::test]
async fn of_a_claim_that_was_granted() {
    let Some(server) = server() else { return };
    for then in THEN {
        let proxy = Proxy::to(server.port()).unwrap();
        let client = client(&format!("{}?timeout=500", proxy.url())).await;
        client.lock("other").await.unwrap().release().await.unwrap();
        proxy.drop_reply_to("enqueue", then);
        let guard = client.lock("k").await.unwrap();
        assert!(proxy.dropped_replies() >= 1, "{then:?}");
        let value = text(&server, &["GET", "k"]).unwrap();
        assert!(value.starts_with(&guard.holder().to_string()), "{then:?}");
        assert_eq!(in_line(&server, "k"), 0);
        guard.release().await.unwrap();
        assert!(is_free(&server, "k"), "{then:?}");
    }
}

#[tokio::test]
async fn of_a_claim_that_was_queued() {
    let Some(server) = server() else { return };
    for then in THEN {
        let proxy = Proxy::to(server.port()).unwrap();
        let (holder, waiter) = (client(&server.url()).await, client(&format!("{}?timeout=500", proxy.url())).await);
        let held = holder.lock("k").await.unwrap();
        proxy.drop_reply_to("enqueue", then);
        let next = tokio::spawn(waiter.lock("k").acquire());
        proxy.until_dropped(1).await;
        for _ in 0..50 {
            assert!(in_line(&server, "k") <= 1, "one waiter, one position: {then:?}");
            tokio::time::sleep(ms(20)).await;
        }
        eventually("in line", async || in_line(&server, "k") == 1).await;
        held.release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
        assert!(is_free(&server, "k"), "{then:?}");
    }
}

#[tokio::test]
async fn of_a_single_try() {
    let Some(server) = server() else { return };
    for then in THEN {
        let proxy = Proxy::to(server.port()).unwrap();
        let client = client(&format!("{}?timeout=500", proxy.url())).await;
        client.lock("other").await.unwrap().release().await.unwrap();
        proxy.drop_reply_to("try", then);
        let claimed = client.lock("k").ttl(secs(60)).try_acquire().await;
        assert!(matches!(claimed, Err(Error::Unreachable { attempts: 1, .. })), "{claimed:?}");
        eventually("given back", async || is_free(&server, "k")).await;
    }
}

#[tokio::test]
async fn of_a_release() {
    let Some(server) = server() else { return };
    for then in THEN {
        let proxy = Proxy::to(server.port()).unwrap();
        let client = client(&format!("{}?timeout=500", proxy.url())).await;
        // The server knows the scripts, so that the next request with this proof is the release and not its second try.
        client.lock("other").await.unwrap().release().await.unwrap();
        let guard = client.lock("k").await.unwrap();
        tokio::time::sleep(ms(100)).await;
        proxy.drop_reply_to(&guard.holder().to_string(), then);
        assert_eq!(guard.release().await.unwrap(), Released::Released, "{then:?}");
        assert!(proxy.dropped_replies() >= 1);
    }
}

#[tokio::test]
async fn of_a_renewal() {
    let Some(server) = server() else { return };
    for then in THEN {
        let proxy = Proxy::to(server.port()).unwrap();
        let client = client(&format!("{}?timeout=500", proxy.url())).await;
        let guard = client.lock("k").ttl(secs(9)).await.unwrap();
        tokio::time::sleep(ms(100)).await;
        proxy.drop_reply_to(&guard.holder().to_string(), then);
        proxy.until_dropped(1).await;
        renewed(&guard).await;
        assert!(guard.is_held(), "{then:?}");
        assert_eq!(guard.release().await.unwrap(), Released::Released);
    }
}

#[tokio::test]
async fn of_a_request_that_was_given_up_between_sending_and_reply() {
    let Some(server) = server() else { return };
    let proxy = Proxy::to(server.port()).unwrap();
    let client = client(&proxy.url()).await;
    proxy.delay(ms(0), ms(200));
    let mut given_up = 0;
    for _ in 0..50 {
        match tokio::time::timeout(ms(50), client.lock("k").ttl(secs(60)).acquire()).await {
            Err(_) => given_up += 1,
            // A machine may stop until the reply is there.
            Ok(claimed) => drop(claimed.unwrap().release().await.unwrap()),
        }
        eventually("given back", async || is_free(&server, "k")).await;
        if given_up == 5 {
            return;
        }
    }
    panic!("given up {given_up} times");
}
