//! fencelock-peer-rslock PORT...
//!
//! rslock with the protocol of all peers; see testing/interop/src/lib.rs. It does not report whether
//! the lock that it releases was still its own.

use redis::Client;
use rslock::{Lock, LockError, LockManager};
use std::error::Error;
use std::time::{Duration, Instant};
use tokio::fs;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::time::sleep;

type Said = Result<&'static str, Box<dyn Error>>;

struct Peer {
    locks: LockManager,
    servers: Vec<Client>,
    held: Option<Lock>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let urls: Vec<_> = std::env::args().skip(1).map(|port| format!("redis://127.0.0.1:{port}")).collect();
    let servers = urls.iter().map(|url| Client::open(url.as_str())).collect::<Result<_, _>>()?;
    let mut locks = LockManager::new(urls);
    locks.set_retry(1, Duration::from_millis(3));
    let mut peer = Peer { locks, servers, held: None };
    println!("ready rslock 0.10");
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<_> = line.split(' ').collect();
        match peer.answer(&words).await {
            Ok(said) => println!("{said}"),
            Err(error) => println!("error {}", error.to_string().replace('\n', " ")),
        }
    }
    Ok(())
}

impl Peer {
    async fn answer(&mut self, words: &[&str]) -> Said {
        match words {
            ["try", key, ttl] => self.acquire(key, ttl, Duration::ZERO).await,
            ["lock", key, ttl, wait] => self.acquire(key, ttl, Duration::from_millis(wait.parse()?)).await,
            ["unlock"] => self.unlock().await,
            ["delete", key] => {
                for server in &self.servers {
                    let mut connection = server.get_multiplexed_async_connection().await?;
                    let () = redis::cmd("DEL").arg(key).query_async(&mut connection).await?;
                }
                Ok("deleted")
            }
            ["count", key, ttl, file, times] => self.count_up(key, ttl, file, times.parse()?).await,
            _ => Err("unknown request".into()),
        }
    }

    async fn acquire(&mut self, key: &str, ttl: &str, wait: Duration) -> Said {
        let (begun, ttl) = (Instant::now(), Duration::from_millis(ttl.parse()?));
        loop {
            match self.locks.lock(key, ttl).await {
                Ok(lock) => {
                    self.held = Some(lock);
                    return Ok("held");
                }
                Err(LockError::Unavailable) if begun.elapsed() >= wait => return Ok("busy"),
                Err(LockError::Unavailable) => sleep(Duration::from_millis(2)).await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn unlock(&mut self) -> Said {
        let lock = self.held.take().ok_or("no lock is held")?;
        self.locks.unlock(&lock).await;
        Ok("done")
    }

    /// Reads a number, waits, and writes the next one: only a lock prevents lost updates.
    async fn count_up(&mut self, key: &str, ttl: &str, file: &str, times: u32) -> Said {
        for done in 0..times {
            if self.acquire(key, ttl, Duration::from_secs(60)).await? != "held" {
                return Err(format!("no lock within a minute, after {done}").into());
            }
            let seen: u32 = fs::read_to_string(file).await?.trim().parse().unwrap_or(0);
            sleep(Duration::from_millis(1)).await;
            fs::write(file, (seen + 1).to_string()).await?;
            self.unlock().await?;
        }
        Ok("counted")
    }
}
