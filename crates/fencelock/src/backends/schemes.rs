//! The schemes of this process: built-in and registered ones.

#[cfg(all(feature = "file", unix))]
use super::file::scheme::FileScheme;
use super::memory::MemoryScheme;
use fencelock_core::{Invalid, Scheme, is_slip};
#[cfg(feature = "postgres")]
use fencelock_postgres::PostgresScheme;
#[cfg(feature = "redis-plain")]
use fencelock_redis::{ClusterScheme, QuorumScheme, RedisScheme};
#[cfg(feature = "kube")]
use fencelock_register::kube::KubeLeases;
#[cfg(feature = "object-store")]
use fencelock_register::objects::ObjectStores;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// All schemes of this crate. A new backend adds a line here; the rest is in its [`Scheme`].
fn built_in() -> Vec<Arc<dyn Scheme>> {
    vec![
        Arc::new(MemoryScheme),
        #[cfg(all(feature = "file", unix))]
        Arc::new(FileScheme),
        #[cfg(feature = "redis-plain")]
        Arc::new(RedisScheme),
        #[cfg(feature = "redis-plain")]
        Arc::new(ClusterScheme),
        #[cfg(feature = "redis-plain")]
        Arc::new(QuorumScheme),
        #[cfg(feature = "postgres")]
        Arc::new(PostgresScheme),
        #[cfg(feature = "object-store")]
        Arc::new(ObjectStores),
        #[cfg(feature = "kube")]
        Arc::new(KubeLeases),
    ]
}

/// The feature of a scheme of this crate that is not compiled in.
fn missing_feature(scheme: &str) -> Option<&'static str> {
    match scheme.split('+').next()? {
        "file" if !cfg!(feature = "file") => Some("file"),
        "redis" | "rediss" | "redlock" if !cfg!(feature = "redis-plain") => Some("redis"),
        "s3" | "az" | "gs" if !cfg!(feature = "object-store") => Some("object-store"),
        "kube-lease" if !cfg!(feature = "kube") => Some("kube"),
        "postgres" | "postgresql" if !cfg!(feature = "postgres") => Some("postgres"),
        _ => None,
    }
}

static SCHEMES: LazyLock<RwLock<Vec<Arc<dyn Scheme>>>> = LazyLock::new(|| RwLock::new(built_in()));

/// Registers a scheme in this process: from then on [`connect`](crate::backends::connect) and its callers accept its URLs.
///
/// Register a scheme before the first URL of it is used, at best as `main` begins. It stays for the life of the process and is
/// never replaced, so that a URL means the same in every part of a program.
///
/// ```
/// use fencelock::backends::{Connecting, Memory, Scheme, UrlForm, connect, register};
///
/// #[derive(Debug)]
/// struct Shelf;
///
/// impl Scheme for Shelf {
///     fn forms(&self) -> &[UrlForm] {
///         const { &[UrlForm::new("shelf:NAME", "a shelf of this process")] }
///     }
///
///     fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
///         Box::pin(async move { Ok(Memory::named(url) as _) })
///     }
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// register(Shelf)?;
/// assert_eq!(connect("shelf:top").await?.name(), "memory:shelf:top");
/// # Ok::<(), fencelock::backends::ConnectError>(())
/// # }).unwrap();
/// ```
///
/// # Errors
/// [`Invalid`] if there is no form, a form has no scheme, or a scheme is known already.
pub fn register(scheme: impl Scheme) -> Result<(), Invalid> {
    let mut schemes = SCHEMES.write().unwrap_or_else(PoisonError::into_inner);
    if scheme.forms().is_empty() {
        return Err(Invalid::new("a scheme must have at least one URL form"));
    }
    for form in scheme.forms() {
        let name = form.scheme();
        if !is_name(name) || name.len() == form.url.len() {
            return Err(Invalid::new(format!(
                "{:?} is not a URL form: expected a lowercase scheme (letters, digits, +, - and .) followed by ':'",
                form.url
            )));
        }
        if has(&schemes, name) {
            return Err(Invalid::new(format!("the scheme {name}: is registered already and cannot be replaced")));
        }
    }
    schemes.push(Arc::new(scheme));
    Ok(())
}

