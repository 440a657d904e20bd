//! What `fencelock lab` understands.

use crate::span;
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum, ValueHint};
use fencelock_lab::{Fault, Lang, Property, catalog};
use std::path::PathBuf;
use std::time::Duration;

/// Show which well-known lock schemes break, and by which steps.
///
/// Every scheme is searched, in all orders of its clients' steps, crashes and delays, for the shortest way to break a
/// promise. Without SCHEME all of them stand in a table. With SCHEME the steps are shown one by one; with `--url` too, a
/// real Redis does the same steps, and every answer is compared. It keeps to keys of its own, and removes them.
///
/// `stock` and `bank` put all of them to work on a real Redis: many requests at once, and what is in the books afterwards.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub(crate) struct Lab {
    #[command(subcommand)]
    pub(crate) story: Option<Tale>,
    /// Which scheme.
    #[arg(value_parser = PossibleValuesParser::new(schemes()), hide_possible_values = true)]
    pub(crate) scheme: Option<String>,
    /// Which promise to see broken.
    #[arg(long, value_name = "NAME", requires = "scheme", value_parser = PossibleValuesParser::new(properties()))]
    pub(crate) property: Option<String>,
    /// Which fault has to happen.
    #[arg(long, value_name = "NAME", requires = "scheme", value_parser = PossibleValuesParser::new(faults()))]
    pub(crate) fault: Option<String>,
    /// Show every way to break it that was found, one after the other.
    #[arg(long = "all", requires = "scheme", conflicts_with_all = ["svg", "replica"])]
    pub(crate) every: bool,
    /// Draw the steps into FILE too.
    #[arg(long, value_name = "FILE", requires = "scheme", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,
    /// The language.
    #[arg(long, value_enum, default_value_t = Tongue::En)]
    pub(crate) lang: Tongue,
    /// A replica of the Redis of --url, for what breaks by a failover: it is promoted, and then re-attached.
    #[arg(long, value_name = "URL", requires = "scheme", value_hint = ValueHint::Url)]
    pub(crate) replica: Option<String>,
    /// How long a tick of the model is on a real server; a lock lasts two.
    #[arg(long, value_name = "DURATION", value_parser = span::parse, default_value = "100ms", requires = "scheme")]
    pub(crate) tick: Duration,
}

const EXAMPLES: &str = "\
Examples:
  fencelock lab                                     which scheme breaks which promise
  fencelock lab s2-5-set-nx-ex                      how one of them breaks, step by step
  fencelock lab s2-5-set-nx-ex --all                every way that was found
  fencelock lab s2-5-set-nx-ex --svg out.svg        the same as a picture
  fencelock lab s2-5-set-nx-ex --url redis://HOST   the same on a real server
  fencelock lab --lang zh                           in Chinese
  fencelock lab stock --url redis://HOST            a flash sale, scheme by scheme
  fencelock lab bank --url redis://HOST --overrun   two payments at once, some of them slow
  fencelock lab stock --url redis://HOST --pause    whole processes stand still

Exit status:
  0      shown; on a real server: every answer was as shown
  64     usage: an argument cannot be used
  69     the server cannot be reached, or does something else";

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Tale {
    /// A flash sale on a real Redis: a few pieces in stock, and many requests at once.
    ///
    /// Each request reads the stock and, if there is any, writes it less one. Whatever is sold beyond the stock was sold by
    /// two who were in at once. Whoever is told that the lock is taken comes again, until nobody gets it any more.
    Stock {
        /// Pieces in stock.
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        stock: u32,
        /// Requests altogether.
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        requests: u32,
        #[command(flatten)]
        telling: Telling,
    },
    /// A bank on a real Redis: accounts with 1000, from each of which 500 and 300 are paid at once.
    ///
    /// Both payments read the balance and write it less what they pay. So 200 must be left; 500 or 700 were written by one
    /// who had not seen the other. Each account has a lock of its own.
    Bank {
        /// Payments altogether, two from each account.
        #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(2..=100_000))]
        requests: u32,
        #[command(flatten)]
        telling: Telling,
    },
    /// One of the processes of a story: its job comes from stdin.
    #[command(hide = true)]
    Hand,
}

/// What both stories understand.
#[derive(Debug, Clone, Args)]
pub(crate) struct Telling {
    /// Which scheme: one of those of `fencelock lab`, `none` for no lock, or all of them.
    #[arg(long, value_name = "ID", default_value = ALL, value_parser = PossibleValuesParser::new(for_stories()))]
    #[arg(hide_possible_values = true)]
    pub(crate) scheme: String,
    /// Processes, each of which serves eight requests at a time.
    #[arg(long, value_name = "P", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) processes: u32,
    /// Some holders sleep for longer than the lock lasts, between reading and writing.
    #[arg(long)]
    pub(crate) overrun: bool,
    /// Each process once stands still right before it writes, until its lock has ended and another is in.
    #[arg(long)]
    pub(crate) pause: bool,
    /// One process is killed while it holds the lock.
    #[arg(long)]
    pub(crate) crash: bool,
    /// The time between reading and writing.
    #[arg(long, value_name = "DURATION", value_parser = span::parse, default_value = "2ms")]
    pub(crate) work: Duration,
    /// Draw what came of it into FILE too.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,
    /// The language.
    #[arg(long, value_enum, default_value_t = Tongue::En)]
    pub(crate) lang: Tongue,
}

/// Every scheme of the stories.
pub(super) const ALL: &str = "all";

fn for_stories() -> Vec<&'static str> {
    fencelock_lab::schemes_of_stories().into_iter().chain([ALL]).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tongue {
    /// English.
    En,
    /// Chinese.
    Zh,
}

impl From<Tongue> for Lang {
    fn from(tongue: Tongue) -> Self {
        match tongue {
            Tongue::En => Self::En,
            Tongue::Zh => Self::Zh,
        }
    }
}

fn schemes() -> Vec<&'static str> {
    catalog().iter().map(|scheme| scheme.id).collect()
}

fn properties() -> [&'static str; 4] {
    Property::ALL.map(Property::name)
}

fn faults() -> [&'static str; 7] {
    Fault::ALL.map(Fault::name)
}

pub(super) fn property(name: &str) -> Option<Property> {
    Property::ALL.into_iter().find(|property| property.name() == name)
}

pub(super) fn fault(name: &str) -> Option<Fault> {
    Fault::ALL.into_iter().find(|fault| fault.name() == name)
}
