//! Opens the stream of a connection: TCP or a Unix socket, then TLS if it is wanted.

use crate::url::{Host, Target, TlsMode};
use fencelock_core::{Fault, Unknown};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::fmt::Display;
use std::future::Ready;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio_postgres::tls::{ChannelBinding, TlsConnect, TlsStream};
use tokio_rustls::TlsConnector;

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A stream that is as secure as it has to be.
pub(crate) struct Encrypted {
    pub(crate) stream: Box<dyn Stream>,
    /// What a login may be bound to.
    pub(crate) end_point: Option<Vec<u8>>,
}

impl AsyncRead for Encrypted {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        self.end_point.clone().map_or_else(ChannelBinding::none, ChannelBinding::tls_server_end_point)
    }
}

/// For the driver, TLS that is there already.
pub(crate) struct Secured;

impl TlsConnect<Encrypted> for Secured {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Ready<io::Result<Encrypted>>;

    fn connect(self, stream: Encrypted) -> Self::Future {
        std::future::ready(Ok(stream))
    }
}

/// The request for TLS: its length, and a number in place of a protocol version.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// Opens a stream to one server.
pub(crate) async fn dial(target: &Target, host: &Host) -> Result<Encrypted, Unknown> {
    let refused = |error: io::Error| Unknown::new(host.to_string(), Fault::Unreachable, error.to_string());
    match host {
        Host::Tcp(name, port) => {
            let stream = TcpStream::connect((name.as_str(), *port)).await.map_err(refused)?;
            stream.set_nodelay(true).map_err(refused)?;
            secured(target, name, stream).await
        }
        #[cfg(unix)]
        Host::Unix(dir, port) => {
            let path = dir.join(format!(".s.PGSQL.{port}"));
            let missing = |error: io::Error| {
                let text = format!("{error}; is the server running?");
                Unknown::new(path.display().to_string(), Fault::Unreachable, text)
            };
            let stream = Box::new(tokio::net::UnixStream::connect(&path).await.map_err(missing)?);
            Ok(Encrypted { stream, end_point: None })
        }
        #[cfg(not(unix))]
        Host::Unix(..) => Err(Unknown::new(host.to_string(), Fault::Unsupported, "name a host in the URL")),
    }
}

/// Asks for TLS unless it is not wanted. Like libpq, `prefer` continues without it where the server has none.
async fn secured(target: &Target, host: &str, mut stream: TcpStream) -> Result<Encrypted, Unknown> {
    let lost = |error: io::Error| Unknown::new(host, Fault::Unreachable, error.to_string());
    let failed = |text: String| Unknown::new(host, Fault::Unsupported, text);
    if target.tls == TlsMode::Disable {
        return Ok(Encrypted { stream: Box::new(stream), end_point: None });
    }
    stream.write_all(&SSL_REQUEST).await.map_err(lost)?;
    match stream.read_u8().await.map_err(lost)? {
        b'S' => {}
        b'N' if target.tls == TlsMode::Prefer => return Ok(Encrypted { stream: Box::new(stream), end_point: None }),
        b'N' => return Err(failed("the server has no TLS, which sslmode= in the URL requires".to_owned())),
        _ => return Err(failed("its reply is not the protocol of Postgres".to_owned())),
    }
    let config = client_config(target).map_err(failed)?;
    let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(error.to_string()))?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|error| failed(format!("TLS: {error}")))?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(|all| all.first());
    let end_point = certificate.and_then(|certificate| end_point(certificate));
    Ok(Encrypted { stream: Box::new(stream), end_point })
}

fn client_config(target: &Target) -> Result<ClientConfig, String> {
    let (provider, text) = (Arc::new(ring::default_provider()), |error: &dyn Display| error.to_string());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions();
    let chain = if matches!(target.tls, TlsMode::VerifyCa | TlsMode::VerifyFull) {
        let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(target)?), Arc::clone(&provider));
        Some(chain.build().map_err(|error| text(&error))?)
    } else {
        None
    };
    let verifier: Arc<dyn ServerCertVerifier> = match chain {
        Some(chain) if target.tls == TlsMode::VerifyFull => chain,
        chain => Arc::new(AnyName { provider, chain }),
    };
    let builder = builder.map_err(|error| text(&error))?.dangerous().with_custom_certificate_verifier(verifier);
    let (Some(certificate), Some(key)) = (&target.client_cert, &target.client_key) else {
        return Ok(builder.with_no_client_auth());
    };
    let failed = |error: &dyn Display| format!("sslkey={}: {error}", key.display());
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(&error))?;
    builder.with_client_auth_cert(certificates("sslcert", certificate)?, private).map_err(|error| failed(&error))
}

fn certificates(option: &str, file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    all.map_err(|error| format!("{option}={}: {error}", file.display()))
}

/// The authorities that are trusted.
fn roots(target: &Target) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    match &target.root_cert {
        Some(file) => {
            for certificate in certificates("sslrootcert", file)? {
                roots.add(certificate).map_err(|error| format!("sslrootcert={}: {error}", file.display()))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err("no certificate authority is known: name one with sslrootcert=FILE".to_owned());
    }
    Ok(roots)
}

/// The hash of a certificate to which a login is bound: by RFC 5929, that of its signature, and SHA-256 in place of an older one. Without
/// an answer for a rare one, the login is bound to nothing.
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (parts, _) = der(certificate)?;
    let (_, behind_content) = der(parts)?;
    let (algorithm, _) = der(behind_content)?;
    let suite = match der(algorithm)?.0 {
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 4 | 5 | 11] | [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 1 | 3, 2] => {
            TLS13_AES_128_GCM_SHA256
        }
        [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 12] | [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 3] => {
            TLS13_AES_256_GCM_SHA384
        }
        _ => return None,
    };
    Some(suite.tls13()?.common.hash_provider.hash(certificate).as_ref().to_vec())
}

/// The content of the first value, and what follows it.
fn der(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&[_, first], rest) = bytes.split_first_chunk::<2>()?;
    let (long, rest) = rest.split_at_checked(if first < 128 { 0 } else { usize::from(first & 127) })?;
    let length = long.iter().fold(0, |length: usize, byte| length << 8 | usize::from(*byte));
    rest.split_at_checked(if first < 128 { first.into() } else { length })
}

/// Checks no name, and without a chain of authorities also no certificate: what `sslmode=verify-ca`, and `prefer` and `require`, mean in
/// all programs that use libpq.
#[derive(Debug)]
struct AnyName {
    provider: Arc<CryptoProvider>,
    chain: Option<Arc<WebPkiServerVerifier>>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        above: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{NotValidForName, NotValidForNameContext};
        let checked = self.chain.as_ref().map(|chain| chain.verify_server_cert(certificate, above, name, ocsp, now));
        match checked {
            // The name is checked last.
            None | Some(Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))) => {
                Ok(ServerCertVerified::assertion())
            }
            Some(checked) => checked,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
