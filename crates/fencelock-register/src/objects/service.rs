//! The interfaces of object stores, and what differs between them: names, addresses, and what a condition compares.

use super::connector::Connector;
use crate::web::is_address;
use fencelock_core::{Invalid, UrlForm};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::{ObjectStore, Result, RetryConfig};
use std::ffi::OsString;
use std::sync::Arc;

/// The interface that a store speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    S3,
    Azure,
    Google,
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

    /// Checks the variables that the client reads: it panics at some values, and passes over others.
    ///
    /// # Errors
    /// [`Invalid`] names the variable, but not its value, which may be a secret.
    pub(super) fn check(self, variables: impl Iterator<Item = (OsString, OsString)>) -> Result<(), Invalid> {
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| self.reads(name)) else { continue };
            let value = value.to_str().ok_or_else(|| Invalid::new(format!("{name} is not UTF-8")))?;
            // A file has any name, and may stand in the variable instead.
            let ends = ["_FILE", "_CREDENTIALS", "_CERTIFICATE"];
            if name.starts_with("GOOGLE_SERVICE_ACCOUNT") || ends.iter().any(|end| name.ends_with(end)) {
                continue;
            }
            check_setting(name, value)?;
            let address = if name.starts_with("GCE_") { format!("http://{value}") } else { value.to_owned() };
            if address.contains("://") && !is_address(&address) {
                return Err(Invalid::new(format!("{name} is no address of a server")));
            }
        }
        Ok(())
    }

    fn reads(self, name: &str) -> bool {
        let key = name.to_ascii_lowercase();
        match name.split('_').next() {
            Some("AWS") => self == Self::S3 && key.parse::<AmazonS3ConfigKey>().is_ok(),
            Some("AZURE") => self == Self::Azure && key.parse::<AzureConfigKey>().is_ok(),
            Some("GOOGLE") => self == Self::Google && key.parse::<GoogleConfigKey>().is_ok(),
            Some("IDENTITY") => self == Self::Azure,
            Some("GCE") => self == Self::Google && key.starts_with("gce_metadata_"),
            _ => false,
        }
    }

    /// A client that sends each request once: a repetition would hide how long it took. Credentials come from the environment.
    pub(super) fn client(
        self,
        owners: &[String],
        endpoint: Option<String>,
        region: Option<&str>,
        path_style: bool,
    ) -> Result<Arc<dyn ObjectStore>> {
        let connector = Connector { needs_tls: !endpoint.as_ref().is_some_and(|at| at.starts_with("http:")) };
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let bucket = owners.last().map_or("", String::as_str);
        match self {
            Self::S3 => {
                let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket).with_retry(retry);
                builder = builder.with_http_connector(connector).with_conditional_put(S3ConditionalPut::ETagMatch);
                builder = builder.with_virtual_hosted_style_request(!path_style);
                // One object is deleted by a request of its own, which every store has.
                builder = builder.with_config(AmazonS3ConfigKey::DisableBulkDelete, "true");
                if let Some(endpoint) = endpoint {
                    // The one that takes precedence over what the environment says.
                    builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
                }
                if let Some(region) = region {
                    builder = builder.with_region(region);
                }
                Ok(Arc::new(builder.build()?))
            }
            Self::Azure => {
                let mut builder = MicrosoftAzureBuilder::from_env().with_container_name(bucket).with_retry(retry);
                builder = builder.with_account(&owners[0]).with_http_connector(connector);
                if let Some(endpoint) = endpoint {
                    // AZURE_STORAGE_USE_EMULATOR would take precedence.
                    builder = builder.with_endpoint(endpoint).with_use_emulator(false);
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
    pub(super) fn address(self, endpoint: &str, owner: &str, path_style: bool) -> String {
        match (self, path_style) {
            (Self::Azure, true) => format!("{endpoint}/{owner}"),
            (Self::S3 | Self::Azure, false) => endpoint.replacen("://", &format!("://{owner}."), 1),
            _ => endpoint.to_owned(),
        }
    }
}

/// A value that becomes a part of a header or a URL.
pub(super) fn check_setting(name: &str, value: &str) -> Result<(), Invalid> {
    if value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Ok(());
    }
    Err(Invalid::new(format!("{name} has a line break, a space or a letter that is not ASCII, perhaps at its end")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_that_the_client_cannot_use_is_named_without_its_value() {
        for (service, name, value) in [
            (Service::S3, "AWS_ACCESS_KEY_ID", "s3cret\n"),
            (Service::S3, "AWS_SECRET_ACCESS_KEY", "s3cret "),
            (Service::S3, "AWS_SESSION_TOKEN", "s3cret\u{7f}"),
            (Service::S3, "AWS_REGION", "s3cret\r"),
            (Service::S3, "AWS_ENDPOINT_URL_S3", "http://s3cret:99999"),
            (Service::S3, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/s3 cret"),
            (Service::S3, "AWS_METADATA_ENDPOINT", "http://s3 cret"),
            (Service::Azure, "AZURE_STORAGE_ACCOUNT_KEY", "s3cret\n"),
            (Service::Azure, "AZURE_STORAGE_SAS_TOKEN", "sig=s3\tcret"),
            (Service::Azure, "AZURE_STORAGE_TOKEN", "s3\u{fc}cret"),
            (Service::Azure, "IDENTITY_HEADER", "s3cret\n"),
            (Service::Azure, "IDENTITY_ENDPOINT", "http://s3cret:99999"),
            (Service::Google, "GOOGLE_BEARER_TOKEN", "s3cret\n"),
            (Service::Google, "GCE_METADATA_HOST", "s3cret:99999"),
        ] {
            let refused = service.check([(name.into(), value.into())].into_iter()).unwrap_err().to_string();
            assert!(refused.contains(name) && !refused.contains("s3"), "{refused}");
        }
        for (service, name, value) in [
            (Service::S3, "AWS_WEB_IDENTITY_TOKEN_FILE", "/my files/\u{fc}"),
            (Service::S3, "AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials?a=b"),
            (Service::S3, "AWS_PROFILE", "my profile"),
            (Service::S3, "AZURE_STORAGE_TOKEN", "of another cloud\n"),
            (Service::Azure, "AZURE_STORAGE_ACCOUNT_KEY", "Eby8/+=="),
            (
                Service::Google,
                "GOOGLE_SERVICE_ACCOUNT_KEY",
                "{\n  \"token_uri\": \"https://oauth2.googleapis.com/token\"\n}\n",
            ),
        ] {
            service.check([(name.into(), value.into())].into_iter()).unwrap();
        }
    }

    #[test]
    fn the_owner_is_a_part_of_the_path_or_of_the_host() {
        let address = |service: Service, path_style| service.address("https://h:1", "acct", path_style);
        assert_eq!(address(Service::Azure, true), "https://h:1/acct");
        assert_eq!(address(Service::Azure, false), "https://acct.h:1");
        assert_eq!(address(Service::S3, true), "https://h:1", "the client adds the bucket");
        assert_eq!(address(Service::S3, false), "https://acct.h:1");
        assert_eq!(address(Service::Google, true), "https://h:1");
    }
}
