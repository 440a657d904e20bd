//! Locks on paths: how they are named.

use crate::exit::{Exit, Failure};
use clap::{Args, ValueHint};
use fencelock::{Key, Mode, TreePath, find_path};
use std::ffi::OsString;

/// A path in the place of a KEY.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct PathArguments {
    /// Instead of a KEY: a file or a directory, with everything below it. Such locks conflict if one path contains the other.
    ///
    /// It need not exist. Symbolic links are resolved; the lock is on the name, and stays there when a file is renamed. The root is the
    /// top of the git worktree on this host. src/** is src; any other wildcard stands for the directory before it.
    #[arg(long, help_heading = "Paths", value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub(crate) path: Option<OsString>,
    /// The name of the root, for clones that share their locks; without a worktree it is the current directory.
    #[arg(long, help_heading = "Paths", value_name = "NAME", requires = "path")]
    pub(crate) root_name: Option<String>,
}

impl PathArguments {
    /// Whether it is more than was asked for comes with it.
    pub(crate) fn find(&self) -> Result<Option<(TreePath, bool)>, String> {
        let found = self.path.as_ref().map(|path| find_path(path, self.root_name.as_deref()));
        found.transpose().map_err(|invalid| format!("--path {invalid}"))
    }

    /// The path that a command asks about.
    pub(crate) fn tree(&self) -> Result<Option<TreePath>, Failure> {
        Ok(self.find().map_err(|why| Failure::new(Exit::Usage, why))?.map(|(tree, _)| tree))
    }
}

/// Whether who has this key need not claim a lock of a path: a writer below a path keeps out whom a reader there does.
pub(crate) fn is_part((key, mode): &(Key, Mode), has: &str) -> bool {
    *key == *has || *mode == Mode::Shared && has.strip_suffix('/') == Some(key.as_str())
}
