//! HTTP for the crate `object_store`, as a lock needs it: each request is sent once, no redirect is followed, and the status and the
//! time of every answer are seen, also of one that becomes an error.

use crate::web;
use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper_rustls::ConfigBuilderExt;
use hyper_util::client::legacy::Client;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use rustls::RootCertStore;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What the answer to a request showed. It travels with the request, because an error has neither.
#[derive(Debug, Clone, Default)]
pub(super) struct Receipt(Arc<Mutex<Answered>>);

#[derive(Debug, Clone, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent facts")]
pub(super) struct Answered {
    /// The request has left. Before that, the client gets the credentials that it has not got yet.
    pub(super) sent: bool,
    /// 0 if there was no answer.
    pub(super) status: u16,
    /// In microseconds since 1970.
    pub(super) date: Option<u64>,
    /// Where the bucket is.
    pub(super) region: Option<String>,
    /// The object is a version of several.
    pub(super) has_versions: bool,
    /// A rule deletes it some day.
    pub(super) expires: bool,
    pub(super) is_replicated: bool,
}

impl Answered {
    /// To a request that no receipt travels with.
    pub(super) fn unseen() -> Self {
        Self { sent: true, ..Self::default() }
    }
}

impl Receipt {
    pub(super) fn get(&self) -> Answered {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, answered: Answered) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = answered;
    }

    fn fill(&self, response: &http::Response<impl Sized>) {
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let (status, date) = (response.status().as_u16(), web::date(response.headers()));
        let region = header("x-amz-bucket-region").map(str::to_owned);
        let has = |names: &[&str]| names.iter().any(|name| header(name).is_some_and(|value| value != "null"));
        let has_versions = has(&["x-amz-version-id", "x-ms-version-id"]);
        let (expires, is_replicated) = (has(&["x-amz-expiration"]), has(&["x-amz-replication-status"]));
        self.set(Answered { sent: true, status, date, region, has_versions, expires, is_replicated });
    }
}

/// Makes clients that share nothing.
#[derive(Debug)]
pub(super) struct Connector {
    /// Plain HTTP works without the certificates of the system.
    pub(super) needs_tls: bool,
}

/// Servers close connections that are idle, some of them after five seconds, and a request that meets the end of its connection has an
/// unknown result.
const IDLE: Duration = Duration::from_secs(4);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| object_store::Error::Generic {
            store: "TLS",
            source: error,
        };
        let tls = web::tls().map_err(|error| failed(error.into()))?;
        let tls = match tls.clone().with_native_roots() {
            Ok(tls) => tls,
            Err(_) if !self.needs_tls => tls.with_root_certificates(RootCertStore::empty()),
            Err(error) => return Err(failed(format!("{error}: install ca-certificates, or set SSL_CERT_FILE").into())),
        };
        let tls = tls.with_no_client_auth();
        Ok(HttpClient::new(Service(web::client(tls, None, IDLE))))
    }
}

#[derive(Debug)]
struct Service(Client<web::Connector, HttpRequestBody>);

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let receipt = request.extensions().get::<Receipt>().cloned();
        if let Some(receipt) = &receipt {
            receipt.set(Answered::unseen());
        }
        let response = self.0.request(request).await.map_err(|error| {
            let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Unknown };
            HttpError::new(kind, error)
        })?;
        if let Some(receipt) = receipt {
            receipt.fill(&response);
        }
        let broken = |error| HttpError::new(HttpErrorKind::Interrupted, error);
        Ok(response.map(|body| HttpResponseBody::new(body.map_err(broken))))
    }
}
