//! Shared locks on a quorum of three servers.

use crate::place::Place;
use crate::running::{Running, wait_until};
use crate::test::Test;
use fencelock_testkit::{RedisServer, redlock_url, servers_or_skip};

struct OnServers {
    place: Place,
    url: String,
    servers: Vec<RedisServer>,
}

impl OnServers {
    fn start() -> Option<Self> {
        let servers = servers_or_skip(3)?;
        let quorum = Self { place: Place::files(), url: redlock_url(&servers, ""), servers };
        quorum.test("init --trust-empty").ok();
        Some(quorum)
    }

    fn test(&self, line: &str) -> Test<'_> {
        Test::new(&self.place, line).env("FENCELOCK_URL", &self.url)
    }

    /// A command that reads until it must end.
    fn reader(&self, label: &str) -> Running {
        let script = "echo ready $FENCELOCK_MODE; read _";
        let options = format!("-s --ttl 5s --label {label} k");
        let mut running = Test::script(&self.place, &options, script).env("FENCELOCK_URL", &self.url).start();
        running.wait_for("ready shared");
        running
    }

    fn status(&self) -> String {
        self.test("status k").output().stdout
    }
}

#[test]
fn readers_share_a_quorum_with_a_server_that_dies_and_a_writer_waits_for_them() {
    let Some(mut quorum) = OnServers::start() else { return };
    let (mut one, mut two) = (quorum.reader("one"), quorum.reader("two"));
    let status = quorum.status();
    assert!(status.contains("(one)") && status.contains("(two)"), "{status}");
    assert_eq!(quorum.test("run -q -n k -- true").output().status, 75);
    quorum.servers[0].kill();
    let status = quorum.status();
    assert!(status.contains("(one)") && status.contains("(two)"), "{status}");
    let script = "echo written";
    let writer = Test::script(&quorum.place, "-q k", script).env("FENCELOCK_URL", &quorum.url).start();
    for reader in [&mut one, &mut two] {
        reader.say("\n");
    }
    assert_eq!((one.end().status, two.end().status), (0, 0));
    let output = writer.end();
    assert_eq!((output.status, output.stdout.as_str()), (0, "written\n"), "{}", output.stderr);
}

#[test]
fn a_reader_that_is_broken_ends_and_the_other_reads_on() {
    let Some(quorum) = OnServers::start() else { return };
    let (one, mut two) = (quorum.reader("one"), quorum.reader("two"));
    let json = quorum.test("status --json k").output().stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let holders = json["holders"].as_array().unwrap();
    let id = |label: &str| {
        let holder = holders.iter().find(|holder| holder["owner"]["label"] == label);
        holder.unwrap_or_else(|| panic!("{json:#}"))["holder_prefix"].as_str().unwrap().to_owned()
    };
    let output = quorum.test(&format!("break --yes --holder {} k", id("one"))).output();
    assert_eq!(output.status, 0, "{}{}", output.stdout, output.stderr);
    assert_eq!(one.end().status, 76);
    wait_until("one reader to be left", || {
        let status = quorum.status();
        (status.contains("(two)") && !status.contains("(one)")).then_some(())
    });
    two.say("\n");
    assert_eq!(two.end().status, 0);
}

#[test]
fn doctor_names_the_modes_of_a_quorum_and_what_it_refuses() {
    let Some(quorum) = OnServers::start() else { return };
    let output = quorum.test("doctor").output();
    let modes = output.stdout.lines().find(|line| line.contains("modes")).unwrap_or_default();
    assert!(modes.contains("shared") && !modes.contains("semaphore"), "{}", output.stdout);
    assert!(
        modes.contains("slots (--slots), several keys, elections (elect), once per window (--once-per)"),
        "{modes}"
    );
    let refused: Vec<_> = output.stdout.lines().skip_while(|line| !line.contains("refused")).take(2).collect();
    assert!(
        refused[0].contains("semaphores (--permits)") && refused[1].contains("-> use slots (--slots)"),
        "{refused:?}"
    );
}
