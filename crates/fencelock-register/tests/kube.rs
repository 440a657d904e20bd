//! Runs the conformance suite on the Leases of an API server, and an election beside client-go. `scripts/test-servers kube` builds the
//! servers; `FENCELOCK_KUBE` names the directory with them.
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock_conformance::{Fixture, FixtureFactory, trials};
use fencelock_core::{
    Acquire, Backend, BoxFuture, Claim, Event, Expiry, FencingToken, Holder, HolderId, Holding, Intent, Key, Listener,
    Owner, Release, Renew, Renewal, Ttl, Unknown,
};
use fencelock_register::RegisterLocks;
use fencelock_register::kube::connect;
use libtest_mimic::{Arguments, Failed, Trial};
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::time::{Instant, sleep, timeout};

/// etcd and an API server in a directory of their own.
struct Cluster {
    programs: PathBuf,
    directory: tempfile::TempDir,
    etcd: Child,
    etcd_port: u16,
    port: u16,
    server: Mutex<Option<Child>>,
}

const TOKENS: &str = "admin,admin,1,\"system:masters\"\nnobody,nobody,2,\"nobody\"\n";

impl Cluster {
    fn start(programs: &Path) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // Held together, so that they differ.
        let ports = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let [client, peer, port] = ports.map(|port| port.local_addr().unwrap().port());
        let etcd = Command::new(programs.join("etcd"))
            .arg("--unsafe-no-fsync")
            .arg(format!("--data-dir={}", directory.path().join("etcd").display()))
            .arg(format!("--listen-client-urls=http://127.0.0.1:{client}"))
            .arg(format!("--advertise-client-urls=http://127.0.0.1:{client}"))
            .arg(format!("--listen-peer-urls=http://127.0.0.1:{peer}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::fs::write(directory.path().join("tokens"), TOKENS).unwrap();
        make_certificates(directory.path());
        let cluster =
            Self { programs: programs.into(), directory, etcd, etcd_port: client, port, server: Mutex::default() };
        cluster.start_server();
        for account in ["admin", "nobody"] {
            cluster.write_kubeconfig(account, &format!("token: {account}"));
        }
        cluster.write_kubeconfig("certified", "client-certificate: client.crt, client-key: client.key");
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn start_server(&self) {
        let key = self.path("server.key").display().to_string();
        let mut command = Command::new(self.programs.join("kube-apiserver"));
        command
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--authorization-mode=RBAC"])
            .args(["--service-account-issuer=https://kubernetes.default.svc", "--service-cluster-ip-range=10.0.0.0/24"])
            .arg("--disable-admission-plugins=ServiceAccount")
            .arg(format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port))
            .arg(format!("--secure-port={}", self.port))
            .arg(format!("--cert-dir={}", self.path("certs").display()))
            .arg(format!("--token-auth-file={}", self.path("tokens").display()))
            .arg(format!("--client-ca-file={}", self.path("ca.crt").display()))
            .args([format!("--service-account-key-file={key}"), format!("--service-account-signing-key-file={key}")]);
        let log = std::fs::File::create(self.path("log")).unwrap();
        *self.server.lock().unwrap() = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    fn stop_server(&self) {
        let mut server = self.server.lock().unwrap().take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    fn write_kubeconfig(&self, name: &str, user: &str) {
        let port = self.port;
        let config = format!(
            "current-context: here\ncontexts: [{{name: here, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: \"https://127.0.0.1:{port}\", \
             certificate-authority: certs/apiserver.crt}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n"
        );
        std::fs::write(self.path(name), config).unwrap();
    }

    fn locks(&self, account: &str, namespace: &str, options: &str) -> RegisterLocks {
        let file = self.path(account);
        connect(&format!("kube-lease:///{namespace}?kubeconfig={}&skew=0ms{options}", file.display())).unwrap()
    }

    fn admin(&self) -> RegisterLocks {
        self.locks("admin", "default", "&poll=50ms")
    }

    /// Until locks can be had.
    async fn ready(&self) {
        let started = Instant::now();
        loop {
            // Without its certificate there is no client.
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() && self.path("certs/apiserver.crt").exists() {
                let ready = acquire(&self.admin(), &key("ready"), 1, Intent::Try).await;
                if ready.is_ok() {
                    return;
                }
            }
            let log = || std::fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(started.elapsed() < Duration::from_secs(180), "the server never starts: {}", log());
            sleep(Duration::from_millis(200)).await;
        }
    }
}

/// A key for the accounts of services, and a certificate of an administrator with that of its authority.
fn make_certificates(directory: &Path) {
    std::fs::write(directory.join("extensions"), "extendedKeyUsage=clientAuth\n").unwrap();
    for command in [
        "genrsa -out server.key 2048",
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -subj /CN=ca -days 1",
        "req -newkey rsa:2048 -nodes -keyout client.key -out client.csr -subj /O=system:masters/CN=certified",
        "x509 -req -in client.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out client.crt -days 1 -extfile extensions",
    ] {
        let made = Command::new("openssl").args(command.split(' ')).current_dir(directory).output().unwrap();
        assert!(made.status.success(), "{command}: {made:?}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop_server();
        self.etcd.kill().unwrap();
        self.etcd.wait().unwrap();
    }
}

/// A candidate of client-go. It is killed with this.
struct Candidate {
    process: Child,
    lines: tokio::sync::mpsc::UnboundedReceiver<String>,
}

/// The lease of the elections.
const LEASE: Duration = Duration::from_secs(4);

impl Candidate {
    fn start(cluster: &Cluster, key: &Key, identity: &str) -> Self {
        let mut command = Command::new(cluster.programs.join("candidate"));
        command.arg(cluster.path("admin")).args(["default", key.as_str(), identity, &LEASE.as_secs().to_string()]);
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (sender, lines) = tokio::sync::mpsc::unbounded_channel();
        let output = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || output.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok()));
        Self { process, lines }
    }

    async fn says(&mut self, words: &str) {
        let heard = async {
            while let Some(line) = self.lines.recv().await {
                if line == words {
                    return true;
                }
            }
            false
        };
        assert!(timeout(Duration::from_secs(60), heard).await.unwrap(), "never said {words:?}");
    }

    fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(self.process.id().to_string()).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        let _it_may_have_ended = self.process.kill();
        self.process.wait().unwrap();
    }
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn claim(key: &Key, id: u8) -> Claim {
    let holder = Holder { id: HolderId::from_bytes([id; 16]), owner: Owner::new("web-1", 42, None).unwrap() };
    Claim::new(key.clone(), holder, Ttl::new(LEASE).unwrap(), Intent::Try)
}

async fn acquire(locks: &RegisterLocks, key: &Key, id: u8, intent: Intent) -> Result<Acquire, Unknown> {
    locks.acquire(&claim(key, id).with_intent(intent)).await.answer
}

fn granted(answer: Result<Acquire, Unknown>) -> FencingToken {
    match answer.unwrap() {
        Acquire::Granted { tokens } => tokens.last(),
        other => panic!("{other:?}"),
    }
}

async fn acquire_by_polling(locks: &RegisterLocks, key: &Key, id: u8) -> FencingToken {
    let polls = async {
        loop {
            let answer = acquire(locks, key, id, Intent::Enqueue).await;
            if !matches!(answer, Ok(Acquire::Busy(_))) {
                return granted(answer);
            }
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(60), polls).await.unwrap()
}

async fn renew(locks: &RegisterLocks, key: &Key, id: u8) -> Result<Renew, Unknown> {
    let renewal = Renewal::new(key.clone(), HolderId::from_bytes([id; 16]), Ttl::new(LEASE).unwrap());
    locks.renew(&[renewal]).await.remove(0)
}

async fn holding(locks: &RegisterLocks, key: &Key) -> Option<Holding> {
    locks.inspect(key).await.unwrap()
}

/// Signals each change of a key.
#[derive(Debug, Default)]
struct Hints(tokio::sync::Notify);

impl Listener for Hints {
    fn event(&self, event: &Event) {
        assert!(matches!(event, Event::Changed { .. }));
        self.0.notify_one();
    }
}

async fn a_candidate_of_client_go_waits_for_a_lock_and_takes_it_when_it_is_free_or_over(cluster: &Cluster) {
    let (locks, key) = (cluster.admin(), key("ours-first"));
    let first = granted(acquire(&locks, &key, 1, Intent::Try).await);
    let mut candidate = Candidate::start(cluster, &key, "pod-1_x");
    candidate.says(&format!("sees {} web-1:42", HolderId::from_bytes([1; 16]))).await;
    let started = Instant::now();
    while started.elapsed() < LEASE * 2 {
        assert_eq!(renew(&locks, &key, 1).await, Ok(Renew::Renewed { waiters: 0 }));
        assert!(candidate.lines.is_empty(), "it leads beside this one");
        sleep(LEASE / 3).await;
    }
    assert_eq!(locks.release(&key, &HolderId::from_bytes([1; 16])).await, Ok(Release::Released));
    candidate.says("leads").await;
    let seen = holding(&locks, &key).await.unwrap();
    assert_eq!(seen.first().occupant.to_string(), "pod-1_x");
    assert!(seen.first().fence > Some(first));
    candidate.signal("TERM");
    candidate.says("stopped").await;
    let second = acquire_by_polling(&locks, &key, 2).await;
    assert!(Some(second) > seen.first().fence);
    // This one is not renewed, as after a crash.
    let (mut candidate, started) = (Candidate::start(cluster, &key, "pod-2_y"), Instant::now());
    candidate.says("leads").await;
    assert!(started.elapsed() + Duration::from_millis(500) >= LEASE);
    assert!(matches!(renew(&locks, &key, 2).await, Ok(Renew::TakenBy(_))));
}

async fn a_lock_waits_for_a_leader_of_client_go_and_is_granted_when_it_crashes(cluster: &Cluster) {
    let (locks, key) = (cluster.admin(), key("theirs-first"));
    let mut candidate = Candidate::start(cluster, &key, "pod-1_x");
    candidate.says("leads").await;
    let started = Instant::now();
    while started.elapsed() < LEASE * 2 {
        let Ok(Acquire::Busy(occupied)) = acquire(&locks, &key, 1, Intent::Enqueue).await else { panic!("not busy") };
        assert!(matches!(occupied.expiry, Expiry::In(left) if left <= LEASE));
        sleep(LEASE / 8).await;
    }
    candidate.signal("KILL");
    let crashed = Instant::now();
    acquire_by_polling(&locks, &key, 1).await;
    // Its last renewal was at most its period, an eighth of its lease, before.
    assert!(crashed.elapsed() >= LEASE * 3 / 4, "{:?}", crashed.elapsed());
}

async fn whoever_waits_is_woken_by_a_release_and_whoever_holds_by_a_loss(cluster: &Cluster) {
    let (one, other, key) = (cluster.admin(), cluster.admin(), key("hints"));
    let told_one = Arc::new(Hints::default());
    one.listen(Arc::clone(&told_one) as _);
    granted(acquire(&one, &key, 1, Intent::Try).await);
    assert_eq!(renew(&one, &key, 1).await, Ok(Renew::Renewed { waiters: 0 }));
    assert!(matches!(acquire(&other, &key, 2, Intent::Enqueue).await, Ok(Acquire::Busy(_))));
    // The watch has begun.
    sleep(Duration::from_secs(1)).await;
    let seen = holding(&other, &key).await.unwrap();
    let backend: &dyn Backend = &other;
    backend.evict(&seen).await.unwrap();
    timeout(Duration::from_secs(20), told_one.0.notified()).await.expect("whoever holds is woken");
    assert_eq!(renew(&one, &key, 1).await, Ok(Renew::Absent));
    granted(acquire(&other, &key, 2, Intent::Try).await);
    assert!(matches!(acquire(&one, &key, 3, Intent::Enqueue).await, Ok(Acquire::Busy(_))));
    sleep(Duration::from_secs(1)).await;
    let told_of_the_release = Arc::new(Hints::default());
    one.listen(Arc::clone(&told_of_the_release) as _);
    assert_eq!(other.release(&key, &HolderId::from_bytes([2; 16])).await, Ok(Release::Released));
    timeout(Duration::from_secs(20), told_of_the_release.0.notified()).await.expect("whoever waits is woken");
}

async fn who_may_what_is_told(cluster: &Cluster) {
    let denied = acquire(&cluster.locks("nobody", "default", ""), &key("rights"), 1, Intent::Try).await.unwrap_err();
    assert!(denied.is_permanent() && denied.to_string().contains("cannot get resource \"leases\""), "{denied}");
    granted(acquire(&cluster.locks("certified", "default", ""), &key("certified"), 1, Intent::Try).await);
    let missing = acquire(&cluster.locks("admin", "nowhere", ""), &key("k"), 1, Intent::Try).await.unwrap_err();
    assert!(missing.is_permanent() && missing.to_string().contains("create the namespace"), "{missing}");
    cluster.write_kubeconfig("stranger", "token: guessed");
    let stranger = acquire(&cluster.locks("stranger", "default", ""), &key("k"), 1, Intent::Try).await.unwrap_err();
    assert!(stranger.is_permanent() && stranger.to_string().contains("has expired"), "{stranger}");
}

async fn a_hold_survives_a_restart_of_the_api_server(cluster: &Cluster) {
    let (locks, key) = (cluster.admin(), key("restart"));
    let long = Ttl::new(Duration::from_secs(300)).unwrap();
    let claim = Claim::new(key.clone(), claim(&key, 1).holder, long, Intent::Try);
    granted(locks.acquire(&claim).await.answer);
    cluster.stop_server();
    assert!(renew(&locks, &key, 1).await.is_err());
    cluster.start_server();
    cluster.ready().await;
    assert_eq!(renew(&locks, &key, 1).await, Ok(Renew::Renewed { waiters: 0 }));
}

/// They measure spans of less than a second by the clock of the store.
const FINE: [&str; 3] = [
    "::a_renewed_lease_lasts_a_full_ttl_from_the_request",
    "::the_time_of_the_backend_passes",
    "::a_hold_shows_its_duration_if_it_is_known",
];

struct Namespace(Arc<Cluster>);

impl Fixture for Namespace {
    fn backend(&self) -> BoxFuture<'_, Arc<dyn Backend>> {
        let locks = self.0.admin();
        Box::pin(async { Arc::new(locks) as _ })
    }

    fn let_leases_end(&self, span: Duration) -> BoxFuture<'_, ()> {
        // The server tells seconds, which it cuts off twice.
        self.let_time_pass(span + Duration::from_millis(2100))
    }
}

type Check = for<'a> fn(&'a Cluster) -> BoxFuture<'a, ()>;

