//! The URL of a store.

use super::service::{Service, check_setting};
use crate::web::{decoded, is_address, options, polls, span, unknown_option};
use fencelock_core::{Invalid, RetryPlan, parse_url};
use object_store::ObjectStore;
use object_store::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The parts of a URL.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is an option that is on or off")]
pub(super) struct Location {
    pub(super) service: Service,
    /// The account of Azure, and the bucket.
    owners: Vec<String>,
    pub(super) prefix: Path,
    endpoint: Option<String>,
    region: Option<String>,
    path_style: bool,
    allow_http: bool,
    pub(super) skew: Duration,
    pub(super) polls: RetryPlan,
    /// A request, with the first ones for credentials, has an answer within this time, or none.
    pub(super) timeout: Duration,
    /// The times that the store tells are used.
    pub(super) clock: bool,
    pub(super) verify: bool,
}

impl Location {
    /// The endpoint may come from the environment, too.
    ///
    /// # Errors
    /// [`Invalid`] names what is wrong.
    pub(super) fn parse(url: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Self, Invalid> {
        parse_url(url, |url| Self::of(url, environment))
    }

    fn of(url: &str, environment: impl Fn(&str) -> Option<String>) -> Result<Self, Invalid> {
        let (address, text) = url.split_once('?').unwrap_or((url, ""));
        let (scheme, rest) = address.split_once("://").unwrap_or((address, ""));
        let service = Service::ALL.into_iter().find(|service| service.form().scheme() == scheme);
        let service = service.ok_or_else(|| Invalid::new("an object store is s3://, az:// or gs://"))?;
        if rest.split('/').next().is_some_and(|owner| owner.contains('@')) {
            return Err(Invalid::new("credentials come from the environment, not from the URL"));
        }
        let mut owners = rest.split('/').filter(|part| !part.is_empty()).map(decoded).collect::<Result<Vec<_>, _>>()?;
        if owners.len() < service.owners() {
            return Err(Invalid::new(format!("{address} is not complete: {}", service.form().url)));
        }
        if let Some(part) = owners.iter().find(|part| Path::parse(part.as_str()).is_err() || part.contains('/')) {
            return Err(Invalid::new(format!("{part:?} cannot be a part of a URL of objects")));
        }
        let is_name = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._$".contains(&byte));
        if let Some(part) = owners.iter().take(service.owners()).find(|part| !is_name(part)) {
            return Err(Invalid::new(format!("{part:?} cannot be the name of a bucket, an account or a container")));
        }
        // As it is: the client would encode characters of a path that is made of its parts.
        let prefix = Path::parse(owners.split_off(service.owners()).join("/"));
        let prefix = prefix.map_err(|error| Invalid::new(error.to_string()))?;
        let mut this = Self {
            service,
            owners,
            prefix,
            endpoint: None,
            region: None,
            path_style: true,
            allow_http: false,
            skew: Duration::from_secs(2),
            polls: polls(Duration::from_secs(2)),
            timeout: Duration::from_secs(10),
            clock: true,
            verify: true,
        };
        for option in options(text) {
            let (name, value) = option?;
            this.option(name, &value)?;
        }
        let mut variables = service.endpoint_variables().iter();
        let endpoint = this.endpoint.take().or_else(|| variables.find_map(|name| environment(name)));
        this.endpoint = endpoint.map(|endpoint| endpoint.trim_end_matches('/').to_owned());
        check_setting("region=", this.region.as_deref().unwrap_or_default())?;
        this.check_endpoint()?;
        Ok(this)
    }

    fn option(&mut self, name: &str, value: &str) -> Result<(), Invalid> {
        match name {
            "endpoint" => self.endpoint = Some(value.to_owned()),
            "region" if self.service == Service::S3 => self.region = Some(value.to_owned()),
            "path_style" if self.service != Service::Google => self.path_style = switch(name, value)?,
            "region" | "path_style" => {
                let scheme = self.service.form().scheme();
                return Err(Invalid::new(format!("{name}= does not apply to {scheme}://")));
            }
            "allow_http" => self.allow_http = switch(name, value)?,
            "skew" => self.skew = span(name, value)?,
            "poll" => self.polls = polls(span(name, value)?),
            "timeout" => self.timeout = span(name, value)?,
            "clock" => self.clock = switch(name, value)?,
            "verify" => self.verify = switch(name, value)?,
            _ => {
                let known = "endpoint, region, path_style, allow_http, skew, poll, timeout, clock, verify";
                return Err(unknown_option(name, known));
            }
        }
        Ok(())
    }

    fn check_endpoint(&self) -> Result<(), Invalid> {
        let Some(endpoint) = &self.endpoint else { return Ok(()) };
        let (protocol, rest) = endpoint.split_once("://").unwrap_or_default();
        let authority = rest.split('/').next().unwrap_or_default();
        let is_address = self.server().is_some_and(|server| is_address(&server));
        let has_login = rest.contains('@') || authority.contains("%40");
        let is_plain = !authority.is_empty() && !has_login && !rest.contains(['?', '#']);
        if !is_plain || !matches!(protocol, "http" | "https") || !is_address {
            let form = "https://HOST[:PORT]; path_style=off needs a name as HOST";
            return Err(Invalid::new(format!("endpoint= is no URL of a server, without credentials: {form}")));
        }
        let host = match authority.strip_prefix('[') {
            Some(_) => authority.split_inclusive(']').next(),
            None => authority.split(':').next(),
        };
        let is_local = host.is_some_and(|host| ["127.0.0.1", "localhost", "[::1]"].contains(&host));
        if protocol == "http" && !is_local && !self.allow_http {
            return Err(Invalid::new(format!("{endpoint} would send data in plain text; allow_http=on allows it")));
        }
        Ok(())
    }

    /// The URL without options that do not change which keys are locked.
    pub(super) fn name(&self) -> String {
        let (scheme, owners) = (self.service.form().scheme(), self.owners.join("/"));
        let separator = if self.prefix.is_root() { "" } else { "/" };
        let endpoint = self.endpoint.as_ref().map(|endpoint| format!("?endpoint={endpoint}")).unwrap_or_default();
        format!("{scheme}://{owners}{separator}{}{endpoint}", self.prefix)
    }

    /// The endpoint as the client needs it.
    fn server(&self) -> Option<String> {
        self.endpoint.as_ref().map(|endpoint| self.service.address(endpoint, &self.owners[0], self.path_style))
    }

    /// The client. It sends nothing yet.
    ///
    /// # Errors
    /// [`Invalid`] if a setting of the environment is invalid or missing.
    pub(super) fn open(&self) -> Result<Arc<dyn ObjectStore>, Invalid> {
        self.service.check(std::env::vars_os())?;
        let client = self.service.client(&self.owners, self.server(), self.region.as_deref(), self.path_style);
        client.map_err(|error| Invalid::new(format!("{}: {error}", self.name())))
    }
}

fn switch(name: &str, value: &str) -> Result<bool, Invalid> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Invalid::new(format!("{name}={value}: it is on or off"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> Result<Location, Invalid> {
        Location::parse(url, |_| None)
    }

    #[test]
    fn a_url_names_a_bucket_and_a_prefix() {
        for (url, name) in [
            ("s3://bucket/a/b/", "s3://bucket/a/b"),
            ("s3://bucket?skew=5s&poll=500ms&clock=off&verify=off", "s3://bucket"),
            ("s3://bucket/a%20b?region=eu-1", "s3://bucket/a b"),
            ("s3://bucket/a~b%40c/100%25", "s3://bucket/a~b@c/100%"),
            ("s3://b?endpoint=http://localhost:9000/&path_style=off", "s3://b?endpoint=http://localhost:9000"),
            ("s3://b?endpoint=http://minio&allow_http=on", "s3://b?endpoint=http://minio"),
            ("s3://b?endpoint=http://[::1]:9000", "s3://b?endpoint=http://[::1]:9000"),
            ("az://account/box/a/b?path_style=off", "az://account/box/a/b"),
            ("gs://bucket/订单", "gs://bucket/订单"),
        ] {
            let location = parse(url).unwrap();
            assert_eq!(location.name(), name);
        }
        let location = parse("s3://bucket?skew=5s&poll=50ms&timeout=1s&clock=off&verify=off").unwrap();
        assert_eq!((location.skew, location.timeout), (Duration::from_secs(5), Duration::from_secs(1)));
        assert!(!location.clock && !location.verify);
        assert_eq!(location.polls, RetryPlan::every(Duration::from_millis(50)));
    }

    #[test]
    fn the_endpoint_of_the_environment_counts_if_the_url_has_none() {
        let environment = |name: &str| (name == "AWS_ENDPOINT_URL").then(|| "https://h/".to_owned());
        let name = |url| Location::parse(url, environment).unwrap().name();
        assert_eq!(name("s3://b"), "s3://b?endpoint=https://h");
        assert_eq!(name("s3://b?endpoint=https://other"), "s3://b?endpoint=https://other");
        assert_eq!((name("az://a/b"), name("gs://b")), ("az://a/b".to_owned(), "gs://b".to_owned()));
        let plain = |_: &str| Some("http://h".to_owned());
        assert!(Location::parse("s3://b", plain).is_err());
    }

    #[test]
    fn a_url_that_is_not_understood_is_refused_by_name() {
        for (url, why) in [
            ("s3://", "is not complete"),
            ("az://account", "az://ACCOUNT/CONTAINER"),
            ("ftp://bucket", "gs://"),
            ("s3://key:secret@bucket", "environment"),
            ("s3://bucket/../x", "\"..\""),
            ("s3://bucket/%2e%2e", "\"..\""),
            ("s3://bucket/a%2fb", "\"a/b\""),
            ("s3://bucket?endpiont=x", "endpiont"),
            ("s3://bucket?clock=no", "on or off"),
            ("s3://bucket?skew=2", "write 500ms or 2s"),
            ("s3://bucket?poll=99999999s", "up to an hour"),
            ("s3://bucket?endpoint=minio:9000", "no URL"),
            ("s3://bucket?endpoint=https://user:secret@minio", "%40"),
            ("s3://bucket?endpoint=https://user:a/secret%40minio", "without credentials"),
            ("s3://bucket?endpoint=http://minio:9000", "allow_http=on"),
            ("s3://bucket?endpoint=http://127.0.0.1:99999", "no URL"),
            ("s3://bucket?endpoint=https://1.2.3.999", "no URL"),
            ("s3://bucket?endpoint=http://127.0.0.1:9000&path_style=off", "path_style=off needs"),
            ("s3://bucket?endpoint=https://h/a%20b", "no URL"),
            ("s3://bucket?endpoint=https://h%0d", "no URL"),
            ("s3://bucket?endpoint=https://h/?key=secret", "no URL"),
            ("s3://bucket?region=eu-1%0d", "region="),
            ("s3://bu cket", "\"bu cket\" cannot be the name"),
            ("az://acc%23ount/box", "\"acc#ount\" cannot be the name"),
            ("gs://b%c3%bccket", "cannot be the name"),
            ("s3://bucket?endpoint=http://127.0.0.1.example", "allow_http=on"),
            ("az://a/b?region=eu", "does not apply to az://"),
            ("gs://bucket?path_style=off", "does not apply to gs://"),
            ("az://account/box?sig=secret", "\"sig\""),
            ("s3://bucket/%ff", "UTF-8"),
        ] {
            let error = parse(url).unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
