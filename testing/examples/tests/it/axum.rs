//! The shop of the example, asked over HTTP.

#[allow(dead_code, reason = "its `main` listens on a port of its own")]
#[path = "../../examples/axum.rs"]
mod shop;

use fencelock::Client;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[tokio::test]
async fn a_shop_sells_what_it_has_and_refuses_while_the_lock_is_held() {
    let client = Client::connect("memory:").await.expect("a client");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    tokio::spawn(axum::serve(listener, shop::app(client.clone()).expect("a shop")).into_future());
    let buy = async || {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        stream.write_all(b"POST /sell/1 HTTP/1.0\r\n\r\n").await.expect("a request");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer");
        answer
    };
    let held = client.lock("lock:sku:1").await.expect("the lock");
    let refused = buy().await;
    assert!(refused.contains(" 409 ") && refused.contains("lock:sku:1 is held by "), "{refused}");
    held.release().await.expect("a release");
    for left in (0..9).rev() {
        let sold = buy().await;
        assert!(sold.contains(" 200 ") && sold.ends_with(&format!("{left} left\n")), "{sold}");
    }
    assert!(buy().await.contains(" 410 "));
}
