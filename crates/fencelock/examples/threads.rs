//! The same without async, for threads and scripts: `cargo run -p fencelock --example threads -- redis://HOST`.

use fencelock::blocking::Client;
use std::time::Duration;

fn main() -> Result<(), fencelock::Error> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".to_owned());
    let client = Client::connect(&url)?;
    let guard = client.lock("lock:report").wait(Duration::from_secs(5)).acquire()?;
    guard.on_lost(|loss| {
        eprintln!("{}: {loss}", loss.key);
        std::process::exit(75); // nothing is written without the lock
    });
    for page in 1..=3 {
        guard.check()?;
        println!("page {page} with token {}", guard.fencing_token());
    }
    guard.release()
}
