//! Sells one piece under a lock: `cargo run -p fencelock --example stock -- redis://HOST`, by default in memory.

use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let db = rusqlite::Connection::open_in_memory()?; // your database
    db.execute_batch("CREATE TABLE stock (pieces INTEGER, fence INTEGER); INSERT INTO stock VALUES (9, 0)")?;

    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let client = fencelock::Client::connect(&url).await?;
    // Not `sku:1`, which may be the key of data on the same server.
    let guard = client.lock("lock:sku:1").wait(Duration::from_secs(5)).await?; // renewed while the guard lives
    let write = "UPDATE stock SET pieces = pieces - 1, fence = ?1 WHERE fence <= ?1";
    if db.execute(write, [i64::from(guard.fencing_token())])? == 0 {
        return Err("a later holder has written".into());
    }
    guard.release().await?; // an error if the lock was lost; a dropped guard is released in the background
    println!("sold one piece");
    Ok(())
}
