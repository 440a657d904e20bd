//! A store of objects in this process, with clients in several others.

use crate::seed;
use fencelock_testkit::ObjectServer;
use std::process::Command;

#[test]
#[ignore = "a round of all faults takes a minute; scripts/test-servers runs it"]
fn a_store_of_objects_violates_no_guarantee() {
    let (server, dir) = (ObjectServer::start(), tempfile::tempdir().unwrap());
    // The credentials of a store come from the environment, which this program cannot change safely.
    let mut chaos = Command::new(env!("CARGO_BIN_EXE_fencelock-chaos"));
    chaos.args(["--seed", &seed().to_string(), "--objects", &server.url("locks/chaos", "")]);
    chaos.arg("--out").arg(dir.path()).envs([("AWS_ACCESS_KEY_ID", "any"), ("AWS_SECRET_ACCESS_KEY", "any-secret")]);
    let output = chaos.env("AWS_REGION", "us-east-1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    assert!(server.names().iter().any(|name| name == "chaos/control-forgotten.lock"));
}
