//! The workspace of one run: its own keys and files, removed at the end.

use crate::command_counter::connect;
use crate::error::NotMeasured;
use crate::plan::Plan;
use crate::protocol::Workload;
use crate::shop::{self, StockLedger};
use fencelock::backends::{Server, file_directory, file_url, servers};
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// Removes all keys and files when it is dropped. All workers must have exited.
pub(crate) struct Workspace<'p> {
    plan: &'p Plan,
    /// The prefix of all keys.
    pub(crate) base: String,
    /// The URL for the workers.
    pub(crate) url: String,
    pub(crate) servers: Vec<Server>,
    /// The directory of the lock files, of the stock, or of both.
    directory: Option<PathBuf>,
}

/// The number of locks in one command.
const CHUNK: usize = 200;
/// The time in which a busy server executes what a client that has ended sent before.
pub(super) const LAST_COMMANDS: Duration = Duration::from_millis(100);

impl<'p> Workspace<'p> {
    pub(crate) fn prepare(plan: &'p Plan) -> Result<Self, NotMeasured> {
        // Random: a clock may be coarse, and two containers give their processes the same numbers.
        let unique = fastrand::u64(..);
        let base = format!("{}:{unique:016x}", plan.key);
        let name = format!("fencelock-bench-{unique:016x}");
        let servers = servers(&plan.url)?;
        // A lock file is never deleted while it may be in use, so the files of a run are in a directory of their own.
        let is_file = plan.url.starts_with("file:");
        let directory = is_file.then(|| file_directory(&plan.url)).transpose()?.map(|directory| directory.join(&name));
        let url = directory.as_deref().map_or_else(|| plan.url.clone(), file_url);
        let mut workspace = Self { plan, url, servers, directory: None, base: base.clone() };
        // Report an invalid key before anything is created.
        plan.locks(&base)?;
        if let Some(directory) = directory {
            workspace.create(directory)?;
        } else if plan.workload == Workload::FlashSale && workspace.servers.len() != 1 {
            workspace.create(std::env::temp_dir().join(name))?;
        }
        if let Some(ledger) = workspace.stock_ledger() {
            ledger.begin(plan.stock)?;
        }
        Ok(workspace)
    }

    fn create(&mut self, directory: PathBuf) -> Result<(), NotMeasured> {
        fs::create_dir_all(&directory).map_err(NotMeasured::system("create a directory"))?;
        self.directory = Some(directory);
        Ok(())
    }

    /// The directory of the stock, if it is not on the Redis server.
    pub(crate) fn shop(&self) -> Option<&str> {
        self.directory.as_deref().and_then(|directory| directory.to_str())
    }

    /// The ledger of the stock; `None` without a sale.
    pub(crate) fn stock_ledger(&self) -> Option<StockLedger<'_>> {
        if self.plan.workload != Workload::FlashSale {
            return None;
        }
        match (&self.directory, self.servers.first()) {
            (Some(directory), _) => Some(StockLedger::Files(directory)),
            (None, Some(server)) => Some(StockLedger::Redis(server, self.base.clone())),
            (None, None) => None,
        }
    }

    fn clean_up(&self, server: &Server) -> redis::RedisResult<()> {
        let mut connection = connect(server)?;
        let locks = self.plan.locks(&self.base).unwrap_or_default();
        let mut names: Vec<Vec<String>> = vec![vec![shop::stock(&self.base)], vec![shop::sold(&self.base)]];
        names.extend(locks.iter().map(|key| server.names(key)));
        let locks_at_once = if server.is_cluster_node() { 1 } else { CHUNK };
        for chunk in names.chunks(locks_at_once) {
            match redis::cmd("DEL").arg(chunk.concat()).exec(&mut connection) {
                // Another node of the cluster has it.
                Err(error) if error.redirect_node().is_some() => {}
                deleted => deleted?,
            }
        }
        Ok(())
    }
}

impl Drop for Workspace<'_> {
    fn drop(&mut self) {
        // An unreachable server cannot be cleaned up; its locks expire.
        let clean_up = || self.servers.iter().for_each(|server| _ = self.clean_up(server));
        clean_up();
        if !self.servers.is_empty() {
            // A server may execute commands of a killed worker after the first pass.
            thread::sleep(LAST_COMMANDS);
            clean_up();
        }
        if let Some(directory) = &self.directory {
            let _ = fs::remove_dir_all(directory);
        }
    }
}
