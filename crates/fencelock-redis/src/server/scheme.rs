use super::Redis;
use super::node_setup::register;
use crate::url::identity::identity;
use crate::url::options::Role;
use crate::url::password;
use crate::url::target::Target;
use fencelock_core::{Connecting, Invalid, Registering, Scheme, SchemeCommands, UrlForm};
use std::sync::Arc;

/// `redis://` and `redis+sentinel://`, each also over TLS, and `redis+unix://`.
#[derive(Debug)]
pub struct RedisScheme;

impl Scheme for RedisScheme {
    fn forms(&self) -> &[UrlForm] {
        const {
            &[
                UrlForm::new("redis://HOST[:PORT][/DB]", "machines that share one Redis; leases expire"),
                UrlForm::new("rediss://HOST[:PORT][/DB]", "the same over TLS"),
                UrlForm::new("redis+unix:///PATH", "a Redis on this machine, over its Unix socket"),
                UrlForm::new("redis+sentinel://S1,S2/NAME", "machines that share the master of the sentinels"),
                UrlForm::new("rediss+sentinel://S1,S2/NAME", "the same over TLS"),
            ]
        }
    }

    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(Redis::open(url).await?) as _) })
    }

    fn lazy<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(Redis::lazy(url)?) as _) })
    }

    fn identity(&self, url: &str, name: &str) -> String {
        identity(url, name)
    }

    fn commands(&self) -> Option<&dyn SchemeCommands> {
        Some(self)
    }
}

impl SchemeCommands for RedisScheme {
    fn init<'a>(&'a self, url: &'a str, trust_empty: bool) -> Registering<'a> {
        Box::pin(async move {
            if Target::parse(url)?.quarantine.is_none() {
                return Err(Invalid::new(
                    "this Redis has no quarantine, so there is nothing to set up: add quarantine=on to its URL to use one",
                )
                .into());
            }
            register(Role::Alone, &[url.to_owned()], trust_empty).await
        })
    }

    fn with_password(&self, url: &str, password: &str) -> Result<String, Invalid> {
        Ok(password::for_all(url, password))
    }
}
