use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

/// A certificate authority of one server, and what it signed.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// What a client must trust, PEM.
    pub ca: PathBuf,
    /// The server's certificate, PEM.
    pub certificate: PathBuf,
    /// The server's key, PEM.
    pub key: PathBuf,
}

impl TlsFiles {
    pub(super) fn write_to(dir: &Path) -> Result<Self> {
        let (ca, certificate, key) = make().map_err(Error::other)?;
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            std::fs::write(&path, text).map(|()| path)
        };
        Ok(Self {
            ca: write("ca.pem", &ca)?,
            certificate: write("server.pem", &certificate)?,
            key: write("server.key", &key)?,
        })
    }
}

fn make() -> std::result::Result<(String, String, String), rcgen::Error> {
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    authority.distinguished_name.push(DnType::CommonName, "fencelock test authority");
    let authority_key = KeyPair::generate()?;
    let ca = authority.self_signed(&authority_key)?.pem();
    let issuer = Issuer::new(authority, authority_key);

    let mut server = CertificateParams::new(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
    server.distinguished_name.push(DnType::CommonName, "localhost");
    let server_key = KeyPair::generate()?;
    let certificate = server.signed_by(&server_key, &issuer)?.pem();
    Ok((ca, certificate, server_key.serialize_pem()))
}
