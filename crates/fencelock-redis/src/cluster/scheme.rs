use super::Cluster;
use super::url::ClusterUrl;
use crate::url::identity::identity;
use crate::url::password;
use fencelock_core::{Connecting, Invalid, Registering, Scheme, SchemeCommands, UrlForm};
use std::sync::Arc;

/// `redis+cluster://` and `rediss+cluster://`.
#[derive(Debug)]
pub struct ClusterScheme;

impl Scheme for ClusterScheme {
    fn forms(&self) -> &[UrlForm] {
        const {
            &[
                UrlForm::new("redis+cluster://H1,H2,H3", "machines that share a Redis Cluster"),
                UrlForm::new("rediss+cluster://H1,H2,H3", "the same over TLS"),
            ]
        }
    }

    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(Cluster::open(url).await?) as _) })
    }

    fn lazy<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(Cluster::lazy(url)?) as _) })
    }

    fn identity(&self, url: &str, name: &str) -> String {
        identity(url, name)
    }

    fn commands(&self) -> Option<&dyn SchemeCommands> {
        Some(self)
    }
}

impl SchemeCommands for ClusterScheme {
    fn init<'a>(&'a self, url: &'a str, _: bool) -> Registering<'a> {
        Box::pin(async move {
            ClusterUrl::parse(url)?;
            Err(Invalid::new("a cluster has no quarantine, so there is nothing to set up").into())
        })
    }

    fn with_password(&self, url: &str, password: &str) -> Result<String, Invalid> {
        Ok(password::for_all(url, password))
    }
}
