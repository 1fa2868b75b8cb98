//! What a run on the phantom may do to the world: where its writes go, and whether it has a network.

use std::{fmt, path::PathBuf, str::FromStr};

use clap::Args;
use plimsoll_core::units::Bytes;

use crate::options::size::size;

/// The options that every command has which runs scripts on the phantom.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct WorldArgs {
    /// Where the script's writes go; the script can always read them back. `layer`: into a private layer that
    /// plimsoll deletes, so that none of your files change. `keep=DIR`: the same, and plimsoll copies the
    /// layer to DIR. `through`: into your files.
    #[arg(long, value_name = "layer|keep=DIR|through", default_value = "layer")]
    pub(crate) writes: Writes,

    /// The most disk space for the layer, as in `20GiB`. Default: 20 % of the free space. Zeros need none.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) writes_max: Option<Bytes>,

    /// A folder that the script really writes to: the Python package reads a function's result there.
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) through: Vec<PathBuf>,

    /// Give the script no network: it can reach its own processes only.
    #[arg(long)]
    pub(crate) offline: bool,
}

/// Where writes go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Writes {
    #[default]
    Layer,
    Keep(PathBuf),
    Through,
}

impl fmt::Display for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Writes::Layer => f.write_str("layer"),
            Writes::Keep(folder) => write!(f, "keep={}", folder.display()),
            Writes::Through => f.write_str("through"),
        }
    }
}

impl FromStr for Writes {
    type Err = String;

    fn from_str(text: &str) -> Result<Writes, String> {
        match text.split_once('=') {
            None if text == "layer" => Ok(Writes::Layer),
            None if text == "through" => Ok(Writes::Through),
            Some(("keep", folder)) if !folder.is_empty() => Ok(Writes::Keep(folder.into())),
            _ => Err("expected `layer`, `keep=DIR` or `through`".to_owned()),
        }
    }
}
