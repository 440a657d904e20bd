//! The URL.

use crate::web::{options, polls, span, unknown_option};
use fencelock_core::{Invalid, RetryPlan, parse_url};
use std::path::PathBuf;
use std::time::Duration;

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
