use super::url::{lazy, node_urls, on_demand, open};
use crate::server::node_setup::register;
use crate::url::identity::{identity, in_order};
use crate::url::options::Role;
use crate::url::password;
use fencelock_core::{Connecting, Invalid, Registering, Scheme, SchemeCommands, UrlForm};
use std::sync::Arc;

/// `redlock://` and `redlock+tls://`.
#[derive(Debug)]
pub struct QuorumScheme;

impl Scheme for QuorumScheme {
    fn forms(&self) -> &[UrlForm] {
        const {
            &[
                UrlForm::new("redlock://HOST,HOST,HOST", "machines that share a majority of Redis servers"),
                UrlForm::new("redlock+tls://HOST,...", "the same over TLS"),
            ]
        }
    }

    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(open(url).await?) as _) })
    }

    fn lazy<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(lazy(url)?) as _) })
    }

    fn on_demand<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(on_demand(url)?) as _) })
    }

    fn identity(&self, url: &str, name: &str) -> String {
        identity(url, &in_order(name))
    }

    fn commands(&self) -> Option<&dyn SchemeCommands> {
        Some(self)
    }
}

impl SchemeCommands for QuorumScheme {
    fn init<'a>(&'a self, url: &'a str, trust_empty: bool) -> Registering<'a> {
        Box::pin(async move { register(Role::Member, &node_urls(url)?, trust_empty).await })
    }

    fn with_password(&self, url: &str, password: &str) -> Result<String, Invalid> {
        Ok(password::for_each(url, password))
    }
}
