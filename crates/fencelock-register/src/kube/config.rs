//! Where the API server is and how it lets this program in: a kubeconfig, or the account of a pod.

use crate::web::{options, polls, span, unknown_option};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fencelock_core::{Invalid, RetryPlan, parse_url};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use yaml_rust2::{Yaml, YamlLoader};

/// What is read again each minute, because tokens and certificates are replaced under their names.
#[derive(Debug)]
pub(super) enum Source {
    /// Of a kubeconfig in several files, the first one that names something counts.
    Files {
        files: Vec<PathBuf>,
        /// What it was in the beginning: another current context is another cluster.
        context: String,
    },
    /// The account of a pod.
    Pod { server: String, directory: PathBuf },
}

/// How to reach an API server.
pub(super) struct Access {
    pub(super) server: String,
    pub(super) tls: Tls,
    pub(super) token: Option<String>,
    pub(super) exec: Option<Exec>,
}

/// What a connection depends on, in PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Tls {
    /// The name in the certificate of the server, if it is another one.
    pub(super) server_name: Option<String>,
    pub(super) roots: Option<Vec<u8>>,
    /// The certificate of this client and its key.
    pub(super) client: Option<(Vec<u8>, Vec<u8>)>,
}

/// A program that gets credentials.
pub(super) struct Exec {
    pub(super) command: Command,
    pub(super) api_version: String,
    /// It wants to know the cluster.
    pub(super) wants_cluster: bool,
    /// How to install it.
    pub(super) hint: String,
}

const POD: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

impl Source {
    /// As kubectl searches: an option, `KUBECONFIG`, `~/.kube/config`, and the account of the pod.
    pub(super) fn find(location: &Location, env: &dyn Fn(&str) -> Option<OsString>) -> Result<Self, Invalid> {
        let set = |name: &str| env(name).filter(|value| !value.is_empty());
        let files: Vec<PathBuf> = match (&location.kubeconfig, set("KUBECONFIG")) {
            (Some(file), _) => vec![file.clone()],
            (None, Some(list)) => std::env::split_paths(&list).collect(),
            (None, None) => set("HOME").map(|home| Path::new(&home).join(".kube/config")).into_iter().collect(),
        };
        let is_there = |file: &PathBuf| location.kubeconfig.is_some() || file.exists();
        // The same files after a change of the working directory.
        let absolute = |file: PathBuf| std::path::absolute(&file).unwrap_or(file);
        let files: Vec<_> = files.into_iter().filter(is_there).map(absolute).collect();
        if !files.is_empty() {
            let context = match &location.context {
                Some(context) => context.clone(),
                None => current_context(&parse(&files)?)?,
            };
            return Ok(Self::Files { files, context });
        }
        let text = |name: &str| set(name).and_then(|value| value.into_string().ok());
        match (text("KUBERNETES_SERVICE_HOST"), text("KUBERNETES_SERVICE_PORT")) {
            (Some(host), Some(port)) if location.context.is_none() => {
                let host = if host.contains(':') { format!("[{host}]") } else { host };
                Ok(Self::Pod { server: format!("https://{host}:{port}"), directory: POD.into() })
            }
            _ => Err(Invalid::new("there is no kubeconfig and this is no pod: set KUBECONFIG or kubeconfig=")),
        }
    }

    /// Reads what it is now.
    pub(super) fn load(&self) -> Result<Access, Invalid> {
        match self {
            Self::Files { files, context } => access(&parse(files)?, context),
            Self::Pod { server, directory } => {
                let tls = Tls { roots: Some(read(&directory.join("ca.crt"))?), ..Tls::default() };
                let token = Some(word(&directory.join("token"))?);
                Ok(Access { server: server.clone(), tls, token, exec: None })
            }
        }
    }
}

/// A file of a kubeconfig. Its paths are relative to its directory.
type File = (PathBuf, Yaml);

