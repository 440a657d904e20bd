//! A server with replies that are defined by the test.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Parses enough of the Redis protocol to receive requests, and answers each with bytes from the test, which may be invalid.
///
/// The server listens on a free local port until it is dropped.
#[derive(Debug)]
pub struct ScriptedServer {
    port: u16,
    ended: Arc<AtomicBool>,
}

impl ScriptedServer {
    /// Calls `answer` with the words of each request. An empty answer sends nothing, and the client waits.
    ///
    /// # Errors
    /// If no port is available.
    pub fn start(answer: impl Fn(&[String]) -> Vec<u8> + Send + Sync + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let (port, ended) = (listener.local_addr()?.port(), Arc::new(AtomicBool::new(false)));
        let (answer, over) = (Arc::new(answer), Arc::clone(&ended));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if over.load(Ordering::Relaxed) {
                    return;
                }
                let answer = Arc::clone(&answer);
                // It ends when its client goes.
                thread::spawn(move || converse(stream, &*answer));
            }
        });
        Ok(Self { port, ended })
    }

    /// `redis://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// The replies of Redis 7 to the setup requests of a client; `None` for other requests.
    pub fn greeting(words: &[String]) -> Option<Vec<u8>> {
        let text = match words.first()?.to_uppercase().as_str() {
            "HELLO" => "%2\r\n$6\r\nserver\r\n$5\r\nredis\r\n$5\r\nproto\r\n:3\r\n".to_owned(),
            "CLIENT" => "+OK\r\n".to_owned(),
            "INFO" => bulk("# Server\r\nredis_version:7.0.0\r\nrun_id:0123456789abcdef0123456789abcdef01234567\r\n"),
            "SUBSCRIBE" => format!(">3\r\n$9\r\nsubscribe\r\n{}:1\r\n", bulk(words.get(1)?)),
            _ => return None,
        };
        Some(text.into_bytes())
    }
}

/// A bulk string.
fn bulk(text: &str) -> String {
    format!("${}\r\n{text}\r\n", text.len())
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // The connection wakes the listener.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn converse(stream: TcpStream, answer: &dyn Fn(&[String]) -> Vec<u8>) {
    let Ok(mut out) = stream.try_clone() else { return };
    let mut requests = BufReader::new(stream);
    while let Ok(words) = request(&mut requests) {
        if out.write_all(&answer(&words)).is_err() {
            return;
        }
    }
}

/// Parses a request, which must be an array of bulk strings.
fn request(from: &mut impl BufRead) -> io::Result<Vec<String>> {
    (0..number(from, '*')?)
        .map(|_| {
            let mut bytes = vec![0; number(from, '$')? + 2];
            from.read_exact(&mut bytes)?;
            bytes.truncate(bytes.len() - 2);
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        })
        .collect()
}

fn number(from: &mut impl BufRead, kind: char) -> io::Result<usize> {
    let mut line = String::new();
    from.by_ref().take(64).read_line(&mut line)?;
    let number = line.strip_prefix(kind).and_then(|number| number.trim_end().parse().ok());
    number.ok_or_else(|| io::Error::other(format!("not a request: {line:?}")))
}
