//! The URL of a store, and the client of `object_store` for it.

use super::connector::Connector;
use fencelock_core::{Invalid, RetryPlan};
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{ObjectStore, RetryConfig};
use std::sync::Arc;
use std::time::Duration;

/// The parts of a URL.
#[derive(Debug)]
pub(super) struct Location {
    bucket: String,
    pub(super) prefix: String,
    endpoint: Option<String>,
    region: Option<String>,
    path_style: bool,
    allow_http: bool,
    pub(super) skew: Duration,
    longest_poll: Duration,
    /// The times that the store tells are used.
    pub(super) clock: bool,
    pub(super) verify: bool,
}

impl Location {
    /// # Errors
    /// [`Invalid`] names what is wrong.
    pub(super) fn parse(url: &str) -> Result<Self, Invalid> {
        let (address, options) = url.split_once('?').unwrap_or((url, ""));
        let Some(rest) = address.strip_prefix("s3://") else {
            return Err(Invalid::new(format!("{address}: an object store is s3://BUCKET[/PREFIX]")));
        };
        if rest.contains('@') {
            return Err(Invalid::new("credentials come from the environment, not from the URL"));
        }
        let mut parts = rest.split('/').filter(|part| !part.is_empty()).map(decoded).collect::<Result<Vec<_>, _>>()?;
        if parts.is_empty() {
            return Err(Invalid::new(format!("{address} names no bucket: s3://BUCKET[/PREFIX]")));
        }
        let bucket = parts.remove(0);
        if let Some(part) = parts.iter().find(|part| Path::parse(part.as_str()).is_err() || part.contains('/')) {
            return Err(Invalid::new(format!("{part:?} cannot be a part of a prefix")));
        }
        let mut this = Self {
            bucket,
            prefix: parts.join("/"),
            endpoint: None,
            region: None,
            path_style: true,
            allow_http: false,
            skew: Duration::from_secs(2),
            longest_poll: Duration::from_secs(2),
            clock: true,
            verify: true,
        };
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            this.option(name, &decoded(value)?)?;
        }
        this.check_endpoint()?;
        Ok(this)
    }

    fn option(&mut self, name: &str, value: &str) -> Result<(), Invalid> {
        match name {
            "endpoint" => self.endpoint = Some(value.trim_end_matches('/').to_owned()),
            "region" => self.region = Some(value.to_owned()),
            "path_style" => self.path_style = switch(name, value)?,
            "allow_http" => self.allow_http = switch(name, value)?,
            "skew" => self.skew = span(name, value)?,
            "poll" => self.longest_poll = span(name, value)?,
            "clock" => self.clock = switch(name, value)?,
            "verify" => self.verify = switch(name, value)?,
            _ => {
                let known = "endpoint, region, path_style, allow_http, skew, poll, clock, verify";
                return Err(Invalid::new(format!("unknown option {name:?}; the options are {known}")));
            }
        }
        Ok(())
    }

    fn check_endpoint(&self) -> Result<(), Invalid> {
        let Some(endpoint) = &self.endpoint else { return Ok(()) };
        let is_local = |rest: &str| ["127.0.0.1", "localhost", "[::1]"].iter().any(|host| rest.starts_with(host));
        match endpoint.split_once("://") {
            Some(("https", host)) if !host.is_empty() => Ok(()),
            Some(("http", host)) if is_local(host) || self.allow_http && !host.is_empty() => Ok(()),
            Some(("http", host)) if !host.is_empty() => {
                Err(Invalid::new(format!("{endpoint} would send credentials in plain text; allow_http=on allows it")))
            }
            _ => Err(Invalid::new(format!("endpoint={endpoint} is no URL: https://HOST[:PORT]"))),
        }
    }

    /// The URL without options that do not change which keys are locked.
    pub(super) fn name(&self) -> String {
        let prefix = if self.prefix.is_empty() { String::new() } else { format!("/{}", self.prefix) };
        let endpoint = self.endpoint.as_ref().map(|endpoint| format!("?endpoint={endpoint}")).unwrap_or_default();
        format!("s3://{}{prefix}{endpoint}", self.bucket)
    }

    pub(super) fn polls(&self) -> RetryPlan {
        RetryPlan::new(Duration::from_millis(100).min(self.longest_poll), self.longest_poll)
    }

    /// The client. It sends nothing yet.
    ///
    /// # Errors
    /// [`Invalid`] if a setting of the environment is invalid or missing.
    pub(super) fn open(&self) -> Result<Arc<dyn ObjectStore>, Invalid> {
        let mut builder = AmazonS3Builder::from_env().with_bucket_name(&self.bucket).with_http_connector(Connector);
        // A repetition would hide how long a request took.
        builder = builder.with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() });
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint).with_allow_http(endpoint.starts_with("http:"));
            builder = builder.with_virtual_hosted_style_request(!self.path_style);
        }
        if let Some(region) = &self.region {
            builder = builder.with_region(region);
        }
        let store = builder.build().map_err(|error| Invalid::new(format!("{}: {error}", self.name())))?;
        Ok(Arc::new(store))
    }
}

