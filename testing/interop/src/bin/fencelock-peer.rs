//! `fencelock-peer [compat=PRESET] PORT...`: fencelock as a peer, for tests with mixed libraries and with a killed holder.
#![forbid(unsafe_code)]

use fencelock::{Client, Guard};
use std::error::Error;
use std::time::Duration;
use tokio::fs;
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::time::sleep;

type Said = Result<String, Box<dyn Error>>;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let (options, ports): (Vec<_>, Vec<_>) = std::env::args().skip(1).partition(|word| word.starts_with("compat="));
    let hosts: Vec<_> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    let client = Client::connect(&url(&hosts, &options.concat())).await?;
    println!("ready fencelock {}", env!("CARGO_PKG_VERSION"));
    let mut held = None;
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let words: Vec<&str> = line.split(' ').collect();
        println!("{}", answer(&client, &mut held, &words).await.unwrap_or_else(|error| format!("error {error:#}")));
    }
    Ok(())
}

fn url(hosts: &[String], options: &str) -> String {
    match hosts {
        [host] => format!("redis://{host}?{options}"),
        hosts => format!("redlock://{}?trust_empty=true&{options}", hosts.join(",")),
    }
}

async fn answer(client: &Client, held: &mut Option<Guard>, words: &[&str]) -> Said {
    match words {
        ["try", key, ttl] => {
            *held = client.lock(key).ttl(millis(ttl)?).try_acquire().await?;
            Ok(if held.is_some() { "held" } else { "busy" }.into())
        }
        ["lock", key, ttl, wait] => match client.lock(key).ttl(millis(ttl)?).wait(millis(wait)?).acquire().await {
            Ok(guard) => {
                *held = Some(guard);
                Ok("held".into())
            }
            Err(fencelock::Error::Busy { .. }) => Ok("busy".into()),
            Err(error) => Err(error.into()),
        },
        ["unlock"] => match held.take().ok_or("no lock is held")?.release().await {
            Err(error) if error.is_lost() => Ok("lost".into()),
            released => Ok(released.map(|()| "freed".into())?),
        },
        ["count", key, ttl, file, times] => {
            for _ in 0..times.parse::<u32>()? {
                let guard = client.lock(key).ttl(millis(ttl)?).wait(Duration::from_secs(60)).acquire().await?;
                // The file is empty while another client writes, which a lock would have prevented.
                let seen: u32 = fs::read_to_string(file).await?.trim().parse().unwrap_or(0);
                sleep(Duration::from_micros(500)).await;
                fs::write(file, (seen + 1).to_string()).await?;
                guard.release().await?;
            }
            Ok("counted".into())
        }
        _ => Err(format!("unknown request: {words:?}").into()),
    }
}

fn millis(text: &str) -> Result<Duration, Box<dyn Error>> {
    Ok(Duration::from_millis(text.parse()?))
}
