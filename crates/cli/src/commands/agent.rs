//! `plimsoll agent`: the folder of the agent, unpacked, for the Python package, which records in a process that
//! nobody started under plimsoll.

use std::os::unix::ffi::OsStrExt as _;

use crate::{
    cache::{Cache, bundle::Bundle},
    exit::Exit,
    output::Output,
};

pub(crate) fn run(out: &mut Output) -> anyhow::Result<Exit> {
    let bundle = Bundle::unpack(&Cache::open()?)?;
    // Who reads it imports from there.
    out.bytes(&[bundle.agent().into_os_string().as_bytes(), b"\n"].concat())?;
    Ok(Exit::Fits)
}
