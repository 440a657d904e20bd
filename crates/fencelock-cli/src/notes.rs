//! What stands below the help of the whole program, and in its manual page.

use fencelock::backends::schemes;
use std::fmt::Write;

/// The places, and examples.
pub(crate) fn places() -> String {
    let mut text = "Places where a lock can live:\n".to_owned();
    for scheme in schemes().iter().filter(|scheme| scheme.cross_process()) {
        for form in scheme.forms() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {:<28} {}", form.url, form.about);
        }
    }
    text + "\n" + EXAMPLES
}

/// The whole text below the long help and in the manual page.
pub(crate) fn all() -> String {
    [&places(), URL_OPTIONS, ENVIRONMENT].join("\n\n")
}

const EXAMPLES: &str = "\
Examples:
  fencelock run nightly-report -- ./report.sh        one at a time; others wait in line
  fencelock run -n backup -- backup --all            skip if another one runs (exit 75)
  fencelock run -w 5m --max-hold 2h etl -- make      wait up to 5 minutes, run up to 2 hours
  fencelock run -n --hold-for 50s --url redis://cache tick -- ./tick
                                                     at most once a minute from 50 machines' cron
  fencelock list                                     who holds what";

/// As in the table of docs/en/redis.md.
const URL_OPTIONS: &str = "\
URL options:
  redis://HOST?prefix=app:&timeout=300, also with redlock://
  prefix=P           put before every key, to share locks with programs that do so
  compat=LIBRARY     the prefix of another library: redlock.net, pottery, redis-semaphore, php-lock,
                     laravel:PREFIX, shedlock:ENV
  timeout=MS         longest wait for a connection or an answer; 1000 unless set
  protocol=resp2     do without RESP3
  push=off           do without wake-ups: waiters only poll
  acks=N             a lock or a renewal counts when N replicas have confirmed it
  acks_timeout=MS    longest wait for the replicas; as timeout= unless set
  ca=FILE            with TLS: trust the certificates in this PEM file instead of the system's
  cert=FILE, key=FILE
                     with TLS: the certificate that this client shows, and its private key, both PEM
  password_file=FILE the password is the first line of this file
  quarantine=on      keep a server that may have forgotten its locks from granting any; always so
                     with redlock://
  max_ttl=MS         with a quarantine: the longest TTL, and so about its length; 60000 unless set
  trust_empty=true   with a quarantine: an unknown server has forgotten nothing; for tests";

/// The variables that are read or set.
const ENVIRONMENT: &str = "\
Environment:
  FENCELOCK_URL      where the lock lives, unless --url says so
  FENCELOCK_PASSWORD the password of every server whose URL has none
  FENCELOCK_KEY, FENCELOCK_HOLDER, FENCELOCK_FENCE
                     set for the command of `run`: the key, the proof, the fencing token
  FENCELOCK_PLACE, FENCELOCK_OUTER
                     set for it too: where the lock lives, and the locks that `run` runs under
  NO_COLOR           no colours";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_has_every_option_of_a_url_that_the_page_has() {
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
