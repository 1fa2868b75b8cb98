//! What a run on the phantom may do to the world: where its writes go, and whether it has a network.

use std::{fmt, path::PathBuf, str::FromStr};

use clap::Args;
use plimsoll_core::units::Bytes;

/// The options that every command has which runs scripts on the phantom.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct WorldArgs {
    /// Where the script's writes go. It always reads back what it wrote. `layer`: into a private layer that is thrown away,
    /// so that no file of yours changes. `keep=DIR`: the same, and the layer is copied to DIR. `through`: into your files.
    #[arg(long, value_name = "layer|keep=DIR|through", default_value = "layer")]
    pub(crate) writes: Writes,

    /// What the layer may take on the disk, as in `20GiB`: a fifth of what is free, if it is not given. Zeros take nothing.
    #[arg(long, value_name = "SIZE")]
    pub(crate) writes_max: Option<Bytes>,

    /// A folder that it writes to in truth: where the Python package has the answer of a function put.
    #[arg(long, value_name = "DIR", hide = true)]
    pub(crate) through: Vec<PathBuf>,

    /// No network for the script: it reaches its own processes only.
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
            _ => Err("it is `layer`, `keep=DIR` or `through`".to_owned()),
        }
    }
}
