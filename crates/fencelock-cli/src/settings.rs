//! Settings that no option gives, and their origin: the environment, the file of the user, the file of the system.
//!
//! [`resolve`] decides. What another user wrote, or could change, is refused and not ignored: without its URL, a lock would be local.

use crate::exit::{Exit, Failure};
use crate::secrets::has_password;
use crate::{text, values};
use fencelock::{Owner, Ttl};
use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde::Deserialize;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

const NAME: &str = "fencelock.toml";
const SYSTEM: &str = "/etc/fencelock.toml";
const URL: &str = "FENCELOCK_URL";
const REQUIRE_URL: &str = "FENCELOCK_REQUIRE_URL";
/// Far more than four settings and their comments take.
const LARGEST: u64 = 1 << 16;

/// The default of `--ttl`.
pub(crate) const TTL: &str = "30s";

/// What is written in a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entries {
    url: Option<String>,
    label: Option<String>,
    ttl: Option<String>,
    #[serde(default)]
    require_url: bool,
}

/// Where a setting comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// An option or a variable.
    Given(&'static str),
    File(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(name) => f.write_str(name),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

/// A value and its origin.
pub(crate) type Setting = (String, Origin);

/// All settings of this process except those of the command line, which take precedence.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) url: Option<Setting>,
    pub(crate) label: Option<Setting>,
    pub(crate) ttl: Option<Setting>,
    /// What requires a URL. Nothing takes this back: the default must not be used where an operator has excluded it.
    pub(crate) url_required_by: Option<Origin>,
    /// The files that were looked for, and what was found.
    pub(crate) files: Vec<(PathBuf, &'static str)>,
}

/// Reads all sources.
pub(crate) fn load() -> Result<Settings, Failure> {
    let home = std::env::home_dir();
    let user = user_file(std::env::var_os("XDG_CONFIG_HOME"), home).map(|path| (path, Trust::User));
    let places = user.into_iter().chain([(PathBuf::from(SYSTEM), Trust::System)]);
    let read = || {
        let mut files = Vec::new();
        for (path, trust) in places {
            let (entries, found) = read(&path, trust).map_err(|why| format!("{}: {why}", path.display()))?;
            files.push((path, entries, found));
        }
        Ok(resolve(is_required(std::env::var_os(REQUIRE_URL))?, files))
    };
    read().map_err(|why: String| Failure::new(Exit::Usage, why))
}

/// Each setting comes from the first file that has it.
fn resolve(is_required: bool, files: Vec<(PathBuf, Entries, &'static str)>) -> Settings {
    let first = |of: fn(&Entries) -> Option<&String>| {
        let mut having = files.iter().filter_map(|(path, entries, _)| Some((of(entries)?.clone(), path)));
        having.next().map(|(value, path)| (value, Origin::File(path.clone())))
    };
    let mut requiring = files.iter().filter(|(_, entries, _)| entries.require_url);
    Settings {
        url: first(|entries| entries.url.as_ref()),
        label: first(|entries| entries.label.as_ref()),
        ttl: first(|entries| entries.ttl.as_ref()),
        url_required_by: if is_required {
            Some(Origin::Given(REQUIRE_URL))
        } else {
            requiring.next().map(|(path, ..)| Origin::File(path.clone()))
        },
        files: files.into_iter().map(|(path, _, found)| (path, found)).collect(),
    }
}

impl Settings {
    /// With the URL that the command line or the environment has given, if any.
    pub(crate) fn with_url(mut self, given: Option<&str>) -> Self {
        if let Some(url) = given {
            let by_variable = std::env::var_os(URL).is_some_and(|variable| variable == url);
            self.url = Some((url.to_owned(), Origin::Given(if by_variable { URL } else { "--url" })));
        }
        self
    }

    /// The URL; `None` for the default directory of this user.
    pub(crate) fn url(&self) -> Result<Option<&str>, Failure> {
        let refuse = |why| Err(Failure::new(Exit::Usage, why));
        match (&self.url, &self.url_required_by) {
            // An unset shell variable must not silently select local locks instead of shared ones.
            (Some((url, origin)), _) if url.trim().is_empty() => refuse(format!(
                "the URL is empty: {origin} must name file:DIR or redis://HOST, or be unset to use the default \
                 directory of this user"
            )),
            (Some((url, _)), _) => Ok(Some(url)),
            (None, Some(origin)) => refuse(format!(
                "no URL is set, and {origin} requires one: set --url, {URL}, or url in {NAME}; for locks on this \
                 machine only, file:DIR"
            )),
            (None, None) => Ok(None),
        }
    }

    /// Names the file that an unusable URL comes from.
    pub(crate) fn with_origin(&self, failure: Failure) -> Failure {
        match &self.url {
            Some((_, origin @ Origin::File(_))) if failure.exit == Exit::Usage => {
                Failure::new(failure.exit, format!("{origin}: url: {}", failure.message))
            }
            _ => failure,
        }
    }
}

/// The XDG specification ignores a relative path: it would depend on the working directory.
fn user_file(xdg: Option<OsString>, home: Option<PathBuf>) -> Option<PathBuf> {
    let xdg = xdg.map(PathBuf::from).filter(|path| path.is_absolute());
    let directory = xdg.or_else(|| Some(home.filter(|path| path.is_absolute())?.join(".config")))?;
    Some(directory.join(NAME))
}

fn is_required(variable: Option<OsString>) -> Result<bool, String> {
    let text = variable.unwrap_or_default();
    match text.to_str().map(str::to_lowercase).as_deref() {
        Some("" | "0" | "false" | "no") => Ok(false),
        Some("1" | "true" | "yes") => Ok(true),
        _ => Err(format!("{REQUIRE_URL} is {:?}: set it to 1, or unset it", text.to_string_lossy())),
    }
}

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// It must belong to this user or to root: `XDG_CONFIG_HOME` and `HOME` may be those of another user.
    User,
    /// In a directory that only root can change.
    System,
}

/// What is written in it, and what was found.
fn read(path: &Path, trust: Trust) -> Result<(Entries, &'static str), String> {
    // Opening a FIFO would wait for its writer.
    let file = OpenOptions::new().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path);
    let file = match file.map_err(|error| (error.kind(), error)) {
        Ok(file) => file,
        // Below XDG_CONFIG_HOME=/dev/null there is none either.
        Err((ErrorKind::NotFound | ErrorKind::NotADirectory, _)) if !is_dangling(path) => {
            return Ok((Entries::default(), "missing"));
        }
        Err((ErrorKind::PermissionDenied, _)) if trust == Trust::User && is_of_another_user(path) => {
            // Such as /root after `setpriv --reuid`: not the settings of this user.
            return Ok((Entries::default(), "inaccessible"));
        }
        Err((_, error)) => return Err(format!("cannot be read: {error}")),
    };
    let is_open = |directory: &Path| fs::metadata(directory).is_ok_and(|meta| meta.mode() & 0o1002 == 0o002);
    if let Some(directory) = path.parent().filter(|directory| is_open(directory)) {
        return Err(format!("other users may replace it: chmod o-w {}", directory.display()));
    }
    let (text, others_read) = text_of(file, trust)?;
    let entries = parse(&text)?;
    if others_read && entries.url.as_deref().is_some_and(has_password) {
        // All users read the file of the system.
        let or_close = if trust == Trust::User { "chmod 600 it, or " } else { "" };
        return Err(format!(
            "its URL has a password, and other users may read the file: {or_close}use password_file= or \
             FENCELOCK_PASSWORD instead"
        ));
    }
    Ok((entries, "read"))
}

/// A link whose target is missing was meant to be a file or a directory, which may not be mounted yet.
fn is_dangling(path: &Path) -> bool {
    path.ancestors().any(|path| path.is_symlink() && !path.exists())
}

/// Whether the file cannot be seen because a directory of another user is closed.
fn is_of_another_user(path: &Path) -> bool {
    let closed = path.ancestors().find_map(|path| fs::metadata(path).ok());
    closed.is_some_and(|closed| closed.is_dir() && closed.uid() != geteuid().as_raw())
}

/// What the files of root belong to in a user namespace that does not have it.
const NOBODY: u32 = 65534;

fn is_root_unmapped() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    !map.lines().any(|line| line.split_whitespace().nth(1) == Some("0"))
}

