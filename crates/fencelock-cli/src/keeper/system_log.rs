use rustix::process::getpid;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

/// The socket of the system log (syslog(3)).
const SOCKET: &str = "/dev/log";
/// A warning of a user process.
const PRIORITY: u32 = 1 << 3 | 4;

/// Writes a warning to the system log, where there is one: a keeper has no other output.
pub(super) fn warn(text: &str) {
    send(text, Path::new(SOCKET));
}

fn send(text: &str, socket: &Path) {
    let Ok(sender) = UnixDatagram::unbound() else { return };
    // A full log must not delay what follows.
    if sender.set_nonblocking(true).is_ok() {
        let process = getpid().as_raw_nonzero();
        let _ = sender.send_to(format!("<{PRIORITY}>fencelock[{process}]: {text}").as_bytes(), socket);
    }
}

#[cfg(test)]
mod system_log_tests {
    use super::*;

    #[test]
    fn the_log_receives_a_warning_and_a_missing_log_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        send("lost", &path);
        let log = UnixDatagram::bind(&path).unwrap();
        send("k: lost", &path);
        let mut line = [0; 64];
        let length = log.recv(&mut line).unwrap();
        let wanted = format!("<12>fencelock[{}]: k: lost", std::process::id());
        assert_eq!(std::str::from_utf8(&line[..length]), Ok(&*wanted));
    }
}