/// The schemes that are known to this process, those of this crate first.
pub fn schemes() -> Vec<Arc<dyn Scheme>> {
    SCHEMES.read().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The scheme of this URL.
///
/// # Errors
/// [`Invalid`] for an empty URL and a scheme that is not known; it lists those that are.
pub fn scheme_of(url: &str) -> Result<Arc<dyn Scheme>, Invalid> {
    // A variable that was not set makes an empty URL. No backend is meant by it, and none is guessed.
    if url.trim().is_empty() {
        return Err(Invalid::new("the URL is empty: it must name the backend, as in redis://HOST or file:DIR"));
    }
    // Anything but the name of a scheme may contain a password, and is not repeated: `s3cret@host:6379`.
    let name = url.split_once(':').map(|(name, _)| name).filter(|name| is_name(&name.to_ascii_lowercase()));
    let Some(name) = name else {
        return Err(Invalid::new(format!("the URL has no scheme; supported: {}", all_forms())));
    };
    let found = schemes().into_iter().find(|scheme| scheme.forms().iter().any(|form| form.scheme() == name));
    found.ok_or_else(|| unknown_scheme(name))
}

fn all_forms() -> String {
    let schemes = schemes();
    schemes.iter().flat_map(|scheme| scheme.forms()).map(|form| form.url).collect::<Vec<_>>().join(", ")
}

/// RFC 3986, without capitals.
fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c))
}

fn has(schemes: &[Arc<dyn Scheme>], name: &str) -> bool {
    schemes.iter().any(|scheme| scheme.forms().iter().any(|form| form.scheme() == name))
}

fn unknown_scheme(name: &str) -> Invalid {
    let schemes = schemes();
    let forms = all_forms();
    Invalid::new(match missing_feature(name) {
        Some(feature) => format!(
            "{name}: is not compiled in: it needs the feature {feature:?} of fencelock; supported without it: {forms}"
        ),
        None if has(&schemes, &name.to_ascii_lowercase()) => {
            format!("{name:?}: a scheme is written in lower case, as in {}:", name.to_ascii_lowercase())
        }
        None => {
            let mut names = schemes.iter().flat_map(|scheme| scheme.forms());
            match names.find(|form| is_slip(name, form.scheme())) {
                Some(meant) => format!("unknown scheme {name:?}; did you mean {}?", meant.url),
                None => format!("unknown scheme {name:?}; supported: {forms}"),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock_core::{Connecting, UrlForm};

    #[derive(Debug)]
    struct Named(&'static [UrlForm]);

    impl Scheme for Named {
        fn forms(&self) -> &[UrlForm] {
            self.0
        }

        fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
            Box::pin(async move { Err(Invalid::new(url).into()) })
        }
    }

    #[test]
    fn no_scheme_is_replaced() {
        let refused = register(Named(const { &[UrlForm::new("memory:MINE", "")] })).unwrap_err();
        assert!(refused.to_string().contains("registered already"), "{refused}");
    }

    #[test]
    fn the_schemes_of_this_crate_are_there_or_their_feature_is_named() {
        const REDIS: [&str; 9] = [
            "redis",
            "rediss",
            "redis+unix",
            "redis+sentinel",
            "rediss+sentinel",
            "redis+cluster",
            "rediss+cluster",
            "redlock",
            "redlock+tls",
        ];
        let remote = REDIS.map(|scheme| (scheme, cfg!(feature = "redis-plain")));
        let objects = ["s3", "az", "gs"].map(|scheme| (scheme, cfg!(feature = "object-store")));
        let others = [
            ("file", cfg!(feature = "file")),
            ("kube-lease", cfg!(feature = "kube")),
            ("postgres", cfg!(feature = "postgres")),
        ];
        for (scheme, on) in remote.into_iter().chain(objects).chain(others) {
            match scheme_of(&format!("{scheme}:x")) {
                Ok(_) => assert!(on, "{scheme}"),
                Err(error) => assert!(!on && error.to_string().contains("not compiled in"), "{scheme}: {error}"),
            }
        }
    }

    #[test]
    fn a_scheme_has_a_name() {
        const NAMELESS: [UrlForm; 5] = [
            UrlForm::new("nocolon", ""),
            UrlForm::new("", ""),
            UrlForm::new(":x", ""),
            UrlForm::new("Loud://x", ""),
            UrlForm::new("1st:x", ""),
        ];
        for form in NAMELESS.chunks(1) {
            // Each is leaked, for the tests of one process only.
            let refused = register(Named(Box::leak(form.to_vec().into_boxed_slice())));
            assert!(refused.unwrap_err().to_string().contains("is not a URL form"), "{form:?}");
        }
        assert!(register(Named(&[])).is_err());
    }

    #[test]
    fn every_built_in_scheme_has_names_of_its_own() {
        let forms: Vec<_> = built_in().iter().flat_map(|scheme| scheme.forms().to_vec()).collect();
        for (number, form) in forms.iter().enumerate() {
            assert!(is_name(form.scheme()) && !form.about.is_empty(), "{form:?}");
            assert!(forms[..number].iter().all(|other| other.scheme() != form.scheme()), "twice: {form:?}");
        }
    }
}
