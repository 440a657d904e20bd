//! A crate that is not ours adds a backend of its own, and programs name it in a URL.
#![allow(missing_docs, clippy::unwrap_used)]

use fencelock::backends::{
    ConnectError, Connecting, Memory, Scheme, UrlForm, connect, init, lazy, on_demand, scheme_of,
};
use fencelock::{Client, Error, Invalid, Unknown, contract::Fault, register};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

/// Shelves by name: `shelf://NAME`, and `shelves:` for a backend that is away.
#[derive(Debug, Default)]
struct Shelves(Mutex<HashMap<String, Arc<Memory>>>);

impl Scheme for Shelves {
    fn forms(&self) -> &[UrlForm] {
        const { &[UrlForm::new("shelf://NAME", "readers of one shelf"), UrlForm::new("shelves:", "nobody")] }
    }

    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move {
            let Some(name) = url.strip_prefix("shelf://") else {
                return Err(Unknown::new(url, Fault::Unreachable, "there is only one shelf").into());
            };
            if name.is_empty() {
                return Err(Invalid::new("shelf: needs a name, as in shelf://top").into());
            }
            Ok(Arc::clone(self.0.lock().unwrap().entry(name.to_owned()).or_default()) as _)
        })
    }
}

fn registered() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| register(Shelves::default()).unwrap());
}

#[tokio::test]
async fn locks_of_a_registered_scheme_exclude_each_other() {
    registered();
    let (one, other) = (Client::connect("shelf://top").await.unwrap(), Client::connect("shelf://top").await.unwrap());
    let guard = one.lock("atlas").await.unwrap();
    assert!(other.lock("atlas").try_acquire().await.unwrap().is_none());
    assert!(Client::connect("shelf://bottom").await.unwrap().lock("atlas").try_acquire().await.unwrap().is_some());
    let fence = guard.fencing_token();
    guard.release().await.unwrap();
    assert!(other.lock("atlas").await.unwrap().fencing_token() > fence);
}

#[tokio::test]
async fn settings_and_the_ways_to_connect_work_with_a_registered_scheme() {
    registered();
    let client = Client::builder().sharing(false).connect("shelf://ways").await.unwrap();
    let _guard = client.lock("atlas").await.unwrap();
    for backend in [lazy("shelf://ways").await.unwrap(), on_demand("shelf://ways").await.unwrap()] {
        let client = Client::builder().backend(backend).unwrap();
        assert!(client.lock("atlas").wait(Duration::ZERO).await.unwrap_err().is_busy());
    }
}

#[test]
fn the_blocking_client_takes_a_registered_scheme() {
    registered();
    let client = fencelock::blocking::Client::connect("shelf://blocking").unwrap();
    let guard = client.lock("atlas").acquire().unwrap();
    assert!(client.lock("atlas").try_acquire().unwrap().is_none());
    guard.release().unwrap();
}

#[tokio::test]
async fn errors_of_a_registered_scheme_are_those_of_every_backend() {
    registered();
    assert!(
        matches!(Client::connect("shelf://").await, Err(Error::Config(why)) if why.to_string().contains("needs a name"))
    );
    assert!(Client::connect("shelves:").await.unwrap_err().is_unreachable());
    let guess = Client::connect("shelv://top").await.unwrap_err().to_string();
    assert!(guess.ends_with("unknown scheme \"shelv\"; did you mean shelf://NAME?"), "{guess}");
    let error = Client::connect("nowhere://top").await.unwrap_err();
    assert!(error.is_config());
    for form in ["memory:[NAME]", "redis://HOST", "shelf://NAME", "\"nowhere\""] {
        assert!(error.to_string().contains(form), "{error}");
    }
}

#[tokio::test]
async fn a_scheme_that_needs_no_init_says_so() {
    registered();
    let error = init("shelf://top", false).await.unwrap_err().to_string();
    assert!(error.starts_with("shelf: ") && error.contains("nothing to set up"), "{error}");
}

