//! The messages: what a client asks, and how it is answered. docs/en/serve.md specifies them.

use crate::exit::{Exit, Failure, exit_and_advice};
use crate::json;
use fencelock::Error;
use serde::de::{DeserializeOwned, Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::collections::VecDeque;
use std::fmt::Arguments;
use std::io::{self, Write};
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// The longest line of a client, with its end.
pub(super) const LINE: usize = 65_536;
/// What may wait for a client that does not read.
const UNREAD: usize = 1 << 20;
/// The longest id: it is kept as long as its request, and its hold.
const ID: usize = 128;

pub(super) const NOT_JSON: i64 = -32_700;
pub(super) const NOT_A_REQUEST: i64 = -32_600;
const NO_METHOD: i64 = -32_601;
const NOT_PARAMS: i64 = -32_602;
const CANCELLED: i64 = -32_800;
const LIMIT: i64 = -32_001;

/// An answer that is an error.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ErrorReply {
    pub(super) code: i64,
    message: String,
    data: Map<String, Value>,
}

impl ErrorReply {
    pub(super) fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: Map::new() }
    }

    pub(crate) fn of(exit: Exit, message: impl Into<String>) -> Self {
        Self::new(exit.code().into(), message).with("kind", exit.kind())
    }

    pub(super) fn limit(name: &str, limit: usize) -> Self {
        Self::new(LIMIT, format!("the limit of {limit} {name} is reached")).with("limit", name)
    }

    pub(super) fn cancelled() -> Self {
        Self::new(CANCELLED, "the request was cancelled")
    }

    pub(super) fn ending() -> Self {
        Self::of(Exit::System, "the server is being stopped").with("advice", "connect again, and repeat the request")
    }

    pub(super) fn lost(key: &str, cause: &str) -> Self {
        Self::of(Exit::Lost, format!("the lock on {key} is lost: {cause}")).with("key", key).with("cause", cause)
    }

    /// Of an answer that is missing, says what it was for.
    pub(super) fn about(mut self, what: &str) -> Self {
        if self.code == i64::from(Exit::Unreachable.code()) {
            self.message = format!("{what}: {}", self.message);
        }
        self
    }

    pub(super) fn with(mut self, member: &str, value: impl Into<Value>) -> Self {
        self.data.insert(member.to_owned(), value.into());
        self
    }
}

impl From<Error> for ErrorReply {
    fn from(error: Error) -> Self {
        if let [loss, ..] = &*error.losses() {
            return Self::lost(loss.key.as_str(), &loss.to_string());
        }
        let (exit, advice) = exit_and_advice(&error);
        let mut refusal = Self::of(exit, format!("{error:#}"));
        if let Some(key) = error.key() {
            refusal = refusal.with("key", key.as_str());
        }
        // Those about options are for users of the program.
        let advice = advice.trim_start_matches("; ").replace("use -w to wait longer", "ask with a longer wait");
        if !advice.is_empty() {
            refusal = refusal.with("advice", advice);
        }
        match &error {
            Error::Busy { holders, expires_in, waited, .. } => {
                let mut by = json::with_occupant(json!({}), holders.first());
                let left = expires_in.span().map(seconds);
                let refusal = refusal.with("holder", by["owner"].take()).with("foreign", by["foreign"].take());
                refusal.with("remaining", left).with("waited", seconds(*waited))
            }
            Error::Unreachable { waited, .. } => refusal.with("waited", seconds(*waited)),
            _ => refusal,
        }
    }
}

impl From<Failure> for ErrorReply {
    fn from(failure: Failure) -> Self {
        Self::of(failure.exit, failure.message)
    }
}

/// Seconds with a fraction; `null` if there is no end.
pub(super) fn seconds(span: Duration) -> Value {
    let whole = Duration::from_micros(u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
    if span == Duration::MAX { Value::Null } else { json!(whole.as_secs_f64()) }
}

/// What names a request: a number or a text.
pub(crate) type Id = Value;

/// A line of a client.
#[derive(Debug)]
pub(super) struct Message<'a> {
    /// `None` if no answer is wanted.
    pub(super) id: Option<Id>,
    pub(super) method: String,
    params: Option<&'a RawValue>,
}

/// The members of a request, none of them twice.
#[derive(Deserialize)]
struct Members<'a> {
    jsonrpc: Option<Value>,
    #[serde(default, deserialize_with = "given")]
    id: Option<Id>,
    method: Option<Value>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

/// A member that is `null` is not a missing one.
fn given<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(value).map(Some)
}

