//! `plimsoll agent`: the folder of the agent, unpacked, for the Python package, which records in a process that
//! nobody started under plimsoll.

use std::io::Write;

use crate::{
    cache::{Cache, bundle::Bundle},
    exit::Exit,
};

pub(crate) fn run(out: &mut dyn Write) -> anyhow::Result<Exit> {
    let bundle = Bundle::unpack(&Cache::open()?)?;
    super::write(out, &format!("{}\n", bundle.agent().display()))?;
    Ok(Exit::Fits)
}