#[test]
fn the_identity_of_a_registered_scheme_is_the_name_of_its_backend() {
    registered();
    assert_eq!(scheme_of("shelf://top").unwrap().identity("shelf://top?light=on", "shelf://top"), "shelf://top");
}

#[cfg(feature = "redis")]
#[test]
fn a_registered_scheme_names_no_redis_server() {
    registered();
    assert!(fencelock::backends::servers("shelf://top").unwrap().is_empty());
}

#[test]
fn a_password_beside_the_url_is_refused_unless_the_scheme_takes_it() {
    registered();
    let scheme = scheme_of("shelf://top").unwrap();
    let refused = scheme.with_password("shelf://top", "s3cret").unwrap_err().to_string();
    assert!(refused.starts_with("shelf: ") && !refused.contains("s3cret"), "{refused}");
}

#[test]
fn a_scheme_is_registered_once() {
    registered();
    let again = register(Shelves::default()).unwrap_err().to_string();
    assert!(again.contains("shelf: is registered already"), "{again}");
    assert!(scheme_of("shelf://top").unwrap().cross_process());
}

#[tokio::test]
async fn a_url_with_a_small_mistake_says_what_to_write() {
    let hint = async |url| Client::connect(url).await.unwrap_err().to_string();
    assert!(hint("MEMORY:").await.contains("memory:"), "lower case");
    for url in ["s3cret@host:6379", "redis", "s3cret", "://s3cret", "//u:s3cret@h"] {
        let hint = hint(url).await;
        assert!(hint.starts_with("the URL has no scheme; supported: ") && !hint.contains("s3cret"), "{url}: {hint}");
    }
    if cfg!(feature = "redis") {
        for url in ["redis:/h", "redis:h", "redis:"] {
            assert!(hint(url).await.contains("redis://HOST"), "{url}");
        }
    }
    if cfg!(feature = "file") {
        assert!(hint("file://x").await.contains("file:DIR"), "a host");
    }
}

/// The URLs of each form of this crate with a host, with a part of a password where the host or the path is expected.
fn with_a_password_that_is_not_escaped() -> Vec<String> {
    let forms: Vec<_> = fencelock::backends::schemes().iter().flat_map(|scheme| scheme.forms().to_vec()).collect();
    let remote = forms.into_iter().filter(|form| form.url.contains("://") && form.scheme() != "shelf");
    let with = |form: UrlForm| {
        ["usr7:Hunter2/x@", "usr7:6379/x@", "usr7:Hunter2#x@", "usr7:6379?x=1@", "usr7:Hunter2/x@y,", "usr7:Hunter2%40"]
            .map(|login| form.url.replacen("://", &format!("://{login}"), 1))
    };
    remote.flat_map(with).collect()
}

#[tokio::test]
async fn a_part_of_a_password_is_neither_looked_up_nor_shown() {
    let urls = with_a_password_that_is_not_escaped();
    assert!(urls.len() >= 6 * 14, "every scheme: {urls:?}");
    for url in &urls {
        let refused = [connect(url).await.err(), lazy(url).await.err(), on_demand(url).await.err()];
        let servers = fencelock::backends::servers(url);
        for error in refused {
            let Some(ConnectError::Url(refused)) = error else { panic!("{url}: {error:?}") };
            let text = refused.to_string();
            let shows = ["usr7", "Hunter2", "6379", "x@", "x=1", "HOST"].iter().any(|part| text.contains(part));
            assert!(!shows && text.contains("%40"), "{url}: {text}");
        }
        assert!(servers.is_err() || servers.is_ok_and(|servers| servers.is_empty()), "{url}");
    }
}

#[tokio::test]
async fn an_at_in_a_login_a_query_or_the_path_of_a_socket_is_accepted() {
    for url in [
        "redis://user@server:p@h/1?prefix=a@b",
        "redis+unix://u:p@/run/a@b.sock",
        "redlock://a:1,u:p@b,u:q@c",
        "s3://bucket/a%40b",
    ] {
        assert!(lazy(url).await.is_ok(), "{url}");
    }
}
