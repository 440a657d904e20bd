//! Detects the protocol of a server that is not Redis by its first bytes, because the errors of the driver do not show it.

use super::names::resolve;
use crate::url::target::Target;
use fencelock_core::{Fault, Unknown};
use redis::{ErrorKind, RedisError};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A Redis command, and the end of a request of a line-based protocol.
const PLAIN: &[u8] = b"PING\r\n\r\n";
/// More bytes are not needed, and keep the message short.
const ENOUGH: usize = 64;

/// The protocol of the first bytes of a reply.
#[derive(Debug, PartialEq, Eq)]
enum Speaks {
    Redis,
    Tls,
    Http,
    /// Another protocol, with its first bytes.
    Other(String),
}

/// Whether another protocol could cause this error.
pub(crate) fn may_explain(error: &RedisError) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, InvalidData, UnexpectedEof};
    if error.kind() == ErrorKind::Parse {
        return true;
    }
    let io = std::error::Error::source(error).and_then(|source| source.downcast_ref::<std::io::Error>());
    match io.map(std::io::Error::kind) {
        Some(kind) => matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | InvalidData | UnexpectedEof),
        // The error of the driver for a closed connection, or of TLS.
        None => error.is_io_error(),
    }
}

/// Why this address does not accept Redis with this scheme, if it is known.
pub(crate) async fn mismatch(target: &Target) -> Option<Unknown> {
    let (host, port, tls) = target.tcp()?;
    let probe = async |hello: &[u8]| first_bytes(host, port, hello, target.limit).await.map(|bytes| speaks(&bytes));
    let protocol = match probe(PLAIN).await {
        None if !tls => probe(&client_hello(host)).await?,
        protocol => protocol?,
    };
    let why = match (protocol, tls) {
        (Speaks::Redis, false) | (Speaks::Tls, true) => return None,
        (Speaks::Redis, true) => {
            "this port uses Redis without TLS: use redis:// (redlock:// for a quorum), or the server's tls-port"
                .to_owned()
        }
        (Speaks::Tls, false) => "this port uses TLS: use rediss:// (redlock+tls:// for a quorum)".to_owned(),
        (Speaks::Http, _) => "this is an HTTP server, not Redis: check host and port".to_owned(),
        (Speaks::Other(text), _) => format!("this is not a Redis server; it sends {text:?}: check host and port"),
    };
    Some(Unknown::new(&target.name, Fault::Unsupported, why))
}

async fn first_bytes(host: &str, port: u16, hello: &[u8], limit: Duration) -> Option<Vec<u8>> {
    let exchange = async {
        let mut stream = TcpStream::connect(&resolve(host, port).await.ok()?[..]).await.ok()?;
        stream.write_all(hello).await.ok()?;
        let mut bytes = vec![0; ENOUGH];
        let length = stream.read(&mut bytes).await.ok().filter(|length| *length > 0)?;
        bytes.truncate(length);
        Some(bytes)
    };
    tokio::time::timeout(limit, exchange).await.ok()?
}

fn speaks(bytes: &[u8]) -> Speaks {
    match bytes {
        // An alert, or the start of a handshake; with the version.
        [0x15 | 0x16, 3, ..] => Speaks::Tls,
        [b'H', b'T', b'T', b'P', b'/', ..] | [b'<', ..] => Speaks::Http,
        [b'+' | b'-' | b'$' | b':' | b'*' | b'>' | b'%' | b'_', ..] => Speaks::Redis,
        _ => {
            let text = String::from_utf8_lossy(bytes);
            let line: String =
                text.chars().take_while(|char| *char != '\n').filter(|char| !char.is_control()).collect();
            Speaks::Other(line)
        }
    }
}

/// A `ClientHello` of TLS 1.2 that names the host. Every TLS server replies to it, if only with an alert.
fn client_hello(host: &str) -> Vec<u8> {
    // A host name has at most 253 bytes.
    let sized = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap_or_default().to_be_bytes(), bytes].concat();
    let name = sized(&[&[0], &sized(host.as_bytes())[..]].concat());
    let extensions = sized(&[&[0, 0], &sized(&name)[..]].concat());
    // The version, 32 bytes that should be random, no session, two cipher suites, and no compression.
    let fixed = b"\x03\x03fencelock asks: do you use TLS?.\x00\x00\x04\xc0\x2f\xc0\x2b\x01\x00";
    let hello = [&[1, 0], &sized(&[&fixed[..], &extensions].concat())[..]].concat();
    [&[0x16, 3, 1], &sized(&hello)[..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_identify_the_protocol() {
        let samples: [(&[u8], Speaks); 8] = [
            (b"+PONG\r\n", Speaks::Redis),
            (b"-NOAUTH Authentication required.\r\n", Speaks::Redis),
            (b"\x15\x03\x01\x00\x02\x02\x46", Speaks::Tls),
            (b"\x16\x03\x03\x00\x7a\x02", Speaks::Tls),
            (b"HTTP/1.1 400 Bad Request\r\n", Speaks::Http),
            (b"<!DOCTYPE HTML>", Speaks::Http),
            (b"SSH-2.0-OpenSSH_9.2\r\nand more", Speaks::Other("SSH-2.0-OpenSSH_9.2".into())),
            (b"\x1b[31mred\n", Speaks::Other("[31mred".into())),
        ];
        for (bytes, expected) in samples {
            assert_eq!(speaks(bytes), expected, "{bytes:?}");
        }
    }
}
