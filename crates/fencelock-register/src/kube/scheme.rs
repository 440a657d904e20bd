use super::open;
use fencelock_core::{Connecting, Scheme, UrlForm};
use std::sync::Arc;

/// `kube-lease://`, for `fencelock::register`.
#[derive(Debug)]
pub struct KubeLeases;

const FORMS: [UrlForm; 1] = [UrlForm::new("kube-lease:///NAMESPACE", "the Leases of a Kubernetes namespace")];

impl Scheme for KubeLeases {
    fn forms(&self) -> &[UrlForm] {
        &FORMS
    }

    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let (leases, locks) = open(url)?;
            leases.check().await?;
            Ok(Arc::new(locks) as _)
        })
    }

    fn lazy<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(open(url)?.1) as _) })
    }
}
