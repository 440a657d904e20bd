use super::File;
use fencelock_core::{Connecting, Invalid, Scheme, UrlForm};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// `file:DIR`.
#[derive(Debug)]
pub(crate) struct FileScheme;

impl Scheme for FileScheme {
    fn forms(&self) -> &[UrlForm] {
        const { &[UrlForm::new("file:DIR", "processes of this machine; a crash frees the lock")] }
    }

    fn connect<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(File::open(directory(url)?)?) as _) })
    }

    /// For `doctor`, which reports an unusable directory as a finding.
    fn lazy<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        Box::pin(async move { Ok(Arc::new(File::unchecked(directory(url)?)?) as _) })
    }

    fn on_demand<'a>(&'a self, url: &'a str) -> Connecting<'a> {
        self.connect(url)
    }

    /// Several paths may lead to one directory.
    fn identity(&self, _: &str, name: &str) -> String {
        let same = directory(name).ok().and_then(|directory| real(&directory));
        same.map_or_else(|| name.to_owned(), |path| url_of(&path))
    }
}

/// The path without symbolic links. The first claim creates the directory, which then has the same path.
fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| Some(real(path.parent()?)?.join(path.file_name()?)))
}

/// The characters that are not written as themselves, because users expect a shell or a URL to give them a meaning.
const ENCODED: [u8; 4] = *b"%$?~";

/// The `file:` URL of a directory.
pub fn url_of(directory: &Path) -> String {
    let mut url = "file:".to_owned();
    let mut bytes = directory.as_os_str().as_bytes();
    while bytes.starts_with(b"//") {
        // A host follows two slashes.
        bytes = &bytes[1..];
    }
    // A URL that ends with white space is refused.
    let (bytes, end) = bytes.split_at(bytes.trim_ascii_end().len());
    for part in bytes.utf8_chunks() {
        for char in part.valid().chars() {
            match u8::try_from(char) {
                Ok(byte) if byte.is_ascii_control() || ENCODED.contains(&byte) => encode(byte, &mut url),
                _ => url.push(char),
            }
        }
        part.invalid().iter().for_each(|byte| encode(*byte, &mut url));
    }
    for byte in end {
        encode(*byte, &mut url);
    }
    url
}

fn encode(byte: u8, url: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(url, "%{byte:02X}");
}

/// The directory of a `file:` URL: `DIR` of `file:DIR`, and of `file:///DIR`.
///
/// # Errors
/// [`Invalid`], also for a relative path: it would name another directory in each working directory, and its users would not exclude each
/// other.
pub fn directory(url: &str) -> Result<PathBuf, Invalid> {
    let rest = url.strip_prefix("file:").unwrap_or(url);
    let written = match rest.strip_prefix("//") {
        Some(path) if path.starts_with('/') => path,
        Some(_) => {
            return Err(Invalid::new("file: URLs must not contain a host: use file:DIR"));
        }
        None => rest,
    };
    if written.is_empty() {
        return Err(Invalid::new("file: needs a directory, as in file:/run/lock/fencelock"));
    }
    if let Some(why) = unexpanded(written) {
        return Err(Invalid::new(format!("file:{written}: {why}")));
    }
    let directory = decoded(written)?;
    if directory.is_absolute() {
        return Ok(directory);
    }
    let meant = std::path::absolute(&directory).map_or_else(|_| "an absolute path".to_owned(), |path| url_of(&path));
    Err(Invalid::new(format!(
        "file:{written} is relative, and would be another directory for a process that is started elsewhere: use {meant}"
    )))
}

/// What a user expects in vain.
fn unexpanded(written: &str) -> Option<&'static str> {
    if written.trim_start_matches('/').starts_with('~') {
        return Some("~ is not expanded here: write the home directory in full, or %7E for the character");
    }
    if written.contains('$') {
        return Some("variables are not expanded here: write the directory in full, or %24 for the character $");
    }
    if written.chars().any(char::is_control) || written.ends_with(char::is_whitespace) {
        return Some(
            "it ends with white space, or has a line end or another control character, which would be a part of the path: \
             remove it, or write it as %0A, %0D, %20",
        );
    }
    let why = "it has no options: use another directory for other locks, or write %3F for the character ?";
    written.contains('?').then_some(why)
}

fn decoded(written: &str) -> Result<PathBuf, Invalid> {
    let mut parts = written.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let code = part.get(..2).filter(|code| code.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            None => {
                let advice = "two hexadecimal digits follow a %: write %25 for the character itself";
                return Err(Invalid::new(format!("file:{written}: {advice}")));
            }
            Some(0) => return Err(Invalid::new(format!("file:{written}: no path contains %00"))),
            Some(byte) => bytes.push(byte),
        }
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    Ok(OsString::from_vec(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::OsStr;

    fn refusal(url: &str) -> String {
        directory(url).unwrap_err().to_string()
    }

    #[test]
    fn what_only_a_shell_expands_and_options_are_refused_and_their_characters_can_be_written() {
        for (url, advice) in [
            ("file:~/x", "%7E"),
            ("file:/~/x", "%7E"),
            ("file:$HOME/x", "%24"),
            ("file:///srv/${APP}/x", "%24"),
            ("file:/x?prefix=a", "%3F"),
            ("file:/x\r", "%0D"),
            ("file:/x\n", "%0A"),
            ("file:/x ", "%20"),
        ] {
            let refused = refusal(url);
            assert!(refused.starts_with("file:") && refused.contains(advice), "{refused}");
        }
        assert_eq!(directory("file:/%7E/%24x%3f").unwrap(), Path::new("/~/$x?"));
        assert_eq!(directory("file:/x/backup~").unwrap(), Path::new("/x/backup~"));
        assert_eq!(directory("file:/x%0A/%20").unwrap(), Path::new("/x\n/ "));
        assert_eq!(url_of(Path::new("/x \t")), "file:/x%20%09");
    }

    #[test]
    fn a_percent_sign_without_two_digits_is_refused() {
        for url in ["file:/100%", "file:/%4", "file:/%g0", "file:/%+1", "file:/%é"] {
            assert!(refusal(url).contains("%25"), "{url}");
        }
        assert!(refusal("file:/a%00b").contains("%00"));
        assert_eq!(directory("file:/100%25").unwrap(), Path::new("/100%"));
    }

    #[test]
    fn a_relative_path_is_refused_with_the_absolute_one() {
        let absolute = std::env::current_dir().unwrap().join("a b");
        for url in ["file:a b", "file:./a b"] {
            let refused = refusal(url);
            assert!(refused.ends_with(&format!("use {}", url_of(&absolute))), "{refused}");
        }
    }

    proptest! {
        #[test]
        fn the_url_of_a_directory_leads_to_it(path in prop_oneof!["[~%$?a/]{0,9}", "\\PC{0,20}"], last in any::<u8>()) {
            let mut bytes = format!("/{path}").replace('\0', "").into_bytes();
            // Not all names are text.
            bytes.push(last.max(1));
            let path = Path::new(OsStr::from_bytes(&bytes));
            let url = url_of(path);
            prop_assert_eq!(directory(&url).unwrap(), path, "{}", url);
        }
    }
}
