//! The arguments of `fencelock lab`.

use crate::span;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum, ValueHint};
use fencelock_lab::{Fault, Lang, Property, catalog};
use std::path::PathBuf;
use std::time::Duration;

/// Model-check well-known lock schemes and show how they fail.
///
/// For every scheme, the search covers all interleavings of steps, crashes and delays, and finds the shortest
/// counterexample to each property. Without SCHEME it prints a table of all schemes. With SCHEME it prints the steps of a
/// counterexample. With `--url` it replays the steps on a real Redis and compares every reply; it uses its own keys and
/// removes them.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Lab {
    /// The scheme to show.
    #[arg(value_parser = PossibleValuesParser::new(schemes()), hide_possible_values = true)]
    pub(crate) scheme: Option<String>,
    /// The property to break.
    #[arg(long, value_name = "NAME", requires = "scheme", value_parser = PossibleValuesParser::new(properties()))]
    pub(crate) property: Option<String>,
    /// The fault that the counterexample must contain.
    #[arg(long, value_name = "NAME", requires = "scheme", value_parser = PossibleValuesParser::new(faults()))]
    pub(crate) fault: Option<String>,
    /// Show all counterexamples that were found.
    #[arg(long = "all", requires = "scheme", conflicts_with_all = ["svg", "replica"])]
    pub(crate) every: bool,
    /// Also draw the steps as SVG into FILE.
    #[arg(long, value_name = "FILE", requires = "scheme", value_hint = ValueHint::FilePath)]
    pub(crate) svg: Option<PathBuf>,
    /// The language of the output.
    #[arg(long, value_enum, default_value_t = LangArg::En)]
    pub(crate) lang: LangArg,
    /// A replica of the Redis of --url, for failover counterexamples: it is promoted, and then re-attached.
    #[arg(long, value_name = "URL", requires = "scheme", value_hint = ValueHint::Url)]
    pub(crate) replica: Option<String>,
    /// The length of a model tick on a real server; a lock lasts two ticks.
    #[arg(long, value_name = "DURATION", value_parser = span::parse, default_value = "100ms", requires = "scheme")]
    pub(crate) tick: Duration,
}

const EXAMPLES: &str = "\
Examples:
  fencelock lab                                     all schemes and properties
  fencelock lab s2-5-set-nx-ex                      its shortest counterexample
  fencelock lab s2-5-set-nx-ex --all                all counterexamples
  fencelock lab s2-5-set-nx-ex --svg out.svg        as an SVG diagram
  fencelock lab s2-5-set-nx-ex --url redis://HOST   replayed on a real server
  fencelock lab --lang zh                           in Chinese

Exit status:
  0      success; with --url: every reply matched the model
  64     usage: an argument is invalid
  69     the server is unreachable, or a reply differed";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LangArg {
    /// English.
    En,
    /// Chinese.
    Zh,
}

impl From<LangArg> for Lang {
    fn from(lang: LangArg) -> Self {
        match lang {
            LangArg::En => Self::En,
            LangArg::Zh => Self::Zh,
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
