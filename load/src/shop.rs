//! The shared stock of a flash sale. Only the lock prevents overlapping sales.

use crate::command_counter;
use crate::error::NotMeasured;
use crate::protocol::LoadJob;
use fencelock::backends::{Server, servers};
use redis::aio::MultiplexedConnection;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The stock of a worker.
#[derive(Clone)]
pub(crate) enum Shop {
    Redis { connection: MultiplexedConnection, stock: String, sold: String },
    Files(PathBuf),
}

impl Shop {
    pub(crate) async fn open(job: &LoadJob) -> Result<Self, NotMeasured> {
        if let Some(directory) = &job.shop {
            return Ok(Self::Files(directory.into()));
        }
        let server = servers(&job.url)?.into_iter().next();
        let server =
            server.ok_or_else(|| NotMeasured::Plan(format!("{} stores no stock: name a directory", job.url)))?;
        let connection = server.client().get_multiplexed_async_connection().await?;
        Ok(Self::Redis { connection, stock: stock(&job.key), sold: sold(&job.key) })
    }

    /// Sells one item; `false` if none is left. Overlapping calls may sell the same item.
    pub(crate) async fn sell(&mut self, token: u64) -> Result<bool, NotMeasured> {
        match self {
            Self::Redis { connection, stock, sold } => {
                let left: i64 = redis::cmd("GET").arg(&*stock).query_async(connection).await?;
                if left <= 0 {
                    return Ok(false);
                }
                let mut sale = redis::pipe();
                sale.set(&*stock, left - 1).ignore().rpush(&*sold, token).ignore();
                sale.exec_async(connection).await?;
                Ok(true)
            }
            Self::Files(directory) => sell_from(directory, token).map_err(NotMeasured::system("update the stock")),
        }
    }
}

fn sell_from(directory: &Path, token: u64) -> io::Result<bool> {
    let file = directory.join("stock");
    let left: i64 = fs::read_to_string(&file)?.trim().parse().map_err(io::Error::other)?;
    if left <= 0 {
        return Ok(false);
    }
    fs::write(&file, (left - 1).to_string())?;
    let mut sold = fs::File::options().create(true).append(true).open(directory.join("sold"))?;
    writeln!(sold, "{token}")?;
    Ok(true)
}

/// The view of the harness: sets the stock before the sale, and reads the ledger after it.
#[derive(Debug)]
pub(crate) enum StockLedger<'a> {
    Redis(&'a Server, String),
    Files(&'a Path),
}

/// The content of the ledger.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LedgerEntries {
    pub(crate) left: i64,
    /// The token of each sale, in order.
    pub(crate) tokens: Vec<u64>,
}

impl StockLedger<'_> {
    pub(crate) fn begin(&self, pieces: u64) -> Result<(), NotMeasured> {
        match self {
            Self::Redis(server, base) => {
                Ok(redis::cmd("SET").arg(stock(base)).arg(pieces).exec(&mut command_counter::connect(server)?)?)
            }
            Self::Files(directory) => {
                fs::write(directory.join("stock"), pieces.to_string()).map_err(NotMeasured::system("write the stock"))
            }
        }
    }

    pub(crate) fn read(&self) -> Result<LedgerEntries, NotMeasured> {
        match self {
            Self::Redis(server, base) => {
                let mut both = redis::pipe();
                both.get(stock(base)).lrange(sold(base), 0, -1);
                let (left, tokens) = both.query(&mut command_counter::connect(server)?)?;
                Ok(LedgerEntries { left, tokens })
            }
            Self::Files(directory) => read_from(directory).map_err(NotMeasured::system("read the ledger")),
        }
    }
}

fn read_from(directory: &Path) -> io::Result<LedgerEntries> {
    let left = fs::read_to_string(directory.join("stock"))?.trim().parse().map_err(io::Error::other)?;
    let sold = match fs::read_to_string(directory.join("sold")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        sold => sold?,
    };
    let tokens = sold.lines().map(|line| line.parse().map_err(io::Error::other)).collect::<Result<_, _>>()?;
    Ok(LedgerEntries { left, tokens })
}

pub(crate) fn stock(base: &str) -> String {
    format!("{base}:stock")
}

pub(crate) fn sold(base: &str) -> String {
    format!("{base}:sold")
}