/// The content, and whether other users may read it.
fn text_of(file: File, trust: Trust) -> Result<(String, bool), String> {
    let cannot = |error: io::Error| format!("cannot be read: {error}");
    let meta = file.metadata().map_err(cannot)?;
    if !meta.is_file() {
        return Err("it is not a file".to_owned());
    }
    let (owner, user) = (meta.uid(), geteuid().as_raw());
    if trust == Trust::User && owner != user && owner != 0 {
        return Err(format!(
            "it belongs to user {owner}, not to this user, {user}, or root: set HOME and XDG_CONFIG_HOME to directories \
             of this user"
        ));
    }
    if trust == Trust::System && owner != user && owner != 0 && !(owner == NOBODY && is_root_unmapped()) {
        return Err(format!("it belongs to user {owner}: chown root it"));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(format!("other users may change it (mode {:o}): chmod go-w it", meta.mode() & 0o7777));
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > LARGEST {
        return Err(format!("it has more than {LARGEST} bytes"));
    }
    let text = String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_owned())?;
    Ok((text, meta.mode() & 0o044 != 0))
}

/// A message that does not repeat a URL in the wrong place, which may contain a password.
fn without_url(message: &str) -> &str {
    if message.contains("://") { "a URL is the value of `url`, and of nothing else" } else { message }
}

/// The error does not repeat the line, which may contain a password.
fn parse(text: &str) -> Result<Entries, String> {
    let entries: Entries = toml::from_str(text).map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
        format!("line {line}: {}", without_url(error.message()))
    })?;
    if let Some(ttl) = &entries.ttl {
        let valid = values::span(ttl).and_then(|span| Ttl::new(span).map_err(|invalid| invalid.to_string()));
        valid.map_err(|why| format!("ttl: {}", without_url(&why)))?;
    }
    Owner::new("host", 1, entries.label.as_deref().map(text::label).as_deref())
        .map_err(|invalid| format!("label: {invalid}"))?;
    Ok(entries)
}
