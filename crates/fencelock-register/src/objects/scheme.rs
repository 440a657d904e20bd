use super::Objects;
use super::service::Service;
use fencelock_core::{Connecting, Scheme, UrlForm};
use std::sync::Arc;

/// `s3://`, `az://` and `gs://`.
#[derive(Debug, Clone, Copy, Default)]
pub struct ObjectStores;

impl Scheme for ObjectStores {
    fn forms(&self) -> &[UrlForm] {
        const { &[Service::S3.form(), Service::Azure.form(), Service::Google.form()] }
    }

    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let objects = Objects::open(url)?;
            // A wrong address, bucket or credential is an error here.
            objects.check().await?;
            Ok(Arc::new(objects.locks()) as _)
        })
    }

    fn lazy<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(Objects::open(url)?.locks()) as _) })
    }
}
