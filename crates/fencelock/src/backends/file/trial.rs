//! Tries what a lock does in this directory, and removes its files.

use super::File;
use super::name::{completion_file_name, file_name};
use fencelock_core::{BoxFuture, Finding, HolderId, Key, Trial, Tried};
use std::fs;
use std::time::Duration;

/// The beginning of the keys of trials. Names of files keep these characters.
const OWN: &str = "fencelock-doctor-";

/// A trial takes milliseconds. Older files are from one that was killed.
const LONGEST: Duration = Duration::from_secs(5);

impl File {
    /// No other program uses the name of the key, so its files can be deleted. A name that a user gives is not needed here: whoever
    /// may create files may use any key.
    pub(super) async fn trial(&self) -> Finding {
        if self.directory.is_missing() {
            let advice = "run doctor again after the first lock";
            return Tried::not_tried("the directory does not exist, and doctor creates none", advice);
        }
        let mut random = [[0; 16]; 3];
        let filled = random.iter_mut().try_for_each(|bytes| getrandom::fill(bytes));
        let [name, first, second] = random.map(HolderId::from_bytes);
        let (Ok(()), Ok(key)) = (filled, Key::new(format!("{OWN}{name}"))) else {
            return Tried::not_tried("the operating system returned no random numbers", "");
        };
        self.remove_old();
        let clean = || -> BoxFuture<'_, bool> { Box::pin(async { self.remove_of(&key) }) };
        let tried = Trial::new(self, &key, [first, second]).run(&clean).await;
        self.remove_of(&key);
        // The cause says what to do.
        tried.finding(|_| String::new())
    }

    fn remove_of(&self, key: &Key) -> bool {
        let (lock, completion) = (file_name(key), completion_file_name(key));
        let is_of = |name: &str| name.starts_with(&lock) || name.starts_with(&completion);
        self.remove_where(|name, _| is_of(name))
    }

    fn remove_old(&self) {
        let is_old = |meta: &fs::Metadata| {
            meta.modified().ok().and_then(|at| at.elapsed().ok()).is_some_and(|age| age > LONGEST)
        };
        self.remove_where(|name, meta| name.starts_with(OWN) && is_old(meta));
    }

    /// Whether all of them are gone. Files of another user may stay.
    fn remove_where(&self, is_removed: impl Fn(&str, &fs::Metadata) -> bool) -> bool {
        let Ok(entries) = fs::read_dir(self.directory.path()) else { return false };
        let mut all = true;
        for entry in entries.flatten() {
            let (name, meta) = (entry.file_name(), entry.metadata());
            if let (Some(name), Ok(meta)) = (name.to_str(), meta)
                && meta.is_file()
                && is_removed(name, &meta)
            {
                all &= fs::remove_file(entry.path()).is_ok();
            }
        }
        all
    }
}
