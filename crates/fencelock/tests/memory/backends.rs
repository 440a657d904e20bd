//! `memory:` is one backend for the whole process, and a test can have one of its own.

use fencelock::backends::Memory;
use fencelock::{Backend, Client};
use std::sync::Arc;

async fn is_free(client: &Client, key: &str) -> bool {
    client.lock(key).try_acquire().await.unwrap().is_some()
}

#[tokio::test]
async fn clients_of_one_process_exclude_each_other() {
    let key = "clients_of_one_process";
    let (a, b) = (Client::connect("memory:").await.unwrap(), Client::connect("memory:").await.unwrap());
    let held = a.lock(key).await.unwrap();
    assert!(!is_free(&b, key).await);
    assert!(is_free(&Client::connect("memory:apart").await.unwrap(), key).await, "a name is another backend");
    let own: Arc<dyn Backend> = Arc::new(Memory::new());
    assert!(is_free(&Client::builder().backend(own).unwrap(), key).await, "so is a memory of one's own");
    let token = held.fencing_token();
    held.release().await.unwrap();
    drop((a, b));
    let later = Client::connect("memory:").await.unwrap().lock(key).await.unwrap();
    assert!(later.fencing_token() > token, "the backend remembers a key without a holder");
}
