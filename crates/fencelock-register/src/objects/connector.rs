//! HTTP for the crate `object_store`, as a lock needs it: each request is sent once, no redirect is followed, and the status and the
//! time of every answer are seen, also of one that becomes an error.

use crate::web;
use async_trait::async_trait;
use fencelock_core::{BootClock, Clock, Fault, Span, Unknown, lock};
use http_body_util::BodyExt;
use hyper_rustls::ConfigBuilderExt;
use hyper_util::client::legacy::Client;
use object_store::Error;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody, HttpService,
};
use rustls::RootCertStore;
use std::sync::{Arc, Mutex};
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
        lock(&self.0).clone()
    }

    fn set(&self, answered: Answered) {
        *lock(&self.0) = answered;
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
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| Error::Generic { store: "TLS", source: error };
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

// What an error of a store means for a lock. Its text leaves the URL out, which may have a signature.

/// Stores refuse signatures that are older or newer than 15 minutes; less is no reason.
const CLOCK: Duration = Duration::from_secs(300);
/// Where credentials come from, for each scheme.
const CREDENTIALS: [(&str, &str); 3] = [
    (
        "s3:",
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; for a profile: eval \"$(aws configure export-credentials --format env)\"",
    ),
    ("az:", "set AZURE_STORAGE_ACCOUNT_KEY, or AZURE_USE_AZURE_CLI=true after `az login`"),
    (
        "gs:",
        "set GOOGLE_SERVICE_ACCOUNT to the file of a service account, or run `gcloud auth application-default login`",
    ),
];
/// Of a text that is not understood.
const LONGEST: usize = 200;

/// `what` was done, which tells a missing right.
pub(super) fn unknown(name: &str, what: &str, error: &Error, answered: &Answered) -> Unknown {
    let status = if answered.status == 0 { status(error) } else { answered.status };
    let mut detail = words(error);
    let mut fault = match status {
        401 | 403 => Fault::Denied,
        301 | 302 | 307 | 308 | 404 | 501 => Fault::Unsupported,
        408 => Fault::Timeout,
        429 | 500..=599 => Fault::Busy,
        0 => Fault::Unreachable,
        _ => Fault::Other,
    };
    if let Some(region) = answered.region.as_ref().filter(|_| matches!(status, 301 | 302 | 307 | 308 | 400)) {
        fault = Fault::Unsupported;
        detail = format!("the bucket is in another region: region={region}");
    }
    let says = |codes: &[&str]| status == 400 && codes.iter().any(|code| detail.contains(code));
    if says(&["ExpiredToken", "InvalidToken"]) {
        fault = Fault::Denied;
    } else if says(&["AuthorizationHeaderMalformed", "InvalidBucketName", "InvalidResourceName"]) {
        // A wrong region, or a name that no bucket has.
        fault = Fault::Unsupported;
    }
    if let Some(off) = answered.date.filter(|_| fault == Fault::Denied).and_then(clock_is_off) {
        detail = format!("{detail}; {off}");
    }
    if fault == Fault::Denied && answered.sent {
        detail = format!("{what}: {detail}");
    }
    if !answered.sent {
        if !matches!(fault, Fault::Busy | Fault::Timeout) {
            // Who has none does not get any by waiting.
            fault = Fault::Denied;
        }
        let advice = CREDENTIALS.iter().find(|(scheme, _)| name.starts_with(scheme)).map_or("", |(_, advice)| *advice);
        detail = format!("no credentials: {detail}; {advice}");
    }
    Unknown::new(name, fault, detail)
}

fn clock_is_off(date: u64) -> Option<String> {
    let here = BootClock.wall_micros();
    let off = Duration::from_micros(here.abs_diff(date));
    let direction = if here > date { "ahead of" } else { "behind" };
    (off > CLOCK).then(|| format!("the clock of this machine is {} {direction} that of the store: set it", Span(off)))
}

/// Of an answer that no receipt has seen: to a listing, or to a request for credentials.
fn status(error: &Error) -> u16 {
    let text = error.to_string();
    let told = text.split_once("status code: ").and_then(|(_, rest)| rest.get(..3)?.parse().ok());
    told.unwrap_or(match error {
        Error::NotFound { .. } => 404,
        Error::Unauthenticated { .. } => 401,
        Error::PermissionDenied { .. } => 403,
        _ => 0,
    })
}

/// The innermost cause: the code and the message of the store, or the error of the system.
pub(super) fn words(error: &Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    let mut text = cause.to_string();
    if text.contains("InvalidContentType") {
        return format!("{text}: the server does not speak TLS: write endpoint=http://HOST");
    }
    for (written, meant) in [("&#34;", "\""), ("&quot;", "\""), ("&#39;", "'"), ("&apos;", "'")] {
        text = text.replace(written, meant);
    }
    let of = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once("</")?.0.lines().next().unwrap_or_default())
    };
    let words = match (of("Code"), of("Message")) {
        (Some(code), Some(message)) if !message.is_empty() => format!("{code}: {message}"),
        (Some(code), _) => code.to_owned(),
        _ => text.lines().next().unwrap_or_default().to_owned(),
    };
    words.chars().take(LONGEST).collect::<String>().trim_end_matches([':', ' ']).to_owned()
}

