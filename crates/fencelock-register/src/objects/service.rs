//! The interfaces of object stores, and what differs between them: names, addresses, and what a condition compares.

use super::connector::Connector;
use fencelock_core::UrlForm;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{ObjectStore, Result, RetryConfig};
use std::sync::Arc;

/// The interface that a store speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    S3,
    Azure,
    Google,
}

/// Where a client is to connect.
pub(super) struct Place<'a> {
    /// The account of Azure, and the bucket.
    pub(super) owners: &'a [String],
    pub(super) endpoint: Option<&'a str>,
    pub(super) region: Option<&'a str>,
    pub(super) path_style: bool,
}

impl Service {
    pub(super) const ALL: [Self; 3] = [Self::S3, Self::Azure, Self::Google];

    pub(super) const fn form(self) -> UrlForm {
        match self {
            Self::S3 => UrlForm::new("s3://BUCKET[/PREFIX]", "machines that share a bucket that speaks S3"),
            Self::Azure => UrlForm::new("az://ACCOUNT/CONTAINER[/DIR]", "machines that share a container of Azure"),
            Self::Google => UrlForm::new("gs://BUCKET[/PREFIX]", "machines that share a bucket of Google (slow)"),
        }
    }

    /// How many parts of a URL come before the prefix.
    pub(super) const fn owners(self) -> usize {
        if matches!(self, Self::Azure) { 2 } else { 1 }
    }

    /// The variables with an endpoint, the first of which counts.
    pub(super) const fn endpoint_variables(self) -> &'static [&'static str] {
        match self {
            Self::S3 => &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"],
            Self::Azure => &["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"],
            Self::Google => &["GOOGLE_BASE_URL"],
        }
    }

    /// What an object is compared by: Google counts generations, and the others name the content.
    pub(super) fn version(self, tag: Option<String>, generation: Option<String>) -> Option<String> {
        if self == Self::Google { generation } else { tag }
    }

    /// A version that no object has.
    pub(super) const fn other_version(self) -> &'static str {
        if matches!(self, Self::Google) { "1" } else { "\"00000000000000000000000000000000\"" }
    }

    /// A client that sends each request once: a repetition would hide how long it took. Credentials come from the environment.
    pub(super) fn client(self, place: &Place<'_>) -> Result<Arc<dyn ObjectStore>> {
        let endpoint = place.endpoint.map(|endpoint| self.address(endpoint, place));
        let connector = Connector { needs_tls: !endpoint.as_ref().is_some_and(|at| at.starts_with("http:")) };
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let bucket = place.owners.last().map_or("", String::as_str);
        match self {
            Self::S3 => {
                let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
                builder = builder.with_http_connector(connector).with_conditional_put(S3ConditionalPut::ETagMatch);
                builder = builder.with_virtual_hosted_style_request(!place.path_style);
                // One object is deleted by a request of its own, which every store has.
                builder = builder.with_config(AmazonS3ConfigKey::DisableBulkDelete, "true");
                if let Some(endpoint) = endpoint {
                    // The one that takes precedence over what the environment says.
                    builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
                }
                if let Some(region) = place.region {
                    builder = builder.with_region(region);
                }
                Ok(Arc::new(builder.build()?))
            }
            Self::Azure => {
                let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(bucket).with_retry(retry);
                builder = builder.with_account(&place.owners[0]).with_http_connector(connector);
                if let Some(endpoint) = endpoint {
                    builder = builder.with_endpoint(endpoint);
                }
                Ok(Arc::new(builder.build()?))
            }
            Self::Google => {
                let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(bucket).with_retry(retry);
                builder = builder.with_http_connector(connector);
                if let Some(endpoint) = endpoint {
                    builder = builder.with_base_url(&endpoint);
                }
                Ok(Arc::new(builder.build()?))
            }
        }
    }

    /// The address of the account or bucket, which is a part of the path or of the host.
    fn address(self, endpoint: &str, place: &Place<'_>) -> String {
        let owner = &place.owners[0];
        match (self, place.path_style) {
            (Self::Azure, true) => format!("{endpoint}/{owner}"),
            (Self::S3 | Self::Azure, false) => endpoint.replacen("://", &format!("://{owner}."), 1),
            _ => endpoint.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_a_part_of_the_path_or_of_the_host() {
        let owners = ["acct".to_owned(), "box".to_owned()];
        let address = |service: Service, path_style| {
            service.address("https://h:1", &Place { owners: &owners, endpoint: None, region: None, path_style })
        };
        assert_eq!(address(Service::Azure, true), "https://h:1/acct");
        assert_eq!(address(Service::Azure, false), "https://acct.h:1");
        assert_eq!(address(Service::S3, true), "https://h:1", "the client adds the bucket");
        assert_eq!(address(Service::S3, false), "https://acct.h:1");
        assert_eq!(address(Service::Google, true), "https://h:1");
    }
}
