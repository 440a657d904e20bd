use super::connect;
use fencelock_core::{Connecting, Scheme, UrlForm};
use std::sync::Arc;

/// `kube-lease://`, for `fencelock::register`.
#[derive(Debug)]
pub struct KubeLeases;

impl Scheme for KubeLeases {
    fn forms(&self) -> &[UrlForm] {
        const { &[UrlForm::new("kube-lease:///NAMESPACE", "the Leases of a Kubernetes namespace")] }
    }

    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let locks = connect(url)?;
            locks.check().await?;
            Ok(Arc::new(locks) as _)
        })
    }

    fn lazy<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(connect(url)?) as _) })
    }
}