fn parse(files: &[PathBuf]) -> Result<Vec<File>, Invalid> {
    let parse = |path: &PathBuf| {
        let yaml = YamlLoader::load_from_str(&String::from_utf8_lossy(&read(path)?));
        // The text has secrets, so the error is told without them.
        let unclear = |line| Invalid::new(format!("{}: line {line} is not understood", path.display()));
        let yaml = yaml.map_err(|error| unclear(error.marker().line()))?;
        let directory = path.parent().unwrap_or(Path::new("")).to_owned();
        Ok((directory, yaml.into_iter().next().unwrap_or(Yaml::Null)))
    };
    files.iter().map(parse).collect()
}

fn current_context(files: &[File]) -> Result<String, Invalid> {
    files.iter().find_map(|(_, yaml)| text(&yaml["current-context"])).ok_or_else(|| {
        Invalid::new("the kubeconfig has no current context: `kubectl config use-context`, or context= in the URL")
    })
}

/// An entry of a kubeconfig, and the directory of its file.
fn entry<'a>(files: &'a [File], list: &str, name: &str) -> Result<(&'a Path, &'a Yaml), Invalid> {
    for (directory, yaml) in files {
        let mut entries = yaml[list].as_vec().into_iter().flatten();
        if let Some(entry) = entries.find(|entry| text(&entry["name"]).as_deref() == Some(name)) {
            return Ok((directory, &entry[list.trim_end_matches('s')]));
        }
    }
    Err(Invalid::new(format!("the kubeconfig has no {name:?} in {list}")))
}

fn access(files: &[File], context: &str) -> Result<Access, Invalid> {
    let (_, context) = entry(files, "contexts", context)?;
    let named = |list: &str, name: &str| entry(files, list, &text(&context[name]).unwrap_or_default());
    let ((directory, cluster), (home, user)) = (named("clusters", "cluster")?, named("users", "user")?);
    let refused = [(cluster, "proxy-url"), (user, "username"), (user, "auth-provider"), (user, "as")];
    if let Some((_, field)) = refused.into_iter().find(|(part, field)| !part[*field].is_badvalue()) {
        return Err(Invalid::new(format!("the kubeconfig has {field}, which is not supported")));
    }
    if cluster["insecure-skip-tls-verify"].as_bool() == Some(true) {
        let why = "insecure-skip-tls-verify is not supported: whoever answers would grant locks, so name its \
                   certificate-authority";
        return Err(Invalid::new(why));
    }
    let client = data(home, user, "client-certificate")?.zip(data(home, user, "client-key")?);
    let tls = Tls {
        server_name: text(&cluster["tls-server-name"]),
        roots: data(directory, cluster, "certificate-authority")?,
        client,
    };
    let token = match text(&user["tokenFile"]) {
        Some(file) => Some(word(&home.join(file))?),
        None => text(&user["token"]),
    };
    let server = text(&cluster["server"]).unwrap_or_default().trim_end_matches('/').to_owned();
    // Plain HTTP shows a token to everybody on the way; on this machine, `kubectl proxy` needs none.
    let starts = ["https://", "http://127.0.0.1:", "http://localhost:", "http://[::1]:"];
    if server.contains('@') {
        return Err(Invalid::new("the server of the kubeconfig has an @: credentials are written under users"));
    }
    if !starts.iter().any(|start| server.starts_with(start)) {
        return Err(Invalid::new(format!("the server {server:?} of the kubeconfig is not https://HOST[:PORT]")));
    }
    let exec = &user["exec"];
    let exec = if exec.is_badvalue() || exec.is_null() { None } else { Some(plugin(home, exec)?) };
    Ok(Access { server, tls, token, exec })
}

fn plugin(directory: &Path, exec: &Yaml) -> Result<Exec, Invalid> {
    let command = text(&exec["command"]).ok_or_else(|| Invalid::new("the kubeconfig has an exec without a command"))?;
    // Without a slash it is searched in PATH.
    let command = if command.contains('/') { directory.join(command) } else { PathBuf::from(command) };
    let list = |name: &str| exec[name].as_vec().into_iter().flatten();
    let mut command = Command::new(command);
    command.args(list("args").filter_map(text));
    command.envs(list("env").filter_map(|pair| Some((text(&pair["name"])?, text(&pair["value"])?))));
    Ok(Exec {
        command,
        api_version: text(&exec["apiVersion"]).unwrap_or_default(),
        wants_cluster: exec["provideClusterInfo"].as_bool() == Some(true),
        hint: text(&exec["installHint"]).map(|hint| format!("; {hint}")).unwrap_or_default(),
    })
}

