//! HTTP for the crate `object_store`, as a lock needs it: each request is sent once, no redirect is followed, and the status and the
//! time of every answer are seen, also of one that becomes an error.

use async_trait::async_trait;
use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector as Tcp;
use hyper_util::rt::TokioExecutor;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::UNIX_EPOCH;

/// What the answer to a request showed. It travels with the request, because an error has neither.
#[derive(Debug, Clone, Default)]
pub(super) struct Slot(Arc<Mutex<Answered>>);

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Answered {
    /// 0 if there was no answer.
    pub(super) status: u16,
    /// In microseconds since 1970.
    pub(super) date: Option<u64>,
}

impl Slot {
    pub(super) fn get(&self) -> Answered {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fill(&self, response: &http::Response<impl Sized>) {
        let date = response.headers().get(http::header::DATE).and_then(|date| date.to_str().ok()).and_then(micros);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Answered { status: response.status().as_u16(), date };
    }
}

fn micros(date: &str) -> Option<u64> {
    let since = httpdate::parse_http_date(date).ok()?.duration_since(UNIX_EPOCH).ok()?;
    since.as_secs().checked_mul(1_000_000)
}

/// Makes clients that share nothing.
#[derive(Debug)]
pub(super) struct Connector;

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        let provider = rustls::crypto::ring::default_provider();
        let https = HttpsConnectorBuilder::new()
            .with_provider_and_webpki_roots(provider)
            .map_err(|error| object_store::Error::Generic { store: "TLS", source: Box::new(error) })?;
        // Whether plain HTTP is allowed is checked with the URL.
        let https = https.https_or_http().enable_http1().build();
        let mut client = Client::builder(TokioExecutor::new());
        client.retry_canceled_requests(false).pool_idle_timeout(std::time::Duration::from_secs(20));
        Ok(HttpClient::new(Service(client.build(https))))
    }
}

#[derive(Debug)]
struct Service(Client<HttpsConnector<Tcp>, HttpRequestBody>);

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let slot = request.extensions().get::<Slot>().cloned();
        let response = self.0.request(request).await.map_err(|error| {
            let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Unknown };
            HttpError::new(kind, error)
        })?;
        if let Some(slot) = slot {
            slot.fill(&response);
        }
        let broken = |error| HttpError::new(HttpErrorKind::Interrupted, error);
        Ok(response.map(|body| HttpResponseBody::new(body.map_err(broken))))
    }
}
