//! Files that a URL refers to: certificates, keys and passwords.

use fencelock_core::Invalid;
use redis::{ClientTlsConfig, TlsCertificates};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};

/// The certificate authorities of a system need a quarter of this.
const CERTIFICATES_MAX: u64 = 1 << 20;
const PASSWORD_MAX: u64 = 1 << 12;

/// The files of `ca=`, `cert=` and `key=`; `None` if there are none.
pub(super) fn certificates(
    ca: Option<&str>,
    cert: Option<&str>,
    key: Option<&str>,
) -> Result<Option<TlsCertificates>, Invalid> {
    let root_cert = ca.map(|file| with_certificate("ca", file)).transpose()?;
    let client_tls = match (cert, key) {
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
    Ok(if none { None } else { Some(TlsCertificates { client_tls, root_cert }) })
}

/// The first line of the file of an option.
pub(super) fn password(option: &str, file: &str) -> Result<String, Invalid> {
    let bytes = read(option, file, PASSWORD_MAX)?;
    let text = String::from_utf8(bytes).map_err(|_| Invalid::new(format!("{option}={file} is not UTF-8")))?;
    let password = text.lines().next().unwrap_or_default();
    if password.is_empty() {
        return Err(Invalid::new(format!("{option}={file} has no password in its first line")));
    }
    Ok(password.to_owned())
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

/// Only regular files are read, because a pipe may block and a device may have no end.
fn read(option: &str, file: &str, most: u64) -> Result<Vec<u8>, Invalid> {
    let refused = |error: io::Error| Invalid::new(format!("{option}={file} cannot be read: {error}"));
    let opened = without_waiting(File::options().read(true)).open(file).map_err(refused)?;
    if !opened.metadata().map_err(refused)?.is_file() {
        return Err(Invalid::new(format!("{option}={file} is not a regular file")));
    }
    let mut bytes = Vec::new();
    opened.take(most + 1).read_to_end(&mut bytes).map_err(refused)?;
    if bytes.len() as u64 > most {
        return Err(Invalid::new(format!("{option}={file} is longer than {most} bytes")));
    }
    Ok(bytes)
}

/// On Unix, opening a pipe waits for its writer.
#[cfg(unix)]
fn without_waiting(options: &mut OpenOptions) -> &mut OpenOptions {
    use std::os::unix::fs::OpenOptionsExt;
    options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
}

#[cfg(not(unix))]
fn without_waiting(options: &mut OpenOptions) -> &mut OpenOptions {
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(ca: &str) -> String {
        certificates(Some(ca), None, None).unwrap_err().to_string()
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
        for (cert, key) in [(Some("/x"), None), (None, Some("/x"))] {
            assert!(certificates(None, cert, key).unwrap_err().to_string().contains("require each other"));
        }
    }

    #[test]
    fn a_password_is_the_first_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password").display().to_string();
        let written = |text: &[u8]| {
            std::fs::write(&file, text).unwrap();
            password("password_file", &file)
        };
        assert_eq!(written(b"s3cret\r\nnot this\n").unwrap(), "s3cret");
        for none in [&b""[..], b"\ns3cret", &[0xff], &[b's'; 5000]] {
            assert!(!written(none).unwrap_err().to_string().contains("s3cret"));
        }
    }
}