fn decoded(text: &str) -> Result<String, Invalid> {
    let text = percent_encoding::percent_decode_str(text).decode_utf8();
    text.map(Into::into).map_err(|_| Invalid::new("the URL is not UTF-8"))
}

fn switch(name: &str, value: &str) -> Result<bool, Invalid> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Invalid::new(format!("{name}={value}: it is on or off"))),
    }
}

/// `500ms`, `2s`.
fn span(name: &str, value: &str) -> Result<Duration, Invalid> {
    let unit = value.find(|c: char| !c.is_ascii_digit()).unwrap_or(value.len());
    let number = value[..unit].parse().ok().filter(|number| *number <= 3_600_000);
    match (number, &value[unit..]) {
        (Some(number), "ms") => Ok(Duration::from_millis(number)),
        (Some(number), "s") if number <= 3600 => Ok(Duration::from_secs(number)),
        _ => Err(Invalid::new(format!("{name}={value}: write 500ms or 2s, up to an hour"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_bucket_and_a_prefix() {
        for (url, name) in [
            ("s3://bucket/a/b/", "s3://bucket/a/b"),
            ("s3://bucket?skew=5s&poll=500ms&clock=off&verify=off", "s3://bucket"),
            ("s3://bucket/a%20b?region=eu-1", "s3://bucket/a b"),
            ("s3://b?endpoint=http://127.0.0.1:9000/&path_style=off", "s3://b?endpoint=http://127.0.0.1:9000"),
            ("s3://b?endpoint=http://minio&allow_http=on", "s3://b?endpoint=http://minio"),
        ] {
            assert_eq!(Location::parse(url).unwrap().name(), name);
        }
        let location = Location::parse("s3://bucket?skew=5s&poll=50ms&clock=off&verify=off").unwrap();
        assert_eq!((location.skew, location.clock, location.verify), (Duration::from_secs(5), false, false));
        assert_eq!(location.polls(), RetryPlan::every(Duration::from_millis(50)));
    }

    #[test]
    fn a_url_that_is_not_understood_is_refused_by_name() {
        for (url, why) in [
            ("s3://", "no bucket"),
            ("gs://bucket", "s3://BUCKET"),
            ("s3://key:secret@bucket", "environment"),
            ("s3://bucket/../x", "\"..\""),
            ("s3://bucket/%2e%2e", "\"..\""),
            ("s3://bucket/a%2fb", "\"a/b\""),
            ("s3://bucket?endpiont=x", "endpiont"),
            ("s3://bucket?clock=no", "on or off"),
            ("s3://bucket?skew=2", "write 500ms or 2s"),
            ("s3://bucket?poll=99999999s", "up to an hour"),
            ("s3://bucket?endpoint=minio:9000", "no URL"),
            ("s3://bucket?endpoint=http://minio:9000", "allow_http=on"),
            ("s3://bucket/%ff", "UTF-8"),
        ] {
            let error = Location::parse(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
