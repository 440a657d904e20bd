use super::connect;
use fencelock_core::{Backend, Connecting, Scheme, UrlForm};
use std::sync::Arc;

/// `s3://`, for `fencelock::register`.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct ObjectStores;

const FORMS: [UrlForm; 1] = [UrlForm::new("s3://BUCKET[/PREFIX]", "an object store that speaks S3")];

impl Scheme for ObjectStores {
    fn forms(&self) -> &[UrlForm] {
        &FORMS
    }

    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let locks = connect(url)?;
            // Asks for what may be held: a wrong address, bucket or credential is an error here.
            (&locks as &dyn Backend).list().await?;
            Ok(Arc::new(locks) as _)
        })
    }

    fn lazy<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(connect(url)?) as _) })
    }
}
