//! The certificates of a URL: those that it trusts, and that of this client.

use crate::url::secrets::{FileOptions, read};
use fencelock_core::Invalid;
use redis::{ClientTlsConfig, ConnectionAddr, ConnectionInfo, RedisResult};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

pub(crate) use redis::TlsCertificates as Certificates;

/// The certificate authorities of a system need a quarter of this.
const CERTIFICATES_MAX: u64 = 1 << 20;

/// A client of this server.
pub(crate) fn client(info: ConnectionInfo, certificates: Option<Certificates>) -> RedisResult<redis::Client> {
    if matches!(info.addr(), ConnectionAddr::TcpTls { .. }) && CryptoProvider::get_default().is_none() {
        // The driver uses the provider of the process, and panics without one. This fails only if there is one.
        let _ = rustls::crypto::ring::default_provider().install_default();
    }
    match certificates {
        None => redis::Client::open(info),
        Some(certificates) => redis::Client::build_with_tls(info, certificates),
    }
}

/// The files of `ca=`, `cert=` and `key=`; `None` if there are none.
pub(crate) fn certificates(files: &FileOptions) -> Result<Option<Certificates>, Invalid> {
    let root_cert = files.ca.as_ref().map(|file| with_certificate("ca", file)).transpose()?;
    let client_tls = match (&files.cert, &files.key) {
        (None, None) => None,
        (Some(cert), Some(key)) => {
            let client_cert = with_certificate("cert", cert)?;
            let client_key = read("key", key, CERTIFICATES_MAX)?;
            PrivateKeyDer::from_pem_slice(&client_key)
                .map_err(|_| Invalid::new(format!("key={key} has no private key: PEM, without a passphrase")))?;
            Some(ClientTlsConfig { client_cert, client_key })
        }
        _ => {
            return Err(Invalid::new(
                "cert= and key= require each other: the certificate of this client, and its private key",
            ));
        }
    };
    let none = root_cert.is_none() && client_tls.is_none();
    Ok(if none { None } else { Some(Certificates { client_tls, root_cert }) })
}

fn with_certificate(option: &str, file: &str) -> Result<Vec<u8>, Invalid> {
    let pem = read(option, file, CERTIFICATES_MAX)?;
    let mut certificates = CertificateDer::pem_slice_iter(&pem);
    match certificates.next() {
        Some(Ok(_)) if certificates.all(|certificate| certificate.is_ok()) => Ok(pem),
        None => Err(Invalid::new(format!("{option}={file} has no certificate in PEM"))),
        _ => Err(Invalid::new(format!("{option}={file} contains an invalid certificate"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    fn refused(ca: &str) -> String {
        certificates(&FileOptions { ca: Some(ca.to_owned()), ..FileOptions::default() }).unwrap_err().to_string()
    }

    #[test]
    fn only_regular_files_of_limited_size_with_a_certificate_are_accepted() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name).display().to_string();
        assert!(refused("/dev/zero").contains("not a regular file"));
        assert!(refused(&file("")).contains("not a regular file"));
        assert!(refused("/no/such/file").contains("cannot be read"));
        rustix::fs::mkfifoat(rustix::fs::CWD, file("pipe"), rustix::fs::Mode::RWXU).unwrap();
        assert!(refused(&file("pipe")).contains("not a regular file"));
        std::fs::write(file("empty"), "").unwrap();
        assert!(refused(&file("empty")).contains("has no certificate"));
        std::fs::write(file("broken"), "-----BEGIN CERTIFICATE-----\n!!!\n-----END CERTIFICATE-----\n").unwrap();
        assert!(refused(&file("broken")).contains("contains an invalid certificate"));
        let long = File::create(file("long")).unwrap();
        long.set_len(CERTIFICATES_MAX + 1).unwrap();
        assert!(refused(&file("long")).contains("longer than 1048576 bytes"));
    }

    #[test]
    fn a_certificate_and_its_key_require_each_other() {
        for (cert, key) in [(Some("/x".to_owned()), None), (None, Some("/x".to_owned()))] {
            let files = FileOptions { cert, key, ..FileOptions::default() };
            assert!(certificates(&files).unwrap_err().to_string().contains("require each other"));
        }
    }
}
