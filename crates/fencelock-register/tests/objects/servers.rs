//! Real servers, each in a directory of its own, and the conformance suite on them.

use crate::facts::Client;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use fencelock_conformance::{Fixture, FixtureFactory};
use fencelock_core::{Backend, BoxFuture};
use fencelock_register::objects::connect;
use fencelock_testkit::carry_google_uploads;
use libtest_mimic::Trial;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Which Azurite documents.
pub(crate) const AZURITE_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const AZURITE_ACCOUNT: &str = "devstoreaccount1";

/// A kind of server: how it starts on a port, how its bucket is made, and the URL of a place in a bucket.
struct Kind {
    name: &'static str,
    /// The variable with the path of its program.
    variable: &'static str,
    start: fn(&mut Command, &Path, u16),
    make_bucket: fn(u16) -> Option<()>,
    url: fn(&str, u16) -> String,
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "seaweedfs",
        variable: "FENCELOCK_WEED",
        start: seaweedfs,
        make_bucket: |port| made(send(port, "PUT", "/locks", "", b"")),
        url: s3,
    },
    Kind {
        name: "versity",
        variable: "FENCELOCK_VERSITYGW",
        start: versity,
        make_bucket: |port| send(port, "GET", "/health", "", b"").filter(|reply| reply.contains(" 200 ")).map(drop),
        url: s3,
    },
    Kind {
        name: "azurite",
        variable: "FENCELOCK_AZURITE",
        start: azurite,
        make_bucket: make_container,
        url: |place, port| format!("az://{AZURITE_ACCOUNT}/{place}?endpoint=http://127.0.0.1:{port}"),
    },
    Kind {
        name: "fake_gcs",
        variable: "FENCELOCK_FAKE_GCS",
        start: fake_gcs,
        make_bucket: |port| {
            let headers = "Content-Type: application/json\r\n";
            made(send(port, "POST", "/storage/v1/b?project=x", headers, br#"{"name":"locks"}"#))
        },
        url: |place, port| format!("gs://{place}?endpoint=http://127.0.0.1:{port}"),
    },
];

fn s3(place: &str, port: u16) -> String {
    format!("s3://{place}?endpoint=http://127.0.0.1:{port}")
}

fn seaweedfs(command: &mut Command, directory: &Path, port: u16) {
    const OTHERS: &str = "s3.port.grpc s3.port.iceberg s3.port.lance master.port master.port.grpc volume.port \
                          volume.port.grpc filer.port filer.port.grpc";
    command.args(["server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-filer", "-s3", "-master.volumeSizeLimitMB=64"]);
    command.arg(format!("-dir={}", directory.display())).arg(format!("-s3.port={port}"));
    command.args(OTHERS.split(' ').zip(free_ports::<9>()).map(|(option, port)| format!("-{option}={port}")));
    // With credentials it would refuse to make a bucket without a signature.
    command.env_remove("AWS_ACCESS_KEY_ID").env_remove("AWS_SECRET_ACCESS_KEY");
}

fn versity(command: &mut Command, directory: &Path, port: u16) {
    let root = directory.join("buckets");
    std::fs::create_dir_all(root.join("locks")).unwrap();
    command.env("ROOT_ACCESS_KEY", "any").env("ROOT_SECRET_KEY", "any-secret");
    command.arg("--port").arg(format!("127.0.0.1:{port}")).args(["--health", "/health", "posix"]).arg(root);
}

fn azurite(command: &mut Command, _: &Path, port: u16) {
    command.args(["--blobHost", "127.0.0.1", "--blobPort", &port.to_string()]);
    command.args(["--skipApiVersionCheck", "--silent", "--inMemoryPersistence"]);
}

fn fake_gcs(command: &mut Command, _: &Path, port: u16) {
    let [server] = free_ports();
    carry_google_uploads(TcpListener::bind(("127.0.0.1", port)).unwrap(), server);
    command.args(["-scheme", "http", "-host", "127.0.0.1", "-port", &server.to_string(), "-backend", "memory"]);
    // With any port.
    command.args(["-public-host", "127.0.0.1"]);
}

/// The request is signed as Azure documents it under "Shared Key".
fn make_container(port: u16) -> Option<()> {
    #[allow(clippy::disallowed_methods, reason = "a signature has the time of the day")]
    let date = httpdate::fmt_http_date(std::time::SystemTime::now());
    let headers = format!("x-ms-date:{date}\nx-ms-version:2021-08-06\n");
    let resource = format!("/{AZURITE_ACCOUNT}/{AZURITE_ACCOUNT}/locks\nrestype:container");
    let text = format!("PUT{}{headers}{resource}", "\n".repeat(12));
    let signature = hmac_sha256::HMAC::mac(text, BASE64_STANDARD.decode(AZURITE_KEY).unwrap());
    let signature = BASE64_STANDARD.encode(signature);
    let lines = headers.replace('\n', "\r\n");
    let lines = format!("{lines}Authorization: SharedKey {AZURITE_ACCOUNT}:{signature}\r\n");
    made(send(port, "PUT", &format!("/{AZURITE_ACCOUNT}/locks?restype=container"), &lines, b""))
}

/// Ports that are free, and differ because they are held together.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [0; N].map(|port| TcpListener::bind(("127.0.0.1", port)).unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

pub(crate) struct Server {
    kind: &'static Kind,
    process: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl Server {
    fn start(kind: &'static Kind, program: &str) -> Self {
        let (directory, [port]) = (tempfile::tempdir().unwrap(), free_ports());
        let mut command = Command::new(program);
        (kind.start)(&mut command, directory.path(), port);
        command.env("TMPDIR", directory.path()).current_dir(directory.path());
        let process = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let server = Self { kind, process, port, _directory: directory };
        #[allow(clippy::disallowed_methods, reason = "no lock depends on it")]
        let started = Instant::now();
        while (kind.make_bucket)(port).is_none() {
            assert!(started.elapsed() < Duration::from_secs(120), "{} never starts", kind.name);
            std::thread::sleep(Duration::from_millis(200));
        }
        server
    }

    fn url(&self, place: &str) -> String {
        (self.kind.url)(place, self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// Sends a request. `headers` are lines.
fn send(port: u16, method: &str, path: &str, headers: &str, body: &[u8]) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let (host, length) = (format!("Host: 127.0.0.1:{port}\r\n"), body.len());
    write!(stream, "{method} {path} HTTP/1.1\r\n{host}{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n")
        .ok()?;
    stream.write_all(body).ok()?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).ok()?;
    Some(String::from_utf8_lossy(&reply).into_owned())
}

/// Whether a request has made something.
fn made(reply: Option<String>) -> Option<()> {
    let reply = reply?;
    [" 200 ", " 201 "].iter().any(|status| reply.lines().next().unwrap_or_default().contains(status)).then_some(())
}

/// Those whose programs the environment names.
pub(crate) fn start() -> Vec<Arc<Server>> {
    let program = |kind: &'static Kind| Some((kind, std::env::var(kind.variable).ok()?));
    KINDS.iter().filter_map(program).map(|(kind, program)| Arc::new(Server::start(kind, &program))).collect()
}

/// They measure spans of less than a second by the clock of the store, which tells whole seconds.
const FINE: [&str; 4] = [
    "::a_renewed_lease_lasts_a_full_ttl_from_the_request",
    "::the_time_of_the_backend_passes",
    "::a_hold_shows_its_duration_if_it_is_known",
    "::a_hold_shows_its_last_renewal_if_it_is_known",
];

/// `SeaweedFS` lets each client that loses a race wait for a second or more, so 64 of them wait for longer than a request may take.
const SLOW: &str = "seaweedfs::sixty_four_tasks_lose_no_increment";

/// Long enough for a machine that stops for half a minute: no request of the suite fails.
const TIMEOUT: &str = "60s";

/// The locks of one case: it lists no others.
struct Bucket {
    server: Arc<Server>,
    prefix: u32,
}

impl Fixture for Bucket {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        let url = self.server.url(&format!("locks/conformance/{}/", self.prefix));
        let locks = connect(&format!("{url}&skew=0ms&poll=50ms&timeout={TIMEOUT}")).unwrap();
        Box::pin(async { Arc::new(locks) as _ })
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn let_leases_end(&self, span: Duration) -> BoxFuture<'_, ()> {
        // Its times are cut off twice, and the date of Versity is up to a second old, or more on a busy machine.
        self.let_time_pass(span + Duration::from_millis(4100))
    }
}

pub(crate) fn trials(servers: &[Arc<Server>]) -> Vec<Trial> {
    let mut trials = Vec::new();
    for server in servers {
        let shared = Arc::clone(server);
        let cases = AtomicU32::new(0);
        let factory = FixtureFactory::new(server.kind.name, move || {
            Ok(Box::new(Bucket { server: Arc::clone(&shared), prefix: cases.fetch_add(1, Ordering::Relaxed) }))
        });
        let cases = fencelock_conformance::trials(vec![factory]).into_iter();
        let applies = |name: &str| name != SLOW && !FINE.iter().any(|fine| name.ends_with(fine));
        trials.extend(cases.filter(|trial| applies(trial.name())));
        let server = Arc::clone(server);
        trials.push(Trial::test(format!("{}::what_a_user_may_mistake_is_told", server.kind.name), move || {
            mistakes(&server);
            Ok(())
        }));
    }
    trials
}

fn mistakes(server: &Server) {
    // A store may not tell a bucket that does not exist from an object.
    let patient = |place| Client::at(&format!("{}&timeout={TIMEOUT}", server.url(place)));
    let missing = patient("nowhere/p").claim("k", 1).unwrap_err().to_string();
    assert!(missing.contains("nowhere/p"), "{missing}");
    let client = patient("locks/names");
    let long = "锁".repeat(170);
    for key in ["..", "a", "a/b", "Orders", "orders", "订单 %?&=+~*", &long] {
        client.acquire(key, 1);
        client.release(key, 1);
        client.acquire(key, 2);
    }
}
