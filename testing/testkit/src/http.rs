use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::spawn;

/// A request of HTTP 1.1.
#[derive(Debug)]
pub struct HttpRequest {
    /// The first line, the headers, and the empty line.
    pub head: String,
    /// What follows.
    pub body: Vec<u8>,
}

impl HttpRequest {
    /// `None` at the end of the connection.
    pub(crate) fn read(reader: &mut impl BufRead) -> io::Result<Option<Self>> {
        let mut head = String::new();
        while reader.read_line(&mut head)? > 0 {
            if head.ends_with("\r\n\r\n") {
                let mut this = Self { head, body: Vec::new() };
                let length = this.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
                this.body.resize(length, 0);
                reader.read_exact(&mut this.body)?;
                return Ok(Some(this));
            }
        }
        Ok(None)
    }

    /// The method, the path, and the query.
    pub(crate) fn target(&self) -> (&str, &str, &str) {
        let mut words = self.head.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        (method, path, query)
    }

    /// A header, whatever the case of its name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

/// Answers requests on a free port of this machine until this process ends. A connection ends where there is no answer.
///
/// # Panics
/// If there is no free port.
#[allow(clippy::unwrap_used)]
pub fn serve_http(answer: impl Fn(HttpRequest) -> Option<Vec<u8>> + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = Arc::new(answer);
    spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = Arc::clone(&answer);
            // A client that goes away ends its connection.
            spawn(move || drop(converse(&stream, &*answer)));
        }
    });
    port
}

fn converse(mut stream: &TcpStream, answer: &dyn Fn(HttpRequest) -> Option<Vec<u8>>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream);
    while let Some(request) = HttpRequest::read(&mut reader)? {
        let Some(bytes) = answer(request) else { break };
        stream.write_all(&bytes)?;
    }
    Ok(())
}
