//! The memory of a process that is traced and stopped: what the program has there, and a page of ours.

use std::{
    io::{IoSlice, IoSliceMut},
    path::PathBuf,
};

use nix::{
    errno::Errno,
    sys::{
        ptrace,
        uio::{RemoteIoVec, process_vm_readv, process_vm_writev},
    },
    unistd::Pid,
};

use super::place::path_of;

const PAGE: usize = 4096;

/// The address of a task's memory that is ours, see `scratch`: room for two paths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scratch(pub(super) u64);

impl Scratch {
    /// The bytes of a path, its zero byte included.
    pub(super) const PATH: usize = 4096;
    pub(super) const SIZE: u64 = 2 * Scratch::PATH as u64;

    /// Where a second path goes.
    pub(super) fn second(self) -> Scratch {
        Scratch(self.0 + Scratch::SIZE / 2)
    }
}

/// The path at `address`, without its zero byte.
pub(super) fn read_path(task: Pid, address: u64) -> Result<PathBuf, Errno> {
    let mut res: Vec<u8> = Vec::new();
    let mut at = usize::try_from(address).map_err(|_| Errno::EFAULT)?;
    while res.len() < PAGE {
        // Up to the end of the page: the next one may not be there.
        let mut piece = [0; 512];
        let n = piece.len().min(PAGE - at % PAGE);
        let n = read(task, at, &mut piece[..n])?;
        let piece = &piece[..n];
        match piece.iter().position(|it| *it == 0) {
            Some(end) => {
                res.extend_from_slice(&piece[..end]);
                return Ok(path_of(res));
            }
            None => res.extend_from_slice(piece),
        }
        at += n;
    }
    Err(Errno::ENAMETOOLONG)
}

/// `n` bytes at `address`.
pub(super) fn read_bytes(task: Pid, address: u64, n: usize) -> Result<Vec<u8>, Errno> {
    let mut res = vec![0; n];
    let at = usize::try_from(address).map_err(|_| Errno::EFAULT)?;
    if read(task, at, &mut res)? == n { Ok(res) } else { Err(Errno::EFAULT) }
}

fn read(task: Pid, at: usize, into: &mut [u8]) -> Result<usize, Errno> {
    let len = into.len();
    let n = process_vm_readv(task, &mut [IoSliceMut::new(into)], &[RemoteIoVec { base: at, len }])?;
    if n == 0 { Err(Errno::EFAULT) } else { Ok(n) }
}

/// Writes all of `bytes` at `address`.
pub(super) fn write_bytes(task: Pid, address: u64, bytes: &[u8]) -> Result<(), Errno> {
    let base = usize::try_from(address).map_err(|_| Errno::EFAULT)?;
    let len = bytes.len();
    let n = process_vm_writev(task, &[IoSlice::new(bytes)], &[RemoteIoVec { base, len }])?;
    if n == len { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Writes all of `bytes` where nobody but a tracer may write; `at` and the page are whole words.
pub(super) fn write_ours(task: Pid, at: Scratch, bytes: &[u8]) -> Result<(), Errno> {
    for (word, address) in bytes.chunks(size_of::<i64>()).zip((at.0..).step_by(size_of::<i64>())) {
        let mut whole = [0; size_of::<i64>()];
        whole[..word.len()].copy_from_slice(word);
        let address = usize::try_from(address).map_err(|_| Errno::EFAULT)?;
        ptrace::write(task, std::ptr::without_provenance_mut(address), i64::from_ne_bytes(whole))?;
    }
    Ok(())
}
