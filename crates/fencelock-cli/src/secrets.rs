//! Passwords: their sources, and which processes receive them.

use crate::exit::{Exit, Failure};
use fencelock::backends::{Scheme, scheme_of};

const URL: &str = "FENCELOCK_URL";
const PASSWORD: &str = "FENCELOCK_PASSWORD";

/// Adds the password of the environment to every server of `url` that has none.
pub(crate) fn complete(url: String) -> Result<String, Failure> {
    match std::env::var(PASSWORD) {
        Ok(password) if !without_line_end(&password).is_empty() => with_password(&url, without_line_end(&password)),
        _ => Ok(url),
    }
}

/// A secret that was made from a file often ends as the file does, which `password_file=` ignores as well.
fn without_line_end(password: &str) -> &str {
    let line = password.strip_suffix('\n').unwrap_or(password);
    line.strip_suffix('\r').unwrap_or(line)
}

/// The variables that are removed from the environment of a command.
pub(crate) fn withheld() -> Vec<&'static str> {
    let url = std::env::var_os(URL).is_some_and(|url| has_password(&url.to_string_lossy()));
    [PASSWORD].into_iter().chain(url.then_some(URL)).collect()
}

fn with_password(url: &str, password: &str) -> Result<String, Failure> {
    let scheme = scheme_of(url).map_err(|invalid| Failure::new(Exit::Usage, invalid))?;
    if !has_servers(&*scheme) {
        return Ok(url.to_owned());
    }
    let with = scheme.with_password(url, password);
    with.map_err(|invalid| Failure::new(Exit::Usage, format!("{PASSWORD} cannot be used: {invalid}; unset it")))
}

/// Whether its URLs name a server, which may have a password.
fn has_servers(scheme: &dyn Scheme) -> bool {
    scheme.forms().iter().any(|form| form.url.contains("://"))
}

/// A URL that cannot be parsed may have one.
pub(crate) fn has_password(url: &str) -> bool {
    if scheme_of(url).is_ok_and(|scheme| !has_servers(&*scheme)) {
        return false;
    }
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.rsplit_once('@').is_some_and(|(users, _)| users.contains(':'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fencelock::backends::{Connecting, UrlForm, schemes};
    use fencelock::{Invalid, register};

    /// Safes without a method for passwords beside the URL.
    #[derive(Debug)]
    struct Safes;

    impl Scheme for Safes {
        fn forms(&self) -> &[UrlForm] {
            const { &[UrlForm::new("safe://HOST", "a scheme of another crate")] }
        }

        fn connect<'a>(&'a self, _: &'a str) -> Connecting<'a> {
            Box::pin(async { Err(Invalid::new("closed").into()) })
        }
    }

    #[test]
    fn a_password_beside_the_url_is_used_or_refused_but_never_ignored() {
        register(Safes).unwrap();
        let with = |url| with_password(url, "s3cret").map_err(|failure| failure.message);
        assert_eq!(with("redis://u@h").as_deref(), Ok("redis://u:s3cret@h"));
        for form in schemes().iter().flat_map(|scheme| scheme.forms()).filter(|form| form.url.contains("://")) {
            assert!(with(form.url).map_or(true, |url| url.contains("s3cret")), "{form:?}");
        }
        let refused = with("safe://h").unwrap_err();
        assert!(refused.contains("FENCELOCK_PASSWORD") && refused.contains("safe: takes no password"), "{refused}");
        assert!(with("nowhere:x").unwrap_err().contains("unknown scheme"));
    }

    #[test]
    fn the_end_of_the_line_is_not_part_of_the_password() {
        for text in ["s3cret", "s3cret\n", "s3cret\r\n"] {
            assert_eq!(without_line_end(text), "s3cret");
        }
        assert_eq!((without_line_end("\n"), without_line_end("a\nb ")), ("", "a\nb "));
    }

    #[test]
    fn a_scheme_without_passwords_is_not_concerned() {
        for url in ["file:/tmp/x", "memory:"] {
            assert_eq!(with_password(url, "s3cret").as_deref(), Ok(url));
        }
    }

    #[test]
    fn a_url_that_may_have_a_password_is_known() {
        for url in ["redis://:p@h", "redis://u:p@h/1", "redlock://a,u:p@b", "redis://:p?w@h", "u:p@h"] {
            assert!(has_password(url), "{url}");
        }
        for url in
            ["redis://h:1", "redis://u@h", "redlock://a:1,b:2", "file:/home/a@b", "redis://h?password_file=/p", ""]
        {
            assert!(!has_password(url), "{url}");
        }
    }
}
