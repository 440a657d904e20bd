//! Files that a URL refers to: certificates, keys and passwords.

use crate::tls;
use crate::tls::Certificates;
use crate::url::password::{FileOptions, read};
use fencelock_core::{Fault, Invalid, lock};
use redis::{ConnectionInfo, RedisResult};
use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

const PASSWORD_MAX: u64 = 1 << 12;

/// The files of a URL. They are read for each connection, because they are replaced while the client runs.
#[derive(Debug)]
pub(crate) struct SecretFiles {
    options: FileOptions,
    /// What was read last. It is used while a file cannot be read: some are removed after the start, or rewritten in place.
    last: Mutex<Secrets>,
    /// A server has accepted the password.
    was_accepted: AtomicBool,
}

#[derive(Clone)]
struct Secrets {
    password: Option<String>,
    certificates: Option<Certificates>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}

impl SecretFiles {
    /// Reads all files.
    pub(crate) fn new(options: FileOptions) -> Result<Self, Invalid> {
        let last = Mutex::new(options.read()?);
        Ok(Self { options: options.absolute(), last, was_accepted: AtomicBool::new(false) })
    }

    /// A client with the present content of the files.
    pub(crate) fn client(&self, info: ConnectionInfo) -> RedisResult<redis::Client> {
        let Secrets { password, certificates } = self.current();
        let info = match password {
            Some(password) => {
                let settings = info.redis_settings().clone().set_password(password);
                info.set_redis_settings(settings)
            }
            None => info,
        };
        tls::client(info, certificates)
    }

    /// To be called after a login.
    pub(crate) fn accept(&self) {
        self.was_accepted.store(true, Ordering::Relaxed);
    }

    /// The kind of a fault at a login. Where passwords are changed, the server is usually changed first and the file a moment later:
    /// if the server accepted the password of a file before, a retry helps.
    pub(crate) fn kind(&self, fault: Fault) -> Fault {
        let may_change = self.options.password.is_some() && self.was_accepted.load(Ordering::Relaxed);
        if may_change && fault == Fault::Denied { Fault::Revoked } else { fault }
    }

    fn current(&self) -> Secrets {
        let mut last = lock(&self.last);
        match self.options.read() {
            Ok(secrets) => *last = secrets,
            Err(invalid) => tracing::warn!("{invalid}; its last content is used"),
        }
        last.clone()
    }
}

impl FileOptions {
    /// The same files after a change of the working directory.
    fn absolute(mut self) -> Self {
        let password = self.password.as_mut().map(|(_, file)| file);
        let files = [self.ca.as_mut(), self.cert.as_mut(), self.key.as_mut(), password];
        for file in files.into_iter().flatten() {
            if let Some(absolute) = std::path::absolute(&*file).ok().and_then(|path| path.to_str().map(str::to_owned)) {
                *file = absolute;
            }
        }
        self
    }

    fn read(&self) -> Result<Secrets, Invalid> {
        let password = self.password.as_ref().map(|(option, file)| password(option, file)).transpose()?;
        let certificates = tls::certificates(self)?;
        Ok(Secrets { password, certificates })
    }
}

/// The first line of the file of an option.
fn password(option: &str, file: &str) -> Result<String, Invalid> {
    let bytes = read(option, file, PASSWORD_MAX)?;
    let text = String::from_utf8(bytes).map_err(|_| Invalid::new(format!("{option}={file} is not UTF-8")))?;
    let password = text.lines().next().unwrap_or_default();
    if password.is_empty() {
        return Err(Invalid::new(format!("{option}={file} has no password in its first line")));
    }
    Ok(password.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use redis::IntoConnectionInfo;

    #[test]
    fn a_password_is_the_first_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password").display().to_string();
        let written = |text: &[u8]| {
            std::fs::write(&file, text).unwrap();
            password("password_file", &file)
        };
        assert_eq!(written(b"s3cret\r\nnot this\n").unwrap(), "s3cret");
        for none in [&b""[..], b"\ns3cret", &[0xff], &[b's'; 5000]] {
            assert!(!written(none).unwrap_err().to_string().contains("s3cret"));
        }
    }

    #[test]
    fn a_file_is_read_for_each_connection_and_its_last_content_serves_while_it_cannot_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password").display().to_string();
        std::fs::write(&file, "first").unwrap();
        let options = FileOptions { password: Some(("password_file", file.clone())), ..FileOptions::default() };
        let files = SecretFiles::new(options).unwrap();
        let password = || {
            let client = files.client("redis://h".into_connection_info().unwrap()).unwrap();
            client.get_connection_info().redis_settings().password().map(str::to_owned)
        };
        assert_eq!(password().as_deref(), Some("first"));
        std::fs::write(&file, "second").unwrap();
        assert_eq!(password().as_deref(), Some("second"));
        for unreadable in ["", "\n"] {
            std::fs::write(&file, unreadable).unwrap();
            assert_eq!(password().as_deref(), Some("second"));
        }
        std::fs::remove_file(&file).unwrap();
        assert_eq!(password().as_deref(), Some("second"));
        assert!(!format!("{files:?}").contains("second"));
    }

    #[test]
    fn a_file_is_the_same_after_a_change_of_the_working_directory() {
        let options = FileOptions {
            ca: Some("ca.pem".into()),
            password: Some(("password_file", "/p".into())),
            ..FileOptions::default()
        };
        let files = options.absolute();
        assert_eq!(
            files.ca.as_deref().map(str::to_owned),
            std::path::absolute("ca.pem").unwrap().to_str().map(str::to_owned)
        );
        assert_eq!((files.password, files.cert), (Some(("password_file", "/p".to_owned())), None));
    }

    #[test]
    fn only_a_password_of_a_file_that_was_accepted_may_change() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password").display().to_string();
        std::fs::write(&file, "s3cret").unwrap();
        let of_url = SecretFiles::new(FileOptions::default()).unwrap();
        let password = Some(("password_file", file));
        let of_file = SecretFiles::new(FileOptions { password, ..FileOptions::default() }).unwrap();
        assert_eq!(of_file.kind(Fault::Denied), Fault::Denied, "a first login fails at once");
        of_url.accept();
        of_file.accept();
        assert_eq!(of_file.kind(Fault::Denied), Fault::Revoked);
        assert_eq!(of_file.kind(Fault::Timeout), Fault::Timeout);
        assert_eq!(of_url.kind(Fault::Denied), Fault::Denied);
    }
}
