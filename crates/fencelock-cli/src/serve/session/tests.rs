use super::*;
use crate::serve::LISTS;
use crate::serve::peer::Peer;
use fencelock_testkit::SplitMix;
use std::sync::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::io::{DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::net::UnixStream;
use tokio::sync::{Semaphore, watch};

const PATIENCE: Duration = Duration::from_secs(60);

async fn server(url: &str) -> Arc<Server> {
    let client = fencelock::Client::connect(url).await.unwrap();
    let (scheme, identity, ttl) = ("memory".to_owned(), String::new(), Duration::from_secs(30));
    Arc::new(Server { client, scheme, identity, ttl, sessions: Mutex::default(), lists: Semaphore::new(LISTS) })
}

/// A session, what it reads from, and the other end of both.
fn session(
    server: &Arc<Server>,
    number: u64,
) -> (Session<WriteHalf<DuplexStream>>, ReadHalf<DuplexStream>, DuplexStream) {
    let (here, _there) = UnixStream::pair().unwrap();
    let visible = Arc::new(Visible::new(Peer::of_socket(&here).unwrap(), None));
    let (stream, other) = duplex(1 << 16);
    let (reader, writer) = split(stream);
    (Session::new(Arc::clone(server), number, visible, writer), reader, other)
}

/// A session that holds `k`.
async fn holding() -> (Session<WriteHalf<DuplexStream>>, ReadHalf<DuplexStream>, DuplexStream) {
    let server = server("memory:panics").await;
    let (mut session, reader, other) = session(&server, 1);
    for line in [
        &br#"{"jsonrpc":"2.0","id":1,"method":"hello","params":{"protocol":1}}"#[..],
        br#"{"jsonrpc":"2.0","id":2,"method":"lock","params":{"key":"k"}}"#,
    ] {
        session.line(line).unwrap();
    }
    while session.visible.holds().is_empty() {
        let (id, done) = session.works.next().await.unwrap();
        session.finish(&id, done).unwrap();
    }
    assert!(server.client.lock("k").try_acquire().await.unwrap().is_none());
    (session, reader, other)
}

async fn assert_free(server: &Server) {
    drop(timeout(PATIENCE, server.client.lock("k")).await.expect("a free lock").unwrap());
    assert!(server.sessions().is_empty());
}

#[tokio::test]
async fn a_panic_in_a_session_releases_what_it_has() {
    let (mut session, reader, _other) = holding().await;
    let server = Arc::clone(&session.server);
    let bug = async {
        yield_now().await;
        panic!("a bug of a request")
    };
    assert_eq!(session.start(&1.into(), None, bug), Ok(None));
    let end = watch::Sender::new(None);
    assert!(tokio::spawn(session.run(reader, end.subscribe())).await.unwrap_err().is_panic());
    assert_free(&server).await;

    let (session, _reader, _other) = holding().await;
    let server = Arc::clone(&session.server);
    let task = tokio::spawn(async move {
        let _session = session;
        panic!("a bug of the session");
    });
    assert!(task.await.unwrap_err().is_panic());
    assert_free(&server).await;
}

/// A line of a client that is out of its mind.
fn hostile_line(dice: &mut SplitMix) -> Vec<u8> {
    const METHODS: &str = "lock release remaining cancel status once elect hello list x";
    const MEMBERS: &str = "key keys wait ttl hold id mode limit permits slots owner window max_hold label done";
    const VALUES: &str = r#"0 1 -1 1e999 null "k" "" [] ["a","b"] {} "\ud800" 0.01 18446744073709551616 "shared" [[[[[[[[ true 2 3 1e-9 "1h""#;
    let (many, sound) = (dice.below(5), dice.percent(66));
    let id = if sound { dice.below(9).to_string() } else { "1e999".to_owned() };
    let mut one = |of: &'static str| dice.pick(&of.split(' ').collect::<Vec<_>>());
    let (method, params) = (one(METHODS), (0..many).map(|_| format!("\"{}\":{}", one(MEMBERS), one(VALUES))));
    let any = params.collect::<Vec<_>>().join(",");
    let params = if sound && dice.percent(50) { "\"key\":\"k\"" } else { &any };
    let line = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{method}\",\"params\":{{{params}}}}}");
    let mut line = line.into_bytes();
    for _ in 0..dice.below(3) * dice.below(4) {
        let (at, byte) = (dice.index(line.len()), u8::try_from(dice.below(256)).unwrap());
        match dice.below(4) {
            0 => line[at] = byte,
            1 => line.truncate(at + 1),
            2 if dice.percent(2) => line.extend(std::iter::repeat_n(byte, LINE)),
            _ => line.insert(at, byte),
        }
    }
    line.push(b'\n');
    line
}

/// Its bytes are read by a session as from a socket. `FENCELOCK_SERVE_SEEDS=N` tries more of them.
#[tokio::test]
async fn a_hostile_client_disturbs_nobody() {
    let seeds = std::env::var("FENCELOCK_SERVE_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(200);
    let (server, end) = (server("memory:hostile").await, watch::Sender::new(None));
    let (good, reader, other) = session(&server, 0);
    tokio::spawn(good.run(reader, end.subscribe()));
    let mut good = BufReader::new(other);
    let mut ask = async |method: &str, params: Value| {
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        good.write_all(format!("{request}\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(PATIENCE, good.read_line(&mut answer)).await.expect("an answer").unwrap();
        serde_json::from_str::<Value>(&answer).unwrap()["result"].take()
    };
    ask("hello", json!({ "protocol": 1 })).await;
    assert_eq!(ask("lock", json!({ "key": "good" })).await["hold"], 1);
    for seed in 1..=seeds {
        let mut dice = SplitMix::new(seed);
        let (hostile, reader, other) = session(&server, seed);
        let hostile = tokio::spawn(hostile.run(reader, end.subscribe()));
        let (mut answers, mut requests) = split(other);
        let reads = seed % 256 != 7;
        let read = tokio::spawn(async move {
            let mut all = Vec::new();
            if reads {
                answers.read_to_end(&mut all).await.unwrap();
            }
            (all, answers)
        });
        let mut bytes =
            b"{\"jsonrpc\":\"2.0\",\"id\":\"h\",\"method\":\"hello\",\"params\":{\"protocol\":1}}\n".to_vec();
        (0..dice.below(200)).for_each(|_| bytes.extend(hostile_line(&mut dice)));
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let (part, left) = rest.split_at(1 + dice.index(rest.len().min(9000)));
            // The session may have ended.
            if requests.write_all(part).await.is_err() {
                break;
            }
            rest = left;
            yield_now().await;
        }
        let _ = requests.shutdown().await;
        let end = timeout(PATIENCE, hostile).await.unwrap_or_else(|_| panic!("seed {seed}: no end"));
        end.unwrap_or_else(|bug| panic!("seed {seed}: {bug}"));
        drop(requests);
        let (answers, _) = read.await.unwrap();
        for line in answers.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let answer: Value = serde_json::from_slice(line).unwrap_or_else(|bug| panic!("seed {seed}: {bug}"));
            assert_ne!(answer["error"]["code"], 70, "seed {seed}: {answer}");
        }
        let left = ask("remaining", json!({ "hold": 1 })).await;
        assert!(left.get("remaining").is_some() && server.sessions().len() == 1, "seed {seed}: {left}");
    }
}
