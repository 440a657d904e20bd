//! `redis+sentinel://[user:password@]host[:port],...,/MASTER[/db]`.

use super::hosts::{listed, shown};
use super::options::percent_decoded;
use fencelock_core::Invalid;

const PORT: u16 = 26379;
/// More sentinels than any deployment has. Each needs a connection.
const SENTINELS_MAX: usize = 31;

/// The parts of a URL before its options.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SentinelUrl {
    pub(crate) tls: bool,
    /// Host without brackets, and port.
    pub(crate) hosts: Vec<(String, u16)>,
    pub(crate) master: String,
    /// The URL of a Redis server at the first host, with the credentials and the database of the master.
    pub(crate) server: String,
}

impl SentinelUrl {
    /// `None` for a URL of another scheme. Errors do not contain the URL, which may include a password.
    pub(crate) fn parse(base: &str) -> Result<Option<Self>, Invalid> {
        let (tls, rest) = match base.split_once("://") {
            Some(("redis+sentinel", rest)) => (false, rest),
            Some(("rediss+sentinel", rest)) => (true, rest),
            _ => return Ok(None),
        };
        let (authority, path) = rest.split_once('/').ok_or_else(form)?;
        let sentinels = ("sentinel", SENTINELS_MAX, ": it would have two votes");
        let (login, hosts) = listed(authority, PORT, sentinels, form)?;
        let (master, db) = path.split_once('/').unwrap_or((path, ""));
        let master = percent_decoded(master)?;
        if master.is_empty() || master.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(form());
        }
        let scheme = if tls { "rediss" } else { "redis" };
        let server = format!("{scheme}://{login}{}/{db}", shown(&hosts[0]));
        Ok(Some(Self { tls, hosts, master, server }))
    }

    /// The URL without credentials, in canonical form.
    pub(crate) fn name(&self, db: i64) -> String {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let hosts: Vec<_> = self.hosts.iter().map(shown).collect();
        let db = if db == 0 { String::new() } else { format!("/{db}") };
        format!("{scheme}+sentinel://{}/{}{db}", hosts.join(","), self.master)
    }

    /// The master and its sentinels, in an order that does not depend on the URL: for clients with other sentinels, a majority
    /// could name another master.
    pub(crate) fn deployment(&self) -> String {
        let mut hosts: Vec<_> = self.hosts.iter().map(shown).collect();
        hosts.sort_unstable();
        format!("{} of the sentinels {}", self.master, hosts.join(","))
    }
}

fn form() -> Invalid {
    Invalid::new(
        "a URL with sentinels names them and the master, like this: redis+sentinel://one:26379,two,three/mymaster, with /DB at its \
         end for another database than 0; in a user or a password, write @ : / # ? as %40 %3A %2F %23 %3F",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> SentinelUrl {
        SentinelUrl::parse(url).unwrap().unwrap()
    }

    #[test]
    fn a_url_names_sentinels_a_master_and_a_database() {
        let url = parsed("redis+sentinel://u:p%2F@S1,s2:7,[::1],[fe80::2]:9/mymaster/3");
        let hosts = [("s1", 26379), ("s2", 7), ("::1", 26379), ("fe80::2", 9)];
        assert_eq!(url.hosts, hosts.map(|(host, port)| (host.to_owned(), port)));
        assert_eq!((url.master.as_str(), url.tls), ("mymaster", false));
        assert_eq!(url.server, "redis://u:p%2F@s1:26379/3");
        assert_eq!(url.name(3), "redis+sentinel://s1:26379,s2:7,[::1]:26379,[fe80::2]:9/mymaster/3");
        assert_eq!(parsed("rediss+sentinel://a/m").server, "rediss://a:26379/");
    }

    #[test]
    fn the_order_of_the_sentinels_makes_no_difference() {
        assert_eq!(
            parsed("redis+sentinel://a,b:2/m").deployment(),
            parsed("redis+sentinel://B:2,a:26379/m").deployment()
        );
        assert_ne!(parsed("redis+sentinel://a,b/m").deployment(), parsed("redis+sentinel://a,c/m").deployment());
    }

    #[test]
    fn an_incomplete_url_is_refused_without_its_password() {
        for rest in [
            "",
            "a",
            "a,b",
            "a,,b/m",
            "a/",
            "/m",
            "a:0/m",
            "a:x/m",
            "a:70000/m",
            "[::1/m",
            "[::1]7/m",
            "a b/m",
            "a/m%20n",
            "u:s3cret@/m",
        ] {
            let error = SentinelUrl::parse(&format!("redis+sentinel://{rest}")).unwrap_err().to_string();
            assert!(!error.contains("s3"), "{rest}: {error}");
            assert!(error.contains("/mymaster") || error.contains("%25"), "{rest}: {error}");
        }
        assert!(SentinelUrl::parse("redis+sentinel://a,b,A/m").unwrap_err().to_string().contains("twice"));
        let many: Vec<_> = (0..40).map(|n| format!("h{n}")).collect();
        assert!(SentinelUrl::parse(&format!("redis+sentinel://{}/m", many.join(","))).is_err());
        assert_eq!(SentinelUrl::parse("redis://a/m"), Ok(None));
    }
}
