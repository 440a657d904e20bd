use crate::postgres::Postgres;
use crate::session;
use crate::url::Target;
use fencelock_core::{
    Change, Connecting, Fault, Invalid, RegisteredNode, Registering, Scheme, SchemeCommands, Unknown, UrlForm,
};
use std::sync::Arc;
use std::time::Duration;

/// Making the schema takes longer than a request, and there is nobody in a hurry.
const INIT: Duration = Duration::from_secs(60);

/// `postgres://` and `postgresql://`.
#[derive(Debug)]
pub struct PostgresScheme;

impl Scheme for PostgresScheme {
    fn forms(&self) -> &[UrlForm] {
        const {
            &[
                UrlForm::new("postgres://HOST[:PORT]/DB", "machines that share a PostgreSQL database"),
                UrlForm::new("postgresql://HOST[:PORT]/DB", "the same"),
            ]
        }
    }

    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(Postgres::open(url).await?) as _) })
    }

    fn lazy<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(Postgres::lazy(url)?) as _) })
    }

    fn commands(&self) -> Option<&dyn SchemeCommands> {
        Some(self)
    }
}

impl SchemeCommands for PostgresScheme {
    /// Makes the schema. It has no quarantine, so there is nothing to trust.
    fn init<'a>(&'a self, url: &'a str, trust_empty: bool) -> Registering<'a> {
        Box::pin(async move {
            let target = Target::parse(url)?;
            if trust_empty {
                return Err(
                    Invalid::new("postgres: has no quarantine, so no server has to be trusted to be empty").into()
                );
            }
            let made = tokio::time::timeout(INIT, session::install(&target)).await;
            let is_new = made.unwrap_or_else(|_| Err(Unknown::new(&target.name, Fault::Timeout, "")))?;
            let change = if is_new { Change::New } else { Change::None };
            Ok(vec![RegisteredNode::new(&target.name, change, Duration::ZERO)])
        })
    }

    fn with_password(&self, url: &str, password: &str) -> Result<String, Invalid> {
        Target::with_password(url, password)
    }
}
