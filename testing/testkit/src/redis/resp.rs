use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

/// A local server that takes longer is dead or stopped.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);

/// A reply of a Redis server in RESP2. Errors are values, so that a test can check them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `+OK`.
    Simple(String),
    /// `-ERR ...`.
    Error(String),
    /// `:1`.
    Int(i64),
    /// A string; invalid UTF-8 is replaced.
    Text(String),
    /// Null.
    Nil,
    /// An array.
    Array(Vec<Reply>),
    /// The server did not answer; contains the reason.
    NoAnswer(String),
}

impl Reply {
    /// The text of a simple or bulk string.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Simple(text) | Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// A client that contains no code under test.
#[derive(Debug)]
pub struct RespClient {
    stream: BufReader<TcpStream>,
}

impl RespClient {
    /// Connects to a local port.
    pub fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)), REPLY_TIMEOUT)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sets the timeout of a reply, initially 5 s.
    pub fn set_reply_timeout(&self, timeout: Duration) -> Result<()> {
        self.stream.get_ref().set_read_timeout(Some(timeout))
    }

    /// Sends one command, and reads one reply.
    pub fn command(&mut self, words: &[&str]) -> Reply {
        self.send(words).and_then(|()| self.read()).unwrap_or_else(|error| Reply::NoAnswer(error.to_string()))
    }

    /// Sends a command and leaves its reply for [`RespClient::receive`].
    pub fn send(&mut self, words: &[&str]) -> Result<()> {
        let mut message = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            write!(message, "${}\r\n{word}\r\n", word.len())?;
        }
        self.stream.get_mut().write_all(&message)
    }

    /// Sends encoded commands; each causes a reply for [`RespClient::receive`].
    pub fn send_written(&mut self, commands: &[u8]) -> Result<()> {
        self.stream.get_mut().write_all(commands)
    }

    /// Reads the next reply or push message.
    pub fn receive(&mut self) -> Reply {
        self.read().unwrap_or_else(|error| Reply::NoAnswer(error.to_string()))
    }

    fn read(&mut self) -> Result<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
        let line = line.trim_end();
        let Some((kind, rest)) = line.split_at_checked(1) else { return Err(odd(line)) };
        match kind {
            "+" => Ok(Reply::Simple(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => rest.parse().map(Reply::Int).map_err(|_| odd(line)),
            "$" => self.read_text(rest.parse().map_err(|_| odd(line))?),
            "*" => self.read_array(rest.parse().map_err(|_| odd(line))?),
            _ => Err(odd(line)),
        }
    }

    fn read_text(&mut self, length: i64) -> Result<Reply> {
        let Ok(length) = usize::try_from(length) else { return Ok(Reply::Nil) };
        let mut bytes = vec![0; length + 2];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(Reply::Text(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn read_array(&mut self, length: i64) -> Result<Reply> {
        let Ok(length) = usize::try_from(length) else { return Ok(Reply::Nil) };
        (0..length).map(|_| self.read()).collect::<Result<_>>().map(Reply::Array)
    }
}

fn odd(line: &str) -> Error {
    Error::new(ErrorKind::InvalidData, format!("not a reply of Redis: {line:?}"))
}
