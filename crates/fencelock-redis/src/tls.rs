//! What needs TLS: the certificates of a URL, and why a handshake failed.
//!
//! Without the feature `tls`, the file `no_tls.rs` is this module.

use crate::url::password::{FileOptions, read};
use fencelock_core::{Fault, Invalid};
pub(crate) use redis::TlsCertificates as Certificates;
use redis::{ClientTlsConfig, ConnectionAddr, ConnectionInfo, RedisError, RedisResult};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{AlertDescription, CertificateError};
use std::error::Error;
use std::io;
use std::sync::Arc;

/// Why there is no TLS in this build.
pub(crate) const MISSING: Option<&str> = None;

// The certificates of a URL: those that it trusts, and that of this client.

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

// Why a TLS connection failed, and what to do. The text of the driver contains only the name of an error.

/// The kind of the failure and its remedy; `None` if the error is not of TLS, or has no remedy of its own.
pub(crate) fn cause(error: &RedisError) -> Option<(Fault, String)> {
    let shared = error.source()?.downcast_ref::<Arc<dyn Error + Send + Sync>>()?;
    let inner = match shared.downcast_ref::<io::Error>() {
        Some(error) => error.get_ref()?.downcast_ref(),
        None => shared.downcast_ref(),
    };
    match inner? {
        // This client does not accept the certificate of the server: a retry does not help.
        rustls::Error::InvalidCertificate(why) => Some((Fault::Unsupported, certificate(why))),
        rustls::Error::AlertReceived(alert) => alert_text(*alert).map(|text| (Fault::Unreachable, text)),
        _ => None,
    }
}

fn certificate(why: &CertificateError) -> String {
    use CertificateError as Is;
    let text = match why {
        Is::UnknownIssuer => {
            "its certificate is not trusted: UnknownIssuer; ca=FILE in the URL names the authority that signed it"
        }
        Is::Expired | Is::ExpiredContext { .. } => {
            "its certificate has expired: renew it, or correct the clock of this machine"
        }
        Is::NotValidYet | Is::NotValidYetContext { .. } => {
            "its certificate is not valid yet: correct the clock of this machine, or wait"
        }
        Is::NotValidForName => "its certificate is for another host: write a name of the certificate in the URL",
        Is::NotValidForNameContext { expected, presented } => {
            // As in `DnsName("a.example")`.
            let names: Vec<_> = presented.iter().map(|name| name.split('"').nth(1).unwrap_or(name)).collect();
            let (expected, presented) = (expected.to_str(), names.join(", "));
            return format!(
                "its certificate is not for {expected}, but for {presented}: write one of these names in the URL, or issue a \
                 certificate for {expected}"
            );
        }
        Is::InvalidPurpose | Is::InvalidPurposeContext { .. } => {
            "its certificate is not for servers: its extended key usage lacks serverAuth"
        }
        Is::Revoked => "its certificate was revoked: it needs another one",
        why => return other(&format!("{why:?}")),
    };
    text.to_owned()
}

/// Errors of the verifier without a type of their own here.
fn other(name: &str) -> String {
    if name.contains("CaUsedAsEndEntity") {
        "its certificate is that of an authority: sign one for the server, and name the authority in ca=FILE".to_owned()
    } else if name.contains("UnsupportedCertVersion") {
        "its certificate is of X.509 version 1: issue one of version 3".to_owned()
    } else {
        let name = name.trim_start_matches("Other(OtherError(").trim_end_matches(')');
        format!("its certificate is not valid: {name}")
    }
}

fn alert_text(alert: AlertDescription) -> Option<String> {
    const OTHER: &str = "the server refuses the client certificate of cert=";
    let text = match alert {
        AlertDescription::CertificateRequired => {
            "the server requires a client certificate: cert=FILE and key=FILE in the URL name it and its private key"
                .to_owned()
        }
        AlertDescription::UnknownCA => format!("{OTHER}: the authority that signed it is unknown there"),
        AlertDescription::CertificateExpired => format!("{OTHER}: it has expired"),
        AlertDescription::CertificateRevoked => format!("{OTHER}: it was revoked"),
        AlertDescription::BadCertificate | AlertDescription::UnsupportedCertificate => {
            format!("{OTHER}: it may have another purpose than clientAuth")
        }
        _ => return None,
    };
    Some(text)
}

#[cfg(test)]
mod certificates_tests {
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

#[cfg(test)]
mod cause_tests {
    use super::*;

    fn cause_of(error: rustls::Error) -> Option<(Fault, String)> {
        cause(&RedisError::from(io::Error::new(io::ErrorKind::InvalidData, error)))
    }

    #[test]
    fn each_cause_has_its_name_and_a_remedy() {
        let certificate = |why: CertificateError| match cause_of(rustls::Error::InvalidCertificate(why.clone())) {
            Some((Fault::Unsupported, text)) => text,
            other => panic!("{why:?}: {other:?}"),
        };
        let names = CertificateError::NotValidForNameContext {
            expected: "db.example".try_into().unwrap(),
            presented: vec!["DnsName(\"a.example\")".to_owned(), "b.example".to_owned()],
        };
        for (why, expected) in [
            (CertificateError::UnknownIssuer, "ca=FILE"),
            (CertificateError::Expired, "has expired"),
            (CertificateError::NotValidYet, "not valid yet"),
            (names, "not for db.example, but for a.example, b.example"),
            (CertificateError::InvalidPurpose, "serverAuth"),
            (CertificateError::BadSignature, "not valid: BadSignature"),
        ] {
            let text = certificate(why);
            assert!(text.contains(expected), "{text}");
        }
        for (name, expected) in [
            ("Other(OtherError(CaUsedAsEndEntity))", "that of an authority"),
            ("Other(OtherError(UnsupportedCertVersion))", "version 1"),
            ("Other(OtherError(BadDer))", "not valid: BadDer"),
        ] {
            assert!(other(name).contains(expected), "{name}");
        }
    }

    #[test]
    fn an_alert_about_a_client_certificate_names_the_options() {
        for alert in [AlertDescription::CertificateRequired, AlertDescription::UnknownCA] {
            let Some((Fault::Unreachable, text)) = cause_of(rustls::Error::AlertReceived(alert)) else {
                panic!("{alert:?}")
            };
            assert!(text.contains("cert="), "{text}");
        }
        assert_eq!(cause_of(rustls::Error::AlertReceived(AlertDescription::InternalError)), None);
        assert_eq!(cause(&io::Error::from(io::ErrorKind::BrokenPipe).into()), None);
    }
}