/// `NAME-data` in base64, or the content of the file `NAME`.
fn data(directory: &Path, entry: &Yaml, name: &str) -> Result<Option<Vec<u8>>, Invalid> {
    if let Some(data) = text(&entry[&*format!("{name}-data")]) {
        let decoded = STANDARD.decode(data.split_whitespace().collect::<String>());
        return decoded.map(Some).map_err(|_| Invalid::new(format!("{name}-data of the kubeconfig is not base64")));
    }
    text(&entry[name]).map(|file| read(&directory.join(file))).transpose()
}

/// A scalar that is not empty. A name or a token of digits is a number in YAML.
fn text(yaml: &Yaml) -> Option<String> {
    match yaml {
        Yaml::String(text) | Yaml::Real(text) => Some(text.clone()).filter(|text| !text.is_empty()),
        Yaml::Integer(number) => Some(number.to_string()),
        _ => None,
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Invalid> {
    std::fs::read(path).map_err(|error| Invalid::new(format!("{}: {error}", path.display())))
}

fn word(path: &Path) -> Result<String, Invalid> {
    Ok(String::from_utf8_lossy(&read(path)?).trim().to_owned())
}

// The URL.

/// The parts of a URL.
#[derive(Debug)]
pub(super) struct Location {
    /// Instead of the server of the kubeconfig or of the pod.
    pub(super) address: Option<String>,
    pub(super) namespace: String,
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) context: Option<String>,
    pub(super) skew: Duration,
    pub(super) polls: RetryPlan,
}

impl Location {
    /// # Errors
    /// [`Invalid`] names what is wrong.
    pub(super) fn parse(url: &str) -> Result<Self, Invalid> {
        parse_url(url, Self::of)
    }

    fn of(url: &str) -> Result<Self, Invalid> {
        let (path, text) = url.split_once('?').unwrap_or((url, ""));
        let form = || Invalid::new("use kube-lease:///NAMESPACE or kube-lease://HOST:PORT/NAMESPACE");
        let (address, namespace) =
            path.strip_prefix("kube-lease://").and_then(|rest| rest.split_once('/')).ok_or_else(form)?;
        if address.contains('@') {
            return Err(Invalid::new("credentials come from a kubeconfig or the account of a pod, not from the URL"));
        }
        let namespace = namespace.trim_end_matches('/').to_owned();
        let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if namespace.is_empty() || namespace.len() > 63 || !namespace.bytes().all(is_name) {
            return Err(form());
        }
        let mut this = Self {
            address: Some(address.to_owned()).filter(|address| !address.is_empty()),
            namespace,
            kubeconfig: None,
            context: None,
            skew: Duration::from_secs(2),
            polls: polls(Duration::from_secs(2)),
        };
        for option in options(text) {
            let (name, value) = option?;
            this.option(name, &value)?;
        }
        Ok(this)
    }

    fn option(&mut self, name: &str, value: &str) -> Result<(), Invalid> {
        match name {
            "kubeconfig" => self.kubeconfig = Some(value.into()),
            "context" => self.context = Some(value.to_owned()),
            "skew" => self.skew = span(name, value)?,
            "poll" => self.polls = polls(span(name, value)?),
            _ => return Err(unknown_option(name, "context, kubeconfig, skew, poll")),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn find(url: &str, env: &[(&str, &str)]) -> Result<Source, Invalid> {
        let env: HashMap<_, _> = env.iter().copied().collect();
        Source::find(&Location::parse(url).unwrap(), &|name| env.get(name).map(Into::into))
    }

    const TWO: &str = "
apiVersion: v1
kind: Config
current-context: staging
contexts:
- context: {cluster: a, user: by-token, namespace: x}
  name: staging
- context:
    cluster: b
    user: by-certificate
  name: production
clusters:
- cluster:
    certificate-authority-data: Y2E=
    server: https://a.example:6443/
  name: a
- name: b
  cluster:
    certificate-authority: ca.pem
    tls-server-name: kubernetes
    server: https://10.0.0.1/k8s/c-1
users:
- name: by-token
  user: {token: 12345}
- name: by-certificate
  user:
    client-certificate-data: Y2Vy
     dA==
    client-key: key.pem
- name: by-program
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1beta1
      command: bin/login
      args: [-q, \"1\"]
      env: null
      installHint: Install it from
        example.com
";

    fn load(text: &str, context: &str) -> Result<Access, Invalid> {
        let directory = tempfile::tempdir().unwrap();
        for (name, text) in [("config", text), ("ca.pem", "ca of b"), ("key.pem", "key"), ("token", "t\n")] {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let files = vec![directory.path().join("config")];
        Source::Files { files, context: context.to_owned() }.load()
    }

    #[test]
    fn a_context_names_a_cluster_and_a_user() {
        let a = load(TWO, "staging").unwrap();
        assert_eq!((a.server.as_str(), a.token.as_deref()), ("https://a.example:6443", Some("12345")));
        assert!(a.tls == Tls { roots: Some(b"ca".to_vec()), ..Tls::default() } && a.exec.is_none());
        let b = load(TWO, "production").unwrap();
        assert_eq!((b.server.as_str(), b.token), ("https://10.0.0.1/k8s/c-1", None));
        assert_eq!((b.tls.server_name.as_deref(), b.tls.roots.as_deref()), (Some("kubernetes"), Some(&b"ca of b"[..])));
        assert_eq!(b.tls.client, Some((b"cert".to_vec(), b"key".to_vec())));
        let json = r#"{"contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],"clusters":[{"name":"c","cluster":
            {"server":"http://127.0.0.1:8001"}}],"users":[{"name":"u","user":{"tokenFile":"token"}}]}"#;
        assert_eq!(load(json, "x").unwrap().token.as_deref(), Some("t"));
    }

    #[test]
    fn a_program_is_found_beside_its_kubeconfig() {
        let exec = load(&TWO.replace("user: by-token", "user: by-program"), "staging").unwrap().exec.unwrap();
        let program = Path::new(exec.command.get_program());
        assert!(program.is_absolute() && program.ends_with("bin/login"), "{program:?}");
        assert!(exec.command.get_args().eq(["-q", "1"]) && exec.command.get_envs().next().is_none());
        assert_eq!((exec.hint.as_str(), exec.wants_cluster), ("; Install it from example.com", false));
    }

    #[test]
    fn what_is_missing_or_not_supported_is_named_without_secrets() {
        for (from, to, why) in [
            ("user: by-token", "user: nobody", "no \"nobody\" in users"),
            ("cluster: a,", "cluster: z,", "no \"z\" in clusters"),
            ("- context: {cluster: a", "- context: {cluster: [a]", "no \"\" in clusters"),
            ("token: 12345", "username: 12345", "username"),
            ("token: 12345", "as: admin", "has as"),
            ("token: 12345", "exec: {args: [a]}", "without a command"),
            ("token: 12345", "tokenFile: 12345", "12345: No such file"),
            ("Y2E=", "Y2E!", "not base64"),
            ("server: https://a.example:6443/", "server: https://u:p/w@a.example", "has an @"),
            ("server: https://a.example:6443/", "server: http://a.example", "is not https"),
            ("server: https://a.example:6443/", "server: http://127.0.0.1.example", "is not https"),
            ("certificate-authority-data: Y2E=", "insecure-skip-tls-verify: true", "name its certificate-authority"),
            ("certificate-authority-data: Y2E=", "proxy-url: http://p", "proxy-url"),
            ("apiVersion: v1", "apiVersion: [12345", "is not understood"),
        ] {
            let text = TWO.replacen(from, to, 1);
            let error = load(&text, "staging").map(|_| ()).unwrap_err().to_string();
            assert!(text != TWO && error.contains(why), "{why}: {error}");
        }
        assert!(load(TWO, "gone").map(|_| ()).unwrap_err().to_string().contains("\"gone\" in contexts"));
    }

    #[test]
    fn a_kubeconfig_is_searched_as_kubectl_does_and_then_the_account_of_the_pod() {
        let home = tempfile::tempdir().unwrap();
        let (one, two) = (home.path().join("one"), home.path().join("two"));
        std::fs::write(&one, "users: []").unwrap();
        std::fs::write(&two, TWO).unwrap();
        let list = format!("{}:/nowhere:{}", one.display(), two.display());
        let pod = [("KUBERNETES_SERVICE_HOST", "fd00::1"), ("KUBERNETES_SERVICE_PORT", "443")];
        let env = [pod[0], pod[1], ("KUBECONFIG", &*list)];
        let found = find("kube-lease:///jobs", &env).unwrap();
        let Source::Files { files, context } = &found else { panic!("{found:?}") };
        assert_eq!((files, context.as_str()), (&vec![one, two.clone()], "staging"));
        assert!(
            matches!(find("kube-lease:///jobs?context=production", &env).unwrap(), Source::Files { context, .. } if context == "production")
        );
        let named = format!("kube-lease:///jobs?kubeconfig={}", two.display());
        assert!(matches!(find(&named, &[]).unwrap(), Source::Files { files, .. } if files == [two]));
        // It is read again each minute, perhaps after a change of the working directory.
        let relative = find("kube-lease:///jobs?context=any", &[("KUBECONFIG", "./Cargo.toml")]).unwrap();
        let here = std::env::current_dir().unwrap().join("Cargo.toml");
        assert!(matches!(&relative, Source::Files { files, .. } if *files == [here]), "{relative:?}");
        let found = find("kube-lease:///jobs", &pod).unwrap();
        assert!(matches!(&found, Source::Pod { server, .. } if server == "https://[fd00::1]:443"), "{found:?}");
        let none = find("kube-lease:///jobs", &[("HOME", "/nowhere")]).unwrap_err().to_string();
        assert!(none.contains("set KUBECONFIG"), "{none}");
    }

    #[test]
    fn the_account_of_a_pod_is_a_token_and_a_certificate() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("token"), "t").unwrap();
        let pod = Source::Pod { server: "https://10.0.0.1:443".to_owned(), directory: directory.path().into() };
        assert!(pod.load().map(|_| ()).unwrap_err().to_string().contains("ca.crt"));
        std::fs::write(directory.path().join("ca.crt"), "ca").unwrap();
        let access = pod.load().unwrap();
        assert_eq!((access.token.as_deref(), access.tls.roots.as_deref()), (Some("t"), Some(&b"ca"[..])));
    }
}

