//! Opens the stream of a connection: TCP or a Unix socket, then TLS if it is wanted.
//!
//! The stream is watched for the process id that the server names in its greeting. A pooler names one of its own there, and
//! `pg_backend_pid()` says the true one: so a pooler is found with the first request, and nothing has to be waited for.

use crate::url::{Host, Target, TlsMode};
use fencelock_core::{Fault, Unknown};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::io::InspectReader;

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A stream whose greeting is read on the way.
pub(crate) type Watched = InspectReader<Box<dyn Stream>, Box<dyn FnMut(&[u8]) + Send>>;

/// The request for TLS: its length, and a number in place of a protocol version.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// Opens a stream to one server.
pub(crate) async fn dial(target: &Target, host: &Host) -> Result<(Watched, Arc<AtomicI32>), Unknown> {
    let refused = |error: io::Error| Unknown::new(host.to_string(), Fault::Unreachable, error.to_string());
    let stream: Box<dyn Stream> = match host {
        Host::Tcp(name, port) => {
            let stream = TcpStream::connect((name.as_str(), *port)).await.map_err(refused)?;
            stream.set_nodelay(true).map_err(refused)?;
            secured(target, name, stream).await?
        }
        #[cfg(unix)]
        Host::Unix(dir, port) => {
            let path = dir.join(format!(".s.PGSQL.{port}"));
            let missing = |error: io::Error| {
                let text = format!("{error}; is the server running?");
                Unknown::new(path.display().to_string(), Fault::Unreachable, text)
            };
            Box::new(tokio::net::UnixStream::connect(&path).await.map_err(missing)?)
        }
        #[cfg(not(unix))]
        Host::Unix(..) => return Err(Unknown::new(host.to_string(), Fault::Unsupported, "name a host in the URL")),
    };
    let named = Arc::new(AtomicI32::new(0));
    let (mut greeting, found) = (Greeting::default(), Arc::clone(&named));
    let watch = move |bytes: &[u8]| {
        if let Some(process) = greeting.read(bytes) {
            found.store(process, Ordering::Relaxed);
        }
    };
    Ok((InspectReader::new(stream, Box::new(watch)), named))
}

/// Asks for TLS unless it is not wanted. Like libpq, `prefer` continues without it where the server has none.
async fn secured(target: &Target, host: &str, mut stream: TcpStream) -> Result<Box<dyn Stream>, Unknown> {
    let lost = |error: io::Error| Unknown::new(host, Fault::Unreachable, error.to_string());
    let failed = |text: String| Unknown::new(host, Fault::Unsupported, text);
    if target.tls == TlsMode::Disable {
        return Ok(Box::new(stream));
    }
    stream.write_all(&SSL_REQUEST).await.map_err(lost)?;
    match stream.read_u8().await.map_err(lost)? {
        b'S' => {}
        b'N' if target.tls == TlsMode::Prefer => return Ok(Box::new(stream)),
        b'N' => return Err(failed("the server has no TLS, which sslmode= in the URL requires".to_owned())),
        _ => return Err(failed("its reply is not the protocol of Postgres".to_owned())),
    }
    let config = client_config(target).map_err(failed)?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(error.to_string()))?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|error| failed(format!("TLS: {error}")))?;
    Ok(Box::new(stream))
}

fn client_config(target: &Target) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| error.to_string())?;
    if target.tls != TlsMode::VerifyFull {
        let verifier = Arc::new(Unverified(provider));
        return Ok(builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth());
    }
    let mut roots = RootCertStore::empty();
    match &target.root_cert {
        Some(file) => {
            let failed = |error: &dyn std::fmt::Display| format!("sslrootcert={}: {error}", file.display());
            for certificate in CertificateDer::pem_file_iter(file).map_err(|error| failed(&error))? {
                roots.add(certificate.map_err(|error| failed(&error))?).map_err(|error| failed(&error))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err("no certificate authority is known: name one with sslrootcert=FILE".to_owned());
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Encrypts, and accepts any certificate: what `sslmode=prefer` and `require` mean in all programs that use libpq.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The messages of the server up to the one with its process id: a letter, and a length that counts itself.
#[derive(Debug, Default)]
struct Greeting {
    /// The head of a message, and the process id behind that of `K`.
    part: Vec<u8>,
    /// How many bytes of the message are still skipped.
    skip: usize,
    is_over: bool,
}

const HEAD: usize = 5;

impl Greeting {
    /// Reads on; the process id, once it is there.
    fn read(&mut self, mut bytes: &[u8]) -> Option<i32> {
        while !self.is_over && !bytes.is_empty() {
            if self.skip > 0 {
                let skipped = self.skip.min(bytes.len());
                (self.skip, bytes) = (self.skip - skipped, &bytes[skipped..]);
                continue;
            }
            self.part.push(bytes[0]);
            bytes = &bytes[1..];
            match *self.part.as_slice() {
                [b'K', _, _, _, _, a, b, c, d] => {
                    self.is_over = true;
                    return Some(i32::from_be_bytes([a, b, c, d]));
                }
                // Ready for requests: there was none.
                [b'Z', ..] => self.is_over = true,
                [letter, a, b, c, d] if letter != b'K' => {
                    self.skip = (u32::from_be_bytes([a, b, c, d]) as usize).saturating_sub(HEAD - 1);
                    self.part.clear();
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_id_is_found_however_the_greeting_is_cut() {
        // Authenticated, a parameter, the process id with its secret, and ready.
        let greeting = b"R\0\0\0\x08\0\0\0\0S\0\0\0\x08a\0b\0K\0\0\0\x0c\0\0\x30\x39\x01\x02\x03\x04Z\0\0\0\x05I";
        for size in 1..=greeting.len() {
            let mut read = Greeting::default();
            let found: Vec<i32> = greeting.chunks(size).filter_map(|chunk| read.read(chunk)).collect();
            assert_eq!(found, [12_345], "{size}");
        }
    }

    #[test]
    fn a_server_that_names_no_process_is_read_no_further() {
        let mut read = Greeting::default();
        assert_eq!(read.read(b"R\0\0\0\x08\0\0\0\0Z\0\0\0\x05IK\0\0\0\x0c\0\0\x30\x39\x01\x02\x03\x04"), None);
        assert!(read.is_over);
    }
}
