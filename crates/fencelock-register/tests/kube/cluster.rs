//! etcd and an API server, and candidates of client-go.

use crate::facts::{acquire, key};
use fencelock_core::{Intent, Key};
use fencelock_register::RegisterLocks;
use fencelock_register::kube::connect;
use fencelock_testkit::TestProcess;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// What takes some seconds on a machine with nothing else to do.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// The lease of the elections.
pub(crate) const LEASE: Duration = Duration::from_secs(4);

/// The users, with a token of the same name; the first one is an administrator.
const USERS: [&str; 6] = ["admin", "nobody", "reads", "creates", "updates", "floods"];

/// etcd and an API server in a directory of their own.
pub(crate) struct Cluster {
    programs: PathBuf,
    directory: tempfile::TempDir,
    etcd: Child,
    etcd_port: u16,
    pub(crate) port: u16,
    server: Mutex<Option<Child>>,
}

impl Cluster {
    pub(crate) fn start(programs: &Path) -> Self {
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
        let tokens = USERS.map(|user| format!("{user},{user},{user},\"{}\"\n", group(user)));
        std::fs::write(directory.path().join("tokens"), tokens.concat()).unwrap();
        make_certificates(directory.path());
        let cluster =
            Self { programs: programs.into(), directory, etcd, etcd_port: client, port, server: Mutex::default() };
        cluster.start_server();
        for user in USERS {
            cluster.write_kubeconfig(user, &format!("token: {user}"), port);
        }
        cluster.write_kubeconfig("certified", "client-certificate: client.crt, client-key: client.key", port);
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn start_server(&self) {
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

    pub(crate) fn stop_server(&self) {
        let mut server = self.server.lock().unwrap().take().unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
    }

    /// Credentials for the API server, or for a proxy in front of it.
    pub(crate) fn write_kubeconfig(&self, name: &str, user: &str, port: u16) {
        let config = format!(
            "current-context: here\ncontexts: [{{name: here, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: \"https://127.0.0.1:{port}\", \
             certificate-authority: certs/apiserver.crt}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n"
        );
        std::fs::write(self.path(name), config).unwrap();
    }

    pub(crate) fn locks(&self, account: &str, namespace: &str) -> RegisterLocks {
        let file = self.path(account);
        connect(&format!("kube-lease:///{namespace}?kubeconfig={}&skew=0ms&poll=50ms", file.display())).unwrap()
    }

    pub(crate) fn admin(&self) -> RegisterLocks {
        self.locks("admin", "default")
    }

    /// A request of the administrator with this document, which must succeed. Returns the answer without blanks.
    pub(crate) fn api(&self, method: &str, path: &str, document: &str) -> String {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/yaml" };
        let mut curl = Command::new("curl")
            .args(["--silent", "--show-error", "--fail-with-body", "--data-binary", "@-", "-X", method])
            .args(["-H", "Authorization: Bearer admin", "-H", &format!("Content-Type: {kind}")])
            .arg("--cacert")
            .arg(self.path("certs/apiserver.crt"))
            .arg(format!("https://127.0.0.1:{}{path}", self.port))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        curl.stdin.take().unwrap().write_all(document.as_bytes()).unwrap();
        let output = curl.wait_with_output().unwrap();
        let answer = String::from_utf8_lossy(&output.stdout).split_whitespace().collect();
        assert!(output.status.success(), "{method} {path}: {answer}");
        answer
    }

    /// Creates the objects of a manifest in a namespace, which may have no field that the API server does not know.
    pub(crate) fn create(&self, namespace: &str, manifest: &str) {
        for document in manifest.split("\n---\n") {
            let of = |name: &str| document.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
            let (version, kind) = (of("apiVersion:"), of("kind:").to_lowercase());
            let group = if version.contains('/') { "apis" } else { "api" };
            let scope = if kind == "namespace" { String::new() } else { format!("namespaces/{namespace}/") };
            self.api("POST", &format!("/{group}/{version}/{scope}{kind}s?fieldValidation=Strict"), document);
        }
    }

    pub(crate) fn create_namespace(&self, name: &str) {
        self.create(name, &format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n"));
    }

    /// Lets a user do this with Leases of a namespace.
    pub(crate) fn allow(&self, user: &str, namespace: &str, verbs: &str) {
        self.create(
            namespace,
            &format!(
                "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: {user}}}\n\
                 rules: [{{apiGroups: [coordination.k8s.io], resources: [leases], verbs: [{verbs}]}}]\n---\n\
                 apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: {user}}}\n\
                 roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: {user}}}\n\
                 subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {user}}}]\n"
            ),
        );
    }

    /// Until locks can be had.
    pub(crate) async fn ready(&self) {
        let started = Instant::now();
        // Without its certificate there is no client.
        while !self.path("certs/apiserver.crt").exists()
            || acquire(&self.admin(), &key("ready"), 1, Intent::Try).await.is_err()
        {
            let log = || std::fs::read_to_string(self.path("log")).unwrap_or_default();
            assert!(started.elapsed() < 3 * SOON, "the server never starts: {}", log());
            sleep(Duration::from_millis(200)).await;
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop_server();
        self.etcd.kill().unwrap();
        self.etcd.wait().unwrap();
    }
}

fn group(user: &str) -> &str {
    if user == "admin" { "system:masters" } else { "people" }
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

/// A candidate of client-go in the namespace `default`.
pub(crate) struct Candidate(TestProcess);

impl Candidate {
    pub(crate) fn start(cluster: &Cluster, account: &str, key: &Key, identity: &str) -> Self {
        let mut command = Command::new(cluster.programs.join("candidate"));
        command.arg(cluster.path(account)).args(["default", key.as_str(), identity, &LEASE.as_secs().to_string()]);
        command.stderr(Stdio::null());
        Self(TestProcess::spawn(command).unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.pid()
    }

    /// Waits until it says this.
    pub(crate) async fn says(&mut self, words: &str) {
        let heard = timeout(SOON, self.0.receive_async(words)).await;
        assert!(heard.is_ok_and(|heard| heard.is_some()), "never said {words:?}");
    }

    /// It does not say this within this time.
    pub(crate) async fn does_not_say(&mut self, words: &str, span: Duration) {
        assert!(timeout(span, self.0.receive_async(words)).await.is_err(), "it said {words:?}, or has ended");
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").arg(format!("-{signal}")).arg(self.pid().to_string()).status();
        assert!(sent.unwrap().success());
    }
}
