use crate::redis::say_skipped;
use crate::until::until;
use std::io::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// A server starts in ten seconds on a machine with nothing else to do.
const READY: Duration = Duration::from_secs(180);

/// The users, with a token of the same name; the first one is an administrator.
const USERS: [&str; 5] = ["admin", "nobody", "reads", "creates", "updates"];

/// etcd and an API server of Kubernetes in a directory of their own.
#[derive(Debug)]
pub struct KubeCluster {
    programs: PathBuf,
    directory: tempfile::TempDir,
    etcd: Child,
    etcd_port: u16,
    port: u16,
    server: Option<Child>,
}

#[allow(clippy::unwrap_used)]
impl KubeCluster {
    /// Starts both, once `scripts/test-servers kube` has built them: `FENCELOCK_KUBE` names their directory. `None` without it, after a
    /// message.
    ///
    /// # Panics
    /// If they do not start.
    pub fn start_or_skip() -> Option<Self> {
        let Some(programs) = std::env::var_os("FENCELOCK_KUBE").map(PathBuf::from) else {
            say_skipped("`scripts/test-servers kube` builds an API server for it");
            return None;
        };
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
        let mut cluster = Self { programs, directory, etcd, etcd_port: client, port, server: None };
        for user in USERS {
            cluster.write_kubeconfig(user, &format!("token: {user}"), port);
        }
        cluster.write_kubeconfig("certified", "client-certificate: client.crt, client-key: client.key", port);
        cluster.start_server();
        Some(cluster)
    }

    /// The port of the API server, for a proxy in front of it.
    pub const fn port(&self) -> u16 {
        self.port
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Starts the API server, and waits until it answers.
    fn start_server(&mut self) {
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
        self.server = Some(command.stdout(Stdio::null()).stderr(log).spawn().unwrap());
        let answers = |path: &str| self.try_api("GET", path, "").is_ok();
        until(READY, "the API server", || {
            sleep(Duration::from_millis(200));
            // The certificate is made by the server.
            self.path("certs/apiserver.crt").exists() && answers("/readyz") && answers("/api/v1/namespaces/default")
        });
    }

    /// Credentials for the API server, or for a proxy in front of it.
    ///
    /// # Panics
    /// If they cannot be written.
    pub fn write_kubeconfig(&self, name: &str, user: &str, port: u16) {
        let config = format!(
            "current-context: here\ncontexts: [{{name: here, context: {{cluster: c, user: u}}}}]\n\
             clusters: [{{name: c, cluster: {{server: \"https://127.0.0.1:{port}\", \
             certificate-authority: certs/apiserver.crt}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n"
        );
        std::fs::write(self.path(name), config).unwrap();
    }

    /// The locks of a namespace, with these credentials, and without an allowance for clocks that differ.
    pub fn url(&self, account: &str, namespace: &str) -> String {
        format!("kube-lease:///{namespace}?kubeconfig={}&skew=0ms&poll=50ms", self.path(account).display())
    }

    /// A request of the administrator with this document, which must succeed. Returns the answer without blanks.
    ///
    /// # Panics
    /// If it does not.
    pub fn api(&self, method: &str, path: &str, document: &str) -> String {
        self.try_api(method, path, document).unwrap_or_else(|answer| panic!("{method} {path}: {answer}"))
    }

    fn try_api(&self, method: &str, path: &str, document: &str) -> Result<String, String> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail-with-body", "-X", method, "--data-binary", "@-"])
            .args(["-H", "Authorization: Bearer admin", "-H", "Content-Type: application/yaml", "--cacert"])
            .arg(self.path("certs/apiserver.crt"))
            .arg(format!("https://127.0.0.1:{}{path}", self.port));
        let curl = curl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut curl = curl.spawn().unwrap();
        curl.stdin.take().unwrap().write_all(document.as_bytes()).unwrap();
        let output = curl.wait_with_output().unwrap();
        let answer = String::from_utf8_lossy(&output.stdout).split_whitespace().collect();
        if output.status.success() { Ok(answer) } else { Err(answer) }
    }

    /// Creates the objects of a manifest in a namespace, which may have no field that the API server does not know.
    ///
    /// # Panics
    /// If they are refused.
    pub fn create(&self, namespace: &str, manifest: &str) {
        for document in manifest.split("\n---\n") {
            let of = |name: &str| document.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim();
            let (version, kind) = (of("apiVersion:"), of("kind:").to_lowercase());
            let group = if version.contains('/') { "apis" } else { "api" };
            let scope = if kind == "namespace" { String::new() } else { format!("namespaces/{namespace}/") };
            self.api("POST", &format!("/{group}/{version}/{scope}{kind}s?fieldValidation=Strict"), document);
        }
    }

    /// Creates a namespace.
    pub fn create_namespace(&self, name: &str) {
        self.create(name, &format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n"));
    }

    /// Lets a user do this with Leases of a namespace.
    pub fn allow(&self, user: &str, namespace: &str, verbs: &str) {
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

    /// A candidate of client-go in the namespace `default`.
    pub fn candidate(&self, account: &str, key: &str, identity: &str, lease: Duration) -> Command {
        let mut command = Command::new(self.programs.join("candidate"));
        command.arg(self.path(account)).args(["default", key, identity, &lease.as_secs().to_string()]);
        command.stderr(Stdio::null());
        command
    }
}

impl Drop for KubeCluster {
    fn drop(&mut self) {
        for server in self.server.iter_mut().chain([&mut self.etcd]) {
            let _is_over = server.kill().and_then(|()| server.wait());
        }
    }
}

fn group(user: &str) -> &str {
    if user == "admin" { "system:masters" } else { "people" }
}

/// A key for the accounts of services, and a certificate of an administrator with that of its authority.
#[allow(clippy::unwrap_used)]
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