fn main() -> ExitCode {
    let Some(programs) = std::env::var_os("FENCELOCK_KUBE") else {
        println!("SKIPPED: `scripts/test-servers kube` builds an API server for this test");
        return ExitCode::SUCCESS;
    };
    let cluster = Arc::new(Cluster::start(Path::new(&programs)));
    Runtime::new().unwrap().block_on(cluster.ready());
    let factory = FixtureFactory::new("kube", {
        let cluster = Arc::clone(&cluster);
        move || Ok(Box::new(Namespace(Arc::clone(&cluster))))
    });
    println!("left out, because the server tells whole seconds: {FINE:?}");
    let is_fine = |name: &str| FINE.iter().any(|fine| name.ends_with(fine));
    let mut trials: Vec<_> = trials(vec![factory]).into_iter().filter(|trial| !is_fine(trial.name())).collect();
    macro_rules! checks {
        ($($name:ident),+) => { [$((stringify!($name), (|cluster| Box::pin($name(cluster))) as Check)),+] };
    }
    let checks = checks![
        a_candidate_of_client_go_waits_for_a_lock_and_takes_it_when_it_is_free_or_over,
        a_lock_waits_for_a_leader_of_client_go_and_is_granted_when_it_crashes,
        whoever_waits_is_woken_by_a_release_and_whoever_holds_by_a_loss,
        who_may_what_is_told
    ];
    trials.extend(checks.map(|(name, check)| {
        let cluster = Arc::clone(&cluster);
        Trial::test(format!("kube::{name}"), move || {
            Runtime::new().unwrap().block_on(check(&cluster));
            Ok::<(), Failed>(())
        })
    }));
    let code = libtest_mimic::run(&Arguments::from_args(), trials).exit_code();
    // Alone, because the others need the server.
    Runtime::new().unwrap().block_on(a_hold_survives_a_restart_of_the_api_server(&cluster));
    drop(cluster);
    code
}
