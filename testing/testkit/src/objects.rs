use crate::SplitMix;
use crate::http::{HttpRequest, serve_http};
use fencelock_core::once::Utc;
use httpdate::fmt_http_date;
use percent_encoding::percent_decode_str;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{sleep, spawn};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A store of objects in this process that speaks S3: as much of it as locks use, with the faults of real ones. It has the bucket
/// `locks`, and accepts all credentials.
#[derive(Debug)]
pub struct ObjectServer {
    port: u16,
    state: Arc<Mutex<State>>,
}

/// What an [`ObjectServer`] does wrong.
#[derive(Debug, Clone, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent faults")]
pub struct ObjectFaults {
    /// It creates an object that exists.
    pub ignores_existence: bool,
    /// It replaces another version of an object.
    pub ignores_version: bool,
    /// It executes what it refuses.
    pub executes_refused: bool,
    /// It refuses to replace even the version that an object has.
    pub refuses_versions: bool,
    /// The object with this name has no version, as a file that another program made under some gateways.
    pub untagged: Option<&'static str>,
    /// It takes upper and lower case for the same.
    pub folds_case: bool,
    /// Its clock is ahead by so many seconds.
    pub ahead: u64,
    /// Requests with this method have this status and code, and are not executed.
    pub refuses: Option<(&'static str, u16, &'static str)>,
    /// The bucket is in this region.
    pub region: Option<&'static str>,
    /// Of 100 requests, so many are late, as many have no answer, and as many are executed twice.
    pub unreliable: u64,
}

#[derive(Debug)]
struct State {
    objects: BTreeMap<String, Object>,
    faults: ObjectFaults,
    requests: Vec<String>,
    random: SplitMix,
}

/// What a network does to a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Answered,
    Late(Duration),
    Unanswered,
    /// The second answer arrives.
    Twice,
    /// The first answer arrives, and the request is executed again after this time.
    Again(Duration),
}

#[derive(Debug)]
struct Object {
    bytes: Vec<u8>,
    modified: u64,
}

