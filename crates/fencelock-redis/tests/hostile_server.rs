//! For any reply of a server: no panic, no endless wait, and bounded memory.

#![allow(clippy::unwrap_used, reason = "the lint spares only the bodies of tests")]

use fencelock::backends::Redis;
use fencelock_core::{Backend, Claim, Holder, HolderId, Intent, Key, Owner, Renewal, Ttl};
use fencelock_testkit::ScriptedServer;
use std::panic;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const LARGEST: &str = "9223372036854775807";
const SMALLEST: &str = "-9223372036854775808";

/// The reply to every request after the handshake.
fn answers() -> Vec<Vec<u8>> {
    let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let words = |words: &[&str]| -> String { words.iter().map(|word| bulk(word)).collect() };
    let mut answers = Vec::new();
    for number in [LARGEST, SMALLEST, "2147483647", "-1", "0", "99999999999999999999999", "nonsense", ""] {
        answers
            .extend([":", "$", "*", "%", "~", ">", "=", "!", "|", "(", ","].map(|kind| format!("{kind}{number}\r\n")));
        let two = format!("*2\r\n{}", bulk(number).repeat(2));
        let numbers = format!("*6\r\n{}", format!(":{number}\r\n").repeat(6));
        answers.extend([two, numbers]);
        for word in
            ["granted", "queued", "busy", "renewed", "taken", "released", "quarantined", "nodeset", "more", "yours"]
        {
            answers.push(format!("*9\r\n{}{}", bulk(word), format!(":{number}\r\n").repeat(8)));
            answers.push(format!("*9\r\n{}{}", bulk(word), bulk(number).repeat(8)));
            answers.push(format!(
                "*7\r\n{}:{number}\r\n{}:{number}\r\n{}",
                bulk(word),
                words(&[number, number]),
                words(&["v", ""])
            ));
        }
        answers.push(format!("*2\r\n:{number}\r\n*1\r\n{}", bulk("fencelock:{k}:fence")));
        // An inspection: value, type, time left, fence, waiters.
        answers.push(format!("*5\r\n{}:{number}\r\n{}:{number}\r\n", words(&["v", ""]), bulk(number)));
    }
    answers.extend(["*1\r\n".repeat(100_000), "%1\r\n".repeat(100_000), "|1\r\n+a\r\n+b\r\n".repeat(1000)]);
    answers.extend(
        ["-\r\n", "-MOVED\r\n", "-MOVED 1 :\r\n", "-NOSCRIPT\r\n", "-ERR \x1b[2J\r\n", "\r\n", "\0\0\0"]
            .map(String::from),
    );
    answers.push(format!("-{}\r\n", "E".repeat(1_000_000)));
    let mut answers: Vec<_> = answers.into_iter().map(String::into_bytes).collect();
    answers.push(b"$4\r\n\xff\xfe\x00\x80\r\n".to_vec());
    answers
}

/// Calls every function. The results do not matter.
async fn call_everything(redis: &Redis) {
    let key = Key::new("k").unwrap();
    let holder = Holder { id: HolderId::from_bytes([7; 16]), owner: Owner::new("box", 1, None).unwrap() };
    for intent in [Intent::Try, Intent::Enqueue, Intent::Poll] {
        let _ = redis.acquire(&Claim::new(key.clone(), holder.clone(), Ttl::default(), intent)).await.answer;
    }
    let _ = redis.renew(&[Renewal::new(key.clone(), holder.id, Ttl::default())]).await;
    if let Ok(Some(seen)) = redis.inspect(&key).await {
        let _ = (format!("{seen:?}"), redis.evict(&seen).await);
    }
    let _ = redis.release(&key, &holder.id).await;
}

/// The peak memory of this process in KiB; `None` where the system does not report it.
fn peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// The only test of its process, because panics of driver tasks and the memory are measured for the process.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_server_may_send_any_reply() {
    let panics = Arc::new(AtomicUsize::new(0));
    let (seen, usual) = (Arc::clone(&panics), panic::take_hook());
    panic::set_hook(Box::new(move |info| {
        seen.fetch_add(1, Ordering::Relaxed);
        usual(info);
    }));
    let before = peak();
    let mut running = tokio::task::JoinSet::new();
    for (number, answer) in answers().into_iter().enumerate() {
        let marked = number % 2 == 0;
        running.spawn(async move {
            let shown = String::from_utf8_lossy(&answer[..answer.len().min(80)]).into_owned();
            let reply = answer.clone();
            let server =
                ScriptedServer::start(move |words| ScriptedServer::greeting(words).unwrap_or_else(|| reply.clone()));
            let server = server.unwrap();
            let url = format!("{}?timeout=100&quarantine={}", server.url(), if marked { "on" } else { "off" });
            let calls = async {
                if let Ok(redis) = Redis::lazy(&url) {
                    call_everything(&redis).await;
                    if number % 16 == 0 {
                        let (_, report) = (redis.list().await, redis.diagnose().await);
                        let _ = report.servers[0].clock.map(|clock| clock.apart_at_least(clock));
                    }
                }
            };
            tokio::time::timeout(Duration::from_secs(120), calls).await.unwrap_or_else(|_| panic!("no end: {shown:?}"));
        });
        // A few at a time: each has threads.
        while running.len() >= 16 {
            running.join_next().await.unwrap().unwrap();
        }
    }
    running.join_all().await;
    assert_eq!(panics.load(Ordering::Relaxed), 0, "see above");
    if let (Some(before), Some(after)) = (before, peak()) {
        assert!(after - before < 256 * 1024, "{} MiB more", (after - before) / 1024);
    }
}
