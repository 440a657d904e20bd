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
    let bytes = match first_bytes(host, port, PLAIN, target.limit).await {
        None if !tls => first_bytes(host, port, &client_hello(host), target.limit).await?,
        bytes => bytes?,
    };
    Some(Unknown::new(&target.name, Fault::Unsupported, mistaken(&bytes, tls)?))
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

/// Why a server that sends these bytes first is not the one that is meant; `None` if it is.
fn mistaken(bytes: &[u8], tls: bool) -> Option<String> {
    let why = match bytes {
        // An alert, or the start of a handshake; with the version.
        [0x15 | 0x16, 3, ..] if tls => return None,
        [0x15 | 0x16, 3, ..] => "this port uses TLS: use rediss:// (redlock+tls:// for a quorum)",
        [b'H', b'T', b'T', b'P', b'/', ..] | [b'<', ..] => "this is an HTTP server, not Redis: check host and port",
        [b'+' | b'-' | b'$' | b':' | b'*' | b'>' | b'%' | b'_', ..] if !tls => return None,
        [b'+' | b'-' | b'$' | b':' | b'*' | b'>' | b'%' | b'_', ..] => {
            "this port uses Redis without TLS: use redis:// (redlock:// for a quorum), or the server's tls-port"
        }
        _ => {
            let text = String::from_utf8_lossy(bytes);
            let line = text.lines().next().unwrap_or_default().replace(char::is_control, "");
            return Some(format!("this is not a Redis server; it sends {line:?}: check host and port"));
        }
    };
    Some(why.to_owned())
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
        let samples: [(&[u8], &str, &str); 8] = [
            (b"+PONG\r\n", "", "without TLS"),
            (b"-NOAUTH Authentication required.\r\n", "", "without TLS"),
            (b"\x15\x03\x01\x00\x02\x02\x46", "uses TLS", ""),
            (b"\x16\x03\x03\x00\x7a\x02", "uses TLS", ""),
            (b"HTTP/1.1 400 Bad Request\r\n", "HTTP", "HTTP"),
            (b"<!DOCTYPE HTML>", "HTTP", "HTTP"),
            (b"SSH-2.0-OpenSSH_9.2\r\nand more", "\"SSH-2.0-OpenSSH_9.2\":", "\"SSH-2.0-OpenSSH_9.2\":"),
            (b"\x1b[31mred\n", "\"[31mred\":", "\"[31mred\":"),
        ];
        for (bytes, plain, tls) in samples {
            for (expected, tls) in [(plain, false), (tls, true)] {
                let why = mistaken(bytes, tls).unwrap_or_default();
                assert!(why.contains(expected) && why.is_empty() == expected.is_empty(), "{bytes:?}: {why}");
            }
        }
    }
}
