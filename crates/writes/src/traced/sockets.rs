//! Sockets with names (unix(7)): made where a file would be made, and found where it was made. An address holds 108 bytes,
//! so a folder far down in the layer needs a short name.

use std::{os::unix::ffi::OsStrExt as _, path::PathBuf};

use nix::errno::Errno;

use super::{
    arguments::{After, Call, Verdict, name},
    memory,
    place::{Place, path_of},
};

/// The bytes of a name in an address, behind two of its family.
const LONGEST: usize = 108;

impl Call<'_> {
    /// `getsockname` or `getpeername`.
    pub(super) fn name_of_socket(&self) -> Verdict {
        let (buffer, length) = (self.argument(1), self.argument(2));
        let capacity =
            memory::read_bytes(self.task, length, 4).ok().and_then(|it| it.try_into().ok());
        let Some(capacity) = capacity.and_then(|it| usize::try_from(u32::from_ne_bytes(it)).ok())
        else {
            return Verdict::Go;
        };
        let capacity = capacity.min(LONGEST + 2);
        Verdict::Instead(Box::new(self.registers), After::Socket { buffer, length, capacity })
    }

    /// `bind` or `connect`.
    pub(super) fn socket(&mut self, is_made: bool) -> Result<Verdict, Errno> {
        let length = usize::try_from(self.argument(2)).unwrap_or_default().min(LONGEST + 2);
        let Ok(address) = memory::read_bytes(self.task, self.argument(1), length) else {
            return Ok(Verdict::Go);
        };
        let is_unix = address.get(..2) == Some(&1u16.to_ne_bytes());
        let text = address.get(2..).unwrap_or_default();
        let end = text.iter().position(|it| *it == 0).unwrap_or(text.len());
        if !is_unix || end == 0 {
            return Ok(Verdict::Go); // Another kind, or a name that is no file's.
        }
        let given = [&address[..2 + end], &[0]].concat();
        let text = path_of(text[..end].to_vec());
        let folder = self.folder_of(name(None, 0, false))?;
        let from = self.view.named(&folder);
        let found = self.view.resolve(self.task, &from, &text, !is_made)?;
        let is_natural =
            found.is_natural && (text.is_absolute() || self.view.is_disks_own(&folder));
        if matches!(found.place, Place::Through(_)) && is_natural && !is_made {
            return Ok(Verdict::Go);
        }
        let place = match (is_made, &found.meta) {
            (true, Some(_)) => return Err(Errno::EADDRINUSE),
            (true, None) => match &found.place {
                Place::Through(it) => it.clone(),
                _ => self.view.open_folder_of(&found.path)?,
            },
            (false, None) => return Err(Errno::ENOENT),
            (false, Some(_)) if is_natural => return Ok(Verdict::Go),
            (false, Some(_)) => found.place.path().to_owned(),
        };
        let mut bytes = 1u16.to_ne_bytes().to_vec();
        let short = |call: &mut Self| -> Option<PathBuf> {
            Some(call.view.short_name(place.parent()?)?.join(place.file_name()?))
        };
        let place = if LONGEST <= place.as_os_str().len() {
            short(self).ok_or(Errno::ENAMETOOLONG)?
        } else {
            place
        };
        bytes.extend(place.as_os_str().as_bytes());
        bytes.push(0);
        if LONGEST + 2 < bytes.len() {
            return Err(Errno::ENAMETOOLONG);
        }
        memory::write_ours(self.task, self.scratch, &bytes)?;
        if is_made {
            self.view.address_is_given(bytes.clone(), given);
        }
        let mut registers = self.registers;
        (registers.rsi, registers.rdx) = (self.scratch.0, bytes.len() as u64);
        Ok(Verdict::Instead(Box::new(registers), After::Nothing))
    }
}
