use crate::postgres::Postgres;
use crate::schema::INIT;
use crate::session;
use crate::url::Target;
use fencelock_core::{
    Connecting, Fault, Invalid, RegisteredNode, Registering, Scheme, SchemeCommands, Unknown, UrlForm,
};
use std::sync::Arc;

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
    /// Makes the schema, or brings its functions and its quarantine up to date.
    fn init<'a>(&'a self, url: &'a str, trust_empty: bool) -> Registering<'a> {
        Box::pin(async move {
            let target = Target::parse(url)?;
            let made = tokio::time::timeout(INIT, session::install(&target, trust_empty)).await;
            let (change, rest) = made.unwrap_or_else(|_| Err(Unknown::new(&target.name, Fault::Timeout, "")))?;
            Ok(vec![RegisteredNode::new(&target.name, change, rest)])
        })
    }

    fn with_password(&self, url: &str, password: &str) -> Result<String, Invalid> {
        Target::with_password(url, password)
    }
}
