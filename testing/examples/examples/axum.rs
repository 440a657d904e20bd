//! A shop on the web: `cargo run -p fencelock-examples --example axum -- redis://HOST`, by default in memory, then
//! `curl -X POST localhost:3000/sell/1`. If the buyer hangs up, axum drops the handler, and the lock is released.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Router, routing::post};
use fencelock::{Client, Error};
use rusqlite::{Connection, OptionalExtension, params};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What the handlers share: one client for each backend, and the database.
#[derive(Clone)]
struct Shop {
    locks: Client,
    stock: Arc<Mutex<Connection>>,
}

/// The routes of a shop with nine pieces of item 1.
pub(crate) fn app(locks: Client) -> rusqlite::Result<Router> {
    let stock = Connection::open_in_memory()?;
    stock.execute_batch("CREATE TABLE stock (item, pieces, fence); INSERT INTO stock VALUES (1, 9, 0)")?;
    let shop = Shop { locks, stock: Arc::new(Mutex::new(stock)) };
    Ok(Router::new().route("/sell/{item}", post(sell)).with_state(shop))
}

async fn sell(State(shop): State<Shop>, Path(item): Path<u32>) -> Result<String, (StatusCode, String)> {
    let guard = shop
        .locks
        .lock(format!("lock:sku:{item}"))
        .wait(Duration::from_secs(2))
        .await
        .map_err(|error| refusal(&error))?;
    let token = i64::from(guard.fencing_token());
    let left = shop.take(item, token).map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    // The token protects the write. What is not checked by one is reported only if the lock was held until here.
    guard.release().await.map_err(|error| refusal(&error))?;
    left.map(|left| format!("{left} left\n")).ok_or((StatusCode::GONE, "sold out\n".to_owned()))
}

impl Shop {
    /// What is left; `None` if there was nothing, or a later holder has written.
    fn take(&self, item: u32, token: i64) -> rusqlite::Result<Option<i64>> {
        let write = "UPDATE stock SET pieces = pieces - 1, fence = ?2 WHERE item = ?1 AND pieces > 0 AND fence <= ?2
                     RETURNING pieces";
        let db = self.stock.lock().unwrap_or_else(PoisonError::into_inner);
        db.query_row(write, params![item, token], |row| row.get(0)).optional()
    }
}

/// The buyer may try again.
fn refusal(error: &Error) -> (StatusCode, String) {
    let status = if error.is_busy() { StatusCode::CONFLICT } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, format!("{error:#}\n"))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let app = app(Client::connect(&url).await?)?;
    let listener = tokio::net::TcpListener::bind("localhost:3000").await?;
    println!("http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
