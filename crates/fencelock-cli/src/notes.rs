//! The notes at the end of the program help and of its manual page.

use fencelock::backends::schemes;
use std::fmt::Write;

/// The backends, and examples.
pub(crate) fn backends() -> String {
    let mut text = "Backends:\n".to_owned();
    for scheme in schemes().iter().filter(|scheme| scheme.cross_process()) {
        for form in scheme.forms() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {:<28} {}", form.url, form.about);
        }
    }
    text + "\n" + EXAMPLES
}

/// All notes of the long help and of the manual page.
pub(crate) fn all() -> String {
    [&backends(), URL_OPTIONS, ENVIRONMENT, FILES].join("\n\n")
}

const EXAMPLES: &str = "\
Examples:
  fencelock run report -- ./report.sh      one at a time; others wait in a queue
  fencelock run -n backup -- ./backup.sh   skip if another runs (exit 75)
  fencelock run -w 5m --max-hold 2h etl -- make
                                           wait up to 5 min, run up to 2 h
  fencelock run -n --hold-for 50s --url redis://cache tick -- ./tick
                                           at most once a minute on 50 machines
  fencelock elect --value $HOSTNAME scheduler -- ./scheduler
                                           one leads; when it dies, another does
  fencelock list                           all held locks";

/// As in the table of docs/en/redis.md.
const URL_OPTIONS: &str = "\
URL options:
  redis://HOST?prefix=app:&timeout=300, also with redlock://
  prefix=P           prefix of every key, to share locks with other programs
  compat=LIBRARY     use the prefix of another library: redlock.net, pottery,
                     redis-semaphore, php-lock, laravel:PREFIX, shedlock:ENV
  timeout=MS         timeout of a connection or a reply; default 1000
  protocol=resp2     use RESP2 instead of RESP3
  push=off           disable push notifications: waiters only poll
  acks=N             N replicas must confirm each lock and renewal
  acks_timeout=MS    timeout of the replica confirmation; default timeout=
  ca=FILE            TLS: trust the CA certificates in this PEM file instead of
                     the system's
  cert=FILE, key=FILE
                     TLS: client certificate and private key, both PEM
  password_file=FILE read the password from the first line of this file
  quarantine=on      a server that may have lost its locks grants none until
                     they have expired; always on with redlock://
  max_ttl=MS         quarantine: the maximum TTL, and about the length of the
                     quarantine; default 60000
  trust_empty=true   quarantine: assume that a new server has lost no locks; for
                     tests";

/// The environment variables that the program reads or sets.
const ENVIRONMENT: &str = "\
Environment:
  FENCELOCK_URL      the backend, unless --url is given
  FENCELOCK_REQUIRE_URL
                     if it is 1, a command for which no URL is set is refused
  FENCELOCK_PASSWORD the password of each server whose URL has none
  FENCELOCK_KEY, FENCELOCK_HOLDER, FENCELOCK_FENCE
                     set for the command of `run` and `elect`: key, holder ID,
                     fencing token
  FENCELOCK_KEYS, FENCELOCK_HOLDERS, FENCELOCK_FENCES
                     the same for each of several keys, one in each line
  FENCELOCK_BACKEND, FENCELOCK_OUTER
                     set for the same command: the backend, and the locks that
                     fencelock runs under
  AWS_*, AZURE_*, GOOGLE_*
                     the credentials of object stores
  KUBECONFIG         the API server of Leases, as for `kubectl`
  NO_COLOR           disable colours";

/// The files that the program reads.
const FILES: &str = "\
Files:
  $XDG_CONFIG_HOME/fencelock.toml, or ~/.config/fencelock.toml
                     settings of the user: url, ttl, label, require_url
  /etc/fencelock.toml
                     settings of the system, for what the user does not set";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_lists_every_url_option_of_the_documentation() {
        let page = include_str!("../../../docs/en/redis.md");
        let (_, table) = page.split_once("## Options of the URL").unwrap();
        let table = table.lines().skip_while(|line| !line.starts_with('|'));
        let rows = table.skip(2).take_while(|line| line.starts_with('|'));
        let names: Vec<_> = rows.map(|row| row.split(['`', '=']).nth(1).unwrap()).collect();
        assert!(names.contains(&"prefix") && names.contains(&"trust_empty"), "{names:?}");
        for name in names {
            assert!(URL_OPTIONS.contains(&format!("\n  {name}=")), "{name}");
        }
    }
}