impl<'a> Message<'a> {
    /// # Errors
    /// The answer, and the id that it belongs to.
    pub(super) fn parse(line: &'a [u8]) -> Result<Self, (Id, ErrorReply)> {
        let refused = |id: Id, why: String| Err((id, ErrorReply::new(NOT_A_REQUEST, why)));
        // A list would be read as the members in their order.
        let is_object = line.trim_ascii_start().first() == Some(&b'{');
        let parsed = if is_object {
            serde_json::from_slice(line)
        } else {
            let why = "a request is an object on one line; batches are not supported";
            serde_json::from_slice(line).and_then(|IgnoredAny| Err(serde_json::Error::custom(why)))
        };
        let Members { jsonrpc, id, method, params } = match parsed {
            Ok(members) => members,
            Err(error) if error.is_data() => return refused(Value::Null, format!("this is no request: {error}")),
            Err(error) => {
                return Err((Value::Null, ErrorReply::new(NOT_JSON, format!("this line is not JSON: {error}"))));
            }
        };
        let names_a_request = |id: &Id| id.is_i64() || id.is_u64() || id.as_str().is_some_and(|id| id.len() <= ID);
        if id.as_ref().is_some_and(|id| !names_a_request(id)) {
            let why = "the id of a request is an integer, or a string of at most 128 bytes";
            return refused(Value::Null, why.to_owned());
        }
        if jsonrpc.as_ref().and_then(Value::as_str) != Some("2.0") {
            return refused(id.unwrap_or_default(), r#"a request has the member "jsonrpc":"2.0""#.to_owned());
        }
        let Some(Value::String(method)) = method else {
            return refused(id.unwrap_or_default(), "a request has a method, which is a string".to_owned());
        };
        Ok(Self { id, method, params })
    }

    /// A request to a keeper.
    pub(super) fn to_keeper<T: DeserializeOwned>(&self) -> Result<T, ErrorReply> {
        let unknown = |error| {
            let why = "the keeper of this session does not understand the request, it may be of another version";
            ErrorReply::of(Exit::System, format!("{why}: {error}"))
        };
        serde_json::from_value(json!({ "method": self.method, "params": self.params })).map_err(unknown)
    }

    /// # Errors
    /// There is no such method, or a member of its params is unknown, missing, of another type, or given twice.
    pub(super) fn ask(&self) -> Result<Ask, ErrorReply> {
        let method = &*self.method;
        if METHODS.split(", ").all(|known| known != method) {
            return Err(ErrorReply::new(NO_METHOD, format!("there is no method {method:?}; there are {METHODS}")));
        }
        let params = self.params.map_or("{}", RawValue::get);
        if !params.starts_with('{') {
            return Err(ErrorReply::new(NOT_PARAMS, "params are an object"));
        }
        let invalid = |error: serde_json::Error| {
            // Its place in the line says nothing to who has not written it.
            let why = error.to_string();
            let why = why.rsplit_once(" at line").map_or(&*why, |(why, _)| why);
            ErrorReply::new(NOT_PARAMS, format!("params of {method}: {why}"))
        };
        serde_json::from_str(&format!(r#"{{"{method}":{params}}}"#)).map_err(invalid)
    }
}

/// A time of a client, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub(super) struct Seconds(f64);

impl Seconds {
    pub(super) fn get(self, member: &str) -> Result<Duration, ErrorReply> {
        let invalid = |_| ErrorReply::of(Exit::Usage, format!("{member}: {} is no time in seconds", self.0));
        Duration::try_from_secs_f64(self.0).map_err(invalid)
    }
}

/// What a client asks. Its methods are those of [`METHODS`].
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Ask {
    Hello {
        protocol: u64,
        #[serde(default)]
        client: String,
    },
    Lock(Box<Lock>),
    Elect {
        key: String,
        wait: Option<Seconds>,
        ttl: Option<Seconds>,
        label: Option<String>,
    },
    Once {
        key: String,
        window: Window,
        wait: Option<Seconds>,
        ttl: Option<Seconds>,
        label: Option<String>,
    },
    /// Of `once`, `done`: the work has succeeded.
    Release {
        hold: u64,
        done: Option<bool>,
    },
    Remaining {
        hold: u64,
    },
    Cancel {
        id: Id,
    },
    Status {
        key: String,
    },
    List {
        #[serde(default)]
        prefix: String,
    },
}

const METHODS: &str = "hello, lock, release, remaining, cancel, status, list, elect, once";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Lock {
    pub(super) key: Option<String>,
    pub(super) keys: Option<Vec<String>>,
    pub(super) wait: Option<Seconds>,
    pub(super) ttl: Option<Seconds>,
    pub(super) mode: Option<Mode>,
    pub(super) limit: Option<u32>,
    pub(super) permits: Option<u32>,
    pub(super) slots: Option<u32>,
    pub(super) label: Option<String>,
    pub(super) max_hold: Option<Seconds>,
    pub(super) owner: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Mode {
    Exclusive,
    Shared,
}

/// Seconds, or a text as the options of the program take it: `1h`.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Window {
    Seconds(Seconds),
    Text(String),
}

/// What a client has not read yet.
pub(crate) struct Unread<W> {
    stream: W,
    bytes: VecDeque<u8>,
}

impl<W: AsyncWrite + Unpin> Unread<W> {
    pub(crate) fn new(stream: W) -> Self {
        Self { stream, bytes: VecDeque::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// # Errors
    /// The client does not read.
    pub(crate) fn answer(&mut self, id: &Id, answer: &Result<Value, ErrorReply>) -> io::Result<()> {
        match answer {
            Ok(result) => self.push(format_args!(r#""id":{id},"result":{result}"#)),
            Err(error) => self.push(format_args!(r#""id":{id},"error":{}"#, json!(error))),
        }
    }

    pub(super) fn notify(&mut self, method: &str, params: &Value) -> io::Result<()> {
        self.push(format_args!(r#""method":"{method}","params":{params}"#))
    }

    fn push(&mut self, members: Arguments<'_>) -> io::Result<()> {
        if self.bytes.len() > UNREAD {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("it has left {UNREAD} bytes unread")));
        }
        writeln!(self.bytes, r#"{{"jsonrpc":"2.0",{members}}}"#)
    }

    /// Writes a part. Cancel safe.
    pub(super) async fn write(&mut self) -> io::Result<()> {
        if self.stream.write_buf(&mut self.bytes).await? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if self.bytes.is_empty() {
            self.bytes = VecDeque::new();
        }
        Ok(())
    }

    /// Writes all of it.
    pub(crate) async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all_buf(&mut self.bytes).await?;
        self.stream.flush().await
    }
}