#[cfg(test)]
mod location_tests {
    use super::*;

    #[test]
    fn a_url_names_a_namespace_and_perhaps_a_server() {
        let here = Location::parse("kube-lease:///jobs/").unwrap();
        assert_eq!((here.address, here.namespace.as_str(), here.skew), (None, "jobs", Duration::from_secs(2)));
        let there = "kube-lease://10.0.0.1:6443/jobs?context=a%20b&kubeconfig=/etc/k&skew=0ms&poll=50ms";
        let there = Location::parse(there).unwrap();
        assert_eq!(there.address.as_deref(), Some("10.0.0.1:6443"));
        assert_eq!((there.context.as_deref(), there.kubeconfig), (Some("a b"), Some("/etc/k".into())));
        assert_eq!((there.skew, there.polls), (Duration::ZERO, RetryPlan::every(Duration::from_millis(50))));
    }

    #[test]
    fn a_url_that_is_not_understood_is_refused_by_name() {
        for (url, why) in [
            ("kube-lease:", "kube-lease:///NAMESPACE"),
            ("kube-lease://host", "kube-lease:///NAMESPACE"),
            ("kube-lease:///", "kube-lease:///NAMESPACE"),
            ("kube-lease:///Jobs", "kube-lease:///NAMESPACE"),
            ("kube-lease:///a/b", "kube-lease:///NAMESPACE"),
            ("kube-lease://token@host/jobs", "kubeconfig"),
            ("kube-lease:///jobs?contxt=x", "contxt"),
            ("kube-lease:///jobs?skew=2", "write 500ms or 2s"),
            ("kube-lease:///jobs?poll=99999999s", "up to an hour"),
            ("kube-lease:///jobs?context=%ff", "UTF-8"),
        ] {
            let error = Location::parse(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