#[derive(Clone)]
struct Response(u16, Vec<(&'static str, String)>, Vec<u8>);

impl ObjectServer {
    /// A server that ends with this process.
    ///
    /// # Panics
    /// If there is no free port.
    pub fn start() -> Self {
        let (objects, faults, requests) = (BTreeMap::new(), ObjectFaults::default(), Vec::new());
        let state = Arc::new(Mutex::new(State { objects, faults, requests, random: SplitMix::new(7) }));
        let shared = Arc::clone(&state);
        Self { port: serve_http(move |request| carry(request, &shared).map(Response::bytes)), state }
    }

    /// The URL of what is under a prefix of a bucket. `options` begins with `&` if it is not empty.
    pub fn url(&self, place: &str, options: &str) -> String {
        format!("s3://{place}?endpoint=http://127.0.0.1:{}{options}", self.port)
    }

    /// From now on.
    pub fn set(&self, faults: ObjectFaults) {
        self.lock().faults = faults;
    }

    /// Writes an object of the bucket as another program does.
    pub fn put(&self, name: &str, bytes: impl Into<Vec<u8>>) {
        let mut state = self.lock();
        let modified = state.now();
        state.objects.insert(format!("locks/{name}"), Object { bytes: bytes.into(), modified });
    }

    /// Deletes an object of the bucket.
    pub fn delete(&self, name: &str) {
        self.lock().objects.remove(&format!("locks/{name}"));
    }

    /// The content of an object of the bucket.
    pub fn get(&self, name: &str) -> Option<Vec<u8>> {
        self.lock().objects.get(&format!("locks/{name}")).map(|object| object.bytes.clone())
    }

    /// The names of all objects of the bucket.
    pub fn names(&self) -> Vec<String> {
        self.lock().objects.keys().filter_map(|name| name.strip_prefix("locks/").map(str::to_owned)).collect()
    }

    /// The requests since the last call, as `GET locks/a.lock`.
    pub fn requests(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().requests)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Response {
    fn bytes(self) -> Vec<u8> {
        let Self(status, headers, body) = self;
        // Writing to a string does not fail.
        let mut text = format!("HTTP/1.1 {status} .\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in headers {
            let _ = write!(text, "{name}: {value}\r\n");
        }
        [(text + "\r\n").into_bytes(), body].concat()
    }
}

/// Executes a request; `None` if its answer is lost.
fn carry(request: HttpRequest, state: &Arc<Mutex<State>>) -> Option<Response> {
    let fate = lock(state).fate();
    if let Fate::Late(pause) = fate {
        sleep(pause);
    }
    let first = lock(state).answer(&request);
    match fate {
        Fate::Answered | Fate::Late(_) => Some(first),
        Fate::Unanswered => None,
        Fate::Twice => Some(lock(state).answer(&request)),
        Fate::Again(pause) => {
            let state = Arc::clone(state);
            spawn(move || {
                sleep(pause);
                lock(&state).answer(&request);
            });
            Some(first)
        }
    }
}

impl State {
    #[allow(clippy::disallowed_methods, reason = "it is the clock of another machine")]
    fn now(&self) -> u64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        now.as_secs() + self.faults.ahead
    }

    fn fate(&mut self) -> Fate {
        let pause = Duration::from_millis(300 + self.random.below(2200));
        let (chance, all) = (self.random.below(100), self.faults.unreliable);
        match chance {
            _ if chance < all => Fate::Late(pause),
            _ if chance < 2 * all => Fate::Unanswered,
            _ if chance < 3 * all && self.random.percent(50) => Fate::Twice,
            _ if chance < 3 * all => Fate::Again(pause),
            _ => Fate::Answered,
        }
    }

    fn answer(&mut self, request: &HttpRequest) -> Response {
        let (method, path, query) = request.target();
        let path = decoded(path.trim_matches('/'));
        self.requests.push(format!("{method} {path}"));
        let Response(status, mut headers, body) = self.execute(request, method, path, query);
        headers.push(("Date", http_date(self.now())));
        headers.extend(self.faults.region.map(|region| ("x-amz-bucket-region", region.to_owned())));
        Response(status, headers, body)
    }

    fn execute(&mut self, request: &HttpRequest, method: &str, mut path: String, query: &str) -> Response {
        if let Some((_, status, code)) = self.faults.refuses.filter(|(refused, ..)| *refused == method) {
            return error(status, code);
        }
        if self.faults.folds_case {
            path.make_ascii_lowercase();
        }
        if path.split('/').next() != Some("locks") {
            return error(404, "NoSuchBucket");
        }
        let found = self.objects.get(&path);
        match method {
            "GET" if query.contains("list-type") => self.list(query),
            "GET" => match found {
                Some(object) => {
                    let mut headers = vec![("Last-Modified", http_date(object.modified))];
                    if !self.faults.untagged.is_some_and(|name| path.ends_with(name)) {
                        headers.push(("ETag", tag(&object.bytes)));
                    }
                    Response(200, headers, object.bytes.clone())
                }
                None => error(404, "NoSuchKey"),
            },
            "PUT" => {
                let (version, faults) = (found.map(|object| tag(&object.bytes)), &self.faults);
                let creates = request.header("if-none-match").is_some() && !faults.ignores_existence;
                let expected = request.header("if-match").filter(|_| !faults.ignores_version);
                let refusal = match (expected, version) {
                    (Some(_), None) => Some(error(404, "NoSuchKey")),
                    (Some(expected), Some(version)) if expected != version || faults.refuses_versions => {
                        Some(error(412, "PreconditionFailed"))
                    }
                    (None, Some(_)) if creates => Some(error(412, "PreconditionFailed")),
                    _ => None,
                };
                if let (Some(refusal), false) = (&refusal, faults.executes_refused) {
                    return refusal.clone();
                }
                let object = Object { bytes: request.body.clone(), modified: self.now() };
                let headers = vec![("ETag", tag(&object.bytes))];
                self.objects.insert(path, object);
                refusal.unwrap_or(Response(200, headers, Vec::new()))
            }
            "DELETE" => {
                self.objects.remove(&path);
                Response(204, Vec::new(), Vec::new())
            }
            _ => error(405, "MethodNotAllowed"),
        }
    }

    fn list(&self, query: &str) -> Response {
        let prefix = query.split('&').find_map(|part| part.strip_prefix("prefix="));
        let prefix = format!("locks/{}", decoded(prefix.unwrap_or_default()));
        let mut xml = String::from("<ListBucketResult>");
        let all = self.objects.iter().filter_map(|(path, object)| Some((path, path.strip_prefix(&prefix)?, object)));
        // As with a delimiter.
        for (path, _, object) in all.filter(|(_, rest, _)| !rest.contains('/')) {
            let (name, size, time) = (&path["locks/".len()..], object.bytes.len(), Utc(object.modified * 1_000_000));
            let _ = write!(
                xml,
                "<Contents><Key>{name}</Key><Size>{size}</Size><LastModified>{time}</LastModified></Contents>"
            );
        }
        Response(200, Vec::new(), (xml + "</ListBucketResult>").into_bytes())
    }
}

fn error(status: u16, code: &str) -> Response {
    let body = format!("<Error><Code>{code}</Code><Message>told by the test</Message></Error>");
    Response(status, Vec::new(), body.into_bytes())
}

/// Of equal contents it is equal, as on real stores.
fn tag(bytes: &[u8]) -> String {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("\"{:016x}\"", hasher.finish())
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn http_date(seconds: u64) -> String {
    fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_written_as_http_does() {
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(http_date(1_795_689_486), "Thu, 26 Nov 2026 10:38:06 GMT");
        assert_eq!(http_date(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
    }
}
