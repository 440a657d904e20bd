use super::page::Schema;
use crate::backend::TestBackend;
use crate::running::{PATIENCE, Running, wait_until};
use crate::test::Test;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

/// A server of a test.
pub(super) struct Server {
    pub(super) process: Running,
    pub(super) socket: PathBuf,
}

impl Server {
    pub(super) fn start(backend: &TestBackend, options: &str) -> Self {
        let socket = backend.file("serve.sock");
        let line = format!("serve --listen unix:{} {options}", socket.display());
        let process = Test::new(backend, &line).start();
        wait_until("the socket", || UnixStream::connect(&socket).ok());
        Self { process, socket }
    }

    /// A session that has said hello.
    pub(super) fn session(&self) -> Session {
        let mut session = Session::of(UnixStream::connect(&self.socket).unwrap());
        session.ok("hello", json!({ "protocol": 1, "client": "test/1" }));
        session
    }
}

/// A client.
pub(super) struct Session {
    pub(super) stream: BufReader<UnixStream>,
    last: u64,
}

impl Session {
    pub(super) fn of(stream: UnixStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream: BufReader::new(stream), last: 0 }
    }

    pub(super) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// Asks, and returns the id of the request.
    pub(super) fn ask(&mut self, method: &str, params: impl Into<Value>) -> u64 {
        self.last += 1;
        self.write(format!("{}\n", request(self.last, method, &params.into())));
        self.last
    }

    /// The next message; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        (self.stream.read_line(&mut line).unwrap() > 0).then(|| {
            let message = serde_json::from_str(&line).expect(&line);
            assert!(Schema::read().accepts(&message), "not by the schema: {line}");
            message
        })
    }

    /// The answer to the last request, which is the next message.
    #[track_caller]
    pub(super) fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        let answer = self.next().expect("an answer");
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    #[track_caller]
    pub(super) fn ok(&mut self, method: &str, params: Value) -> Value {
        assert!(Schema::read().accepts(&request(1, method, &params)), "not by the schema: {method} {params}");
        let mut answer = self.call(method, params);
        assert!(answer["error"].is_null(), "{answer}");
        answer["result"].take()
    }

    /// The code and the data of an error.
    #[track_caller]
    pub(super) fn refused(&mut self, method: &str, params: Value) -> (i64, Value) {
        let answer = self.call(method, params);
        refusal(&answer)
    }

    #[track_caller]
    pub(super) fn lock(&mut self, key: &str) -> u64 {
        self.ok("lock", json!({ "key": key, "wait": 60 }))["hold"].as_u64().unwrap()
    }

    #[track_caller]
    pub(super) fn is_free(&mut self, key: &str) -> bool {
        self.ok("status", json!({ "key": key }))["held"] == false
    }

    pub(super) fn wait_for_free(&mut self, key: &str) {
        wait_until(&format!("a free {key}"), || self.is_free(key).then_some(()));
    }

    pub(super) fn wait_for_waiters(&mut self, key: &str, many: u64) {
        wait_until("the waiters", || (self.ok("status", json!({ "key": key }))["waiters"] == many).then_some(()));
    }
}

pub(super) fn request(id: u64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

#[track_caller]
pub(super) fn refusal(answer: &Value) -> (i64, Value) {
    (answer["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {answer}")), answer["error"]["data"].clone())
}
