use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use std::io::{Error, Result};
use std::path::{Path, PathBuf};

/// A certificate authority for one server, and the certificates that it signed.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The CA certificate that a client must trust, PEM.
    pub ca: PathBuf,
    /// The server certificate, PEM.
    pub certificate: PathBuf,
    /// The server key, PEM.
    pub key: PathBuf,
    /// A client certificate, PEM.
    pub client_certificate: PathBuf,
    /// The client key, PEM.
    pub client_key: PathBuf,
}

impl TlsFiles {
    /// Makes them in this directory.
    pub fn write_to(dir: &Path) -> Result<Self> {
        let made = Made::new().map_err(Error::other)?;
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            std::fs::write(&path, text).map(|()| path)
        };
        Ok(Self {
            ca: write("ca.pem", &made.ca)?,
            certificate: write("server.pem", &made.server.0)?,
            key: write("server.key", &made.server.1)?,
            client_certificate: write("client.pem", &made.client.0)?,
            client_key: write("client.key", &made.client.1)?,
        })
    }
}

/// The certificates, with the keys that are needed.
struct Made {
    ca: String,
    server: (String, String),
    client: (String, String),
}

impl Made {
    fn new() -> std::result::Result<Self, rcgen::Error> {
        let mut authority = CertificateParams::default();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        authority.distinguished_name.push(DnType::CommonName, "fencelock test authority");
        let authority_key = KeyPair::generate()?;
        let ca = authority.self_signed(&authority_key)?.pem();
        let issuer = Issuer::new(authority, authority_key);
        let signed = |names: &[&str], common_name: &str| {
            let mut of = CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>())?;
            of.distinguished_name.push(DnType::CommonName, common_name);
            let key = KeyPair::generate()?;
            Ok::<_, rcgen::Error>((of.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
        };
        let (server, client) = (signed(&["localhost", "127.0.0.1"], "localhost")?, signed(&[], "a client")?);
        Ok(Self { ca, server, client })
    }
}
