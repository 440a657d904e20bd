//! Connections to the API server, with the credentials of the moment.

use super::config::{Access, Exec, Source, Tls};
use crate::web;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fencelock_core::once::Utc;
use fencelock_core::{BootClock, Clock, Fault, Invalid, Span, Unknown};
use http::HeaderValue;
use hyper_rustls::ConfigBuilderExt;
use hyper_util::client::legacy::Client;
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use serde_json::{Value, json};
use std::error::Error;
use std::fmt;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub(super) type Http = Client<web::Connector, String>;

/// Credentials are read again after this time, as the rotation of the tokens of pods asks for.
const FRESH: Duration = Duration::from_secs(60);
/// A program for credentials may ask another server.
const EXEC: Duration = Duration::from_secs(30);
/// Between two attempts to get new ones.
const RETRY: Duration = Duration::from_secs(5);
const DAY: Duration = Duration::from_secs(86_400);
/// A pooled connection that is older may have been closed by a balancer without a word.
const IDLE: Duration = Duration::from_secs(20);

/// The session of a client. Each request asks for it.
pub(super) struct Sessions {
    /// The URL without its options.
    pub(super) name: String,
    source: Source,
    /// The URL of the API server, without a slash at its end.
    pub(super) server: String,
    /// The source may name another one.
    is_given: bool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    session: Option<Session>,
    /// The next one.
    opening: Option<JoinHandle<Result<Session, Unknown>>>,
}

/// What a request needs.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) http: Http,
    tls: Tls,
    pub(super) authorization: Option<HeaderValue>,
    /// Which one it is, if it is refused.
    pub(super) opened: Instant,
    until: Instant,
}

impl Sessions {
    /// # Errors
    /// [`Invalid`] if the source is: it was read.
    pub(super) fn new(source: Source, address: Option<&str>, namespace: &str) -> Result<Self, Invalid> {
        let Access { server, token, .. } = source.load()?;
        let server = address.map_or(server, |address| format!("https://{address}"));
        if server.contains(['?', '#']) || !web::is_address(&server) {
            return Err(Invalid::new(format!("{server:?} is no address of an API server: https://HOST[:PORT]")));
        }
        bearer(token)?;
        let host = server.split_once("://").map_or(&*server, |(_, host)| host);
        let (name, state) = (format!("kube-lease://{host}/{namespace}"), Mutex::default());
        Ok(Self { name, source, server, is_given: address.is_some(), state })
    }

    /// The session of now: another one than that which the server has refused. While a new one is opened, and if that fails, the
    /// old one is good until the server refuses it.
    pub(super) async fn get(self: &Arc<Self>, refused: Option<Instant>) -> Result<Session, Unknown> {
        let State { session, opening } = &mut *self.state.lock().await;
        let now = Instant::now();
        let good = session.clone().filter(|session| refused != Some(session.opened));
        if let Some(good) = good.clone().filter(|good| now < good.until) {
            return Ok(good);
        }
        // It goes on if this request is dropped, which may have less time than a program for credentials takes.
        let task = opening.get_or_insert_with(|| tokio::spawn(Arc::clone(self).open(session.clone(), now)));
        if let Some(good) = good.clone().filter(|_| !task.is_finished()) {
            return Ok(good);
        }
        let opened = task.await;
        *opening = None;
        let ended = |_| Err(Unknown::new(&*self.name, Fault::Other, "the runtime ended"));
        let next = match (opened.unwrap_or_else(ended), good) {
            (Ok(new), _) => new,
            (Err(_), Some(good)) => Session { until: now + RETRY, ..good },
            (Err(unknown), None) => return Err(unknown),
        };
        *session = Some(next.clone());
        Ok(next)
    }

    async fn open(self: Arc<Self>, before: Option<Session>, now: Instant) -> Result<Session, Unknown> {
        let invalid = |error: Invalid| Unknown::new(&*self.name, Fault::Other, error.to_string());
        let Access { mut tls, mut token, exec, server } = self.source.load().map_err(invalid)?;
        if !self.is_given && server != self.server {
            let why = format!("the kubeconfig names another server now, {server}: its locks are others");
            return Err(Unknown::new(&*self.name, Fault::Unsupported, why));
        }
        let mut until = now + FRESH;
        if let Some(exec) = exec {
            let given = run(exec, &self.server, &tls).await.map_err(invalid)?;
            token = given["token"].as_str().map(str::to_owned).or(token);
            let pem = |name: &str| given[name].as_str().map(|pem| pem.as_bytes().to_vec());
            tls.client = pem("clientCertificateData").zip(pem("clientKeyData")).or(tls.client);
            // Without a time they are used until they are refused.
            let expires = given["expirationTimestamp"].as_str().and_then(Utc::parse);
            let left = expires.map(|at| Duration::from_micros(at.0.saturating_sub(BootClock.wall_micros())));
            until = now + left.map_or(DAY, |left| left.saturating_sub(FRESH)).clamp(Duration::from_secs(1), DAY);
        }
        let http = match before {
            // Its connections are kept.
            Some(before) if before.tls == tls => before.http,
            _ => {
                let wrong = |error| invalid(Invalid::new(format!("the certificates of the kubeconfig: {error}")));
                client(&tls).map_err(wrong)?
            }
        };
        let authorization = bearer(token).map_err(invalid)?;
        Ok(Session { http, tls, authorization, opened: now, until })
    }
}

fn bearer(token: Option<String>) -> Result<Option<HeaderValue>, Invalid> {
    let authorization = token.map(|token| HeaderValue::try_from(format!("Bearer {token}"))).transpose();
    authorization.map_err(|_| Invalid::new("the token is not one line of ASCII"))
}

/// The status of the `ExecCredential` that this program prints.
async fn run(exec: Exec, server: &str, tls: &Tls) -> Result<Value, Invalid> {
    let program = exec.command.get_program().to_owned();
    let failed = |why: String| Invalid::new(format!("{}: {why}{}", program.display(), exec.hint));
    let mut spec = json!({"interactive": false});
    if exec.wants_cluster {
        let roots = tls.roots.as_ref().map(|roots| STANDARD.encode(roots));
        spec["cluster"] =
            json!({"server": server, "certificate-authority-data": roots, "tls-server-name": tls.server_name});
    }
    let asked = json!({"apiVersion": exec.api_version, "kind": "ExecCredential", "spec": spec});
    let mut command = Command::from(exec.command);
    command.env("KUBERNETES_EXEC_INFO", asked.to_string()).stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(EXEC, command.output()).await;
    let output = output.map_err(|_| failed(format!("no credentials after {}", Span(EXEC))))?;
    let output = output.map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        return Err(failed(format!("{}: {said}", output.status)));
    }
    let mut given: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let status = given.get_mut("status").map(Value::take).filter(Value::is_object);
    status.ok_or_else(|| failed("it prints no ExecCredential with a status".into()))
}

fn client(tls: &Tls) -> Result<Http, Box<dyn Error>> {
    let config = web::tls()?;
    let config = match &tls.roots {
        None => config.with_native_roots()?,
        Some(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots.add(certificate?)?;
            }
            if roots.is_empty() {
                return Err("the certificate-authority has no certificate".into());
            }
            config.with_root_certificates(roots)
        }
    };
    let config = match &tls.client {
        None => config.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = CertificateDer::pem_slice_iter(chain).collect::<Result<_, _>>()?;
            config.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key)?)?
        }
    };
    let name = tls.server_name.clone().map(ServerName::try_from).transpose()?;
    Ok(web::client(config, name, IDLE))
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions").field("name", &self.name).finish_non_exhaustive()
    }
}