#[cfg(test)]
mod failure_tests {
    use super::*;

    fn failed(text: &str, status: u16, date: Option<u64>, region: Option<&str>) -> String {
        let error = Error::Generic { store: "S3", source: text.into() };
        let region = region.map(str::to_owned);
        unknown("s3://b", "reading k.lock", &error, &Answered { status, date, region, ..Answered::unseen() })
            .to_string()
    }

    #[test]
    fn an_error_is_told_in_the_words_of_the_store_or_of_the_system() {
        let xml = "Server returned: <?xml?><Error><Code>AccessDenied</Code><Message>No.\nId: 7</Message></Error>";
        assert_eq!(failed(xml, 403, None, None), "s3://b: access denied (reading k.lock: AccessDenied: No.)");
        assert_eq!(failed("Connection refused", 0, None, None), "s3://b: not reachable (Connection refused)");
        let region = "<Code>Malformed</Code><Message>region &#34;x&quot;</Message>";
        assert_eq!(failed(region, 418, None, None), "s3://b: failed (Malformed: region \"x\")");
        assert!(failed("of type InvalidContentType", 0, None, None).contains("does not speak TLS"));
        assert_eq!(failed("status code: 503: ", 0, None, None), "s3://b: busy (status code: 503)");
        assert!(failed(&"x".repeat(999), 418, None, None).len() < 300);
    }

    #[test]
    fn missing_credentials_are_no_server_to_wait_for() {
        for (text, fault) in [
            ("No route to host", Fault::Denied),
            ("status code: 403 Forbidden", Fault::Denied),
            ("status code: 404 Not Found: no role", Fault::Denied),
            ("status code: 503 Service Unavailable", Fault::Busy),
        ] {
            for (name, advice) in [("s3://b", "export-credentials"), ("az://a/b", "AZURE_"), ("gs://b", "gcloud")] {
                let error = Error::Generic { store: "any", source: text.into() };
                let unknown = unknown(name, "", &error, &Answered::default());
                assert_eq!(unknown.nodes()[0].fault, fault, "{unknown}");
                let told = unknown.to_string();
                assert!(told.contains("(no credentials: ") && told.contains(advice) && told.contains(text), "{told}");
            }
        }
    }

    #[test]
    fn a_wrong_region_or_clock_is_named() {
        assert!(failed("redirect", 301, None, Some("eu-1")).contains("region=eu-1"));
        assert!(!failed("no", 403, Some(BootClock.wall_micros()), Some("eu-1")).contains("eu-1"));
        assert!(!failed("no", 403, Some(BootClock.wall_micros()), None).contains("clock"));
        let slow = failed("RequestTimeTooSkewed", 403, Some(BootClock.wall_micros() + 1_200_000_000), None);
        assert!(
            slow.contains("RequestTimeTooSkewed; the clock of this machine is") && slow.contains("behind"),
            "{slow}"
        );
    }
}
