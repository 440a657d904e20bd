//! Tries what a lock does in this directory, and removes its files.

use super::File;
use super::directory::Directory;
use super::name::{completion_file_name, file_name};
use fencelock_core::{BoxFuture, Finding, Key, Trial};
use std::fs;
use std::time::Duration;

/// The beginning of the keys of trials. Names of files keep these characters.
const OWN: &str = "fencelock-doctor-";

/// A trial takes milliseconds. Older files are from one that was killed.
const LONGEST: Duration = Duration::from_secs(5);

/// No other program uses the name of the key, so its files can be deleted. A name that a user gives is not needed here: whoever
/// may create files may use any key.
pub(super) async fn run(file: &File) -> Finding {
    if file.directory.is_missing() {
        let advice = "run doctor again after the first lock";
        return Finding::not_tried("the directory does not exist, and doctor does not create it", advice);
    }
    let Some((key, ids)) = Trial::names(getrandom::fill, None, "") else {
        return Finding::not_tried("the operating system returned no random numbers", "");
    };
    remove_old(&file.directory);
    let clean = || -> BoxFuture<'_, bool> { Box::pin(async { remove_of(&file.directory, &key) }) };
    let tried = Trial::new(file, &key, ids).run(&clean).await;
    // The cause says what to do.
    tried.finding(|_| "")
}

fn remove_of(directory: &Directory, key: &Key) -> bool {
    let (lock, completion) = (file_name(key), completion_file_name(key));
    let is_of = |name: &str| name.starts_with(&lock) || name.starts_with(&completion);
    remove_where(directory, |name, _| is_of(name))
}

fn remove_old(directory: &Directory) {
    let is_old =
        |meta: &fs::Metadata| meta.modified().ok().and_then(|at| at.elapsed().ok()).is_some_and(|age| age > LONGEST);
    remove_where(directory, |name, meta| name.starts_with(OWN) && is_old(meta));
}

/// Whether all of them are gone. Files of another user may stay.
fn remove_where(directory: &Directory, is_removed: impl Fn(&str, &fs::Metadata) -> bool) -> bool {
    let Ok(entries) = fs::read_dir(directory.path()) else { return false };
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
