//! An address of a socket, read from where C keeps it, and as it is written down.

use std::{
    fmt::{self, Write as _},
    mem::{self, MaybeUninit},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ptr, slice,
};

use libc::{c_int, sockaddr, sockaddr_in, sockaddr_in6, sockaddr_storage, sockaddr_un, socklen_t};

/// Where a socket is, or leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Inet(SocketAddr),
    /// A path, or a name that begins with a zero byte.
    Unix(Vec<u8>),
}

impl Address {
    /// None if it is of another family, or has no name.
    ///
    /// # Safety
    /// `address` is null, or has `length` bytes.
    pub(crate) unsafe fn read(address: *const sockaddr, length: socklen_t) -> Option<Address> {
        let length = usize::try_from(length).ok()?;
        let family = mem::size_of::<libc::sa_family_t>();
        if address.is_null() || length < family {
            return None;
        }
        // SAFETY: the family lies within the bytes, and each kind is read only where all of it does.
        unsafe {
            match c_int::from(ptr::read_unaligned(address.cast::<libc::sa_family_t>())) {
                libc::AF_INET if mem::size_of::<sockaddr_in>() <= length => {
                    let it = ptr::read_unaligned(address.cast::<sockaddr_in>());
                    let ip = Ipv4Addr::from(u32::from_be(it.sin_addr.s_addr));
                    Some(Address::Inet(SocketAddr::new(ip.into(), u16::from_be(it.sin_port))))
                }
                libc::AF_INET6 if mem::size_of::<sockaddr_in6>() <= length => {
                    let it = ptr::read_unaligned(address.cast::<sockaddr_in6>());
                    let ip = IpAddr::V6(Ipv6Addr::from(it.sin6_addr.s6_addr)).to_canonical();
                    Some(Address::Inet(SocketAddr::new(ip, u16::from_be(it.sin6_port))))
                }
                libc::AF_UNIX if length <= mem::size_of::<sockaddr_un>() => {
                    let name = address.cast::<u8>().add(family);
                    let name = slice::from_raw_parts(name, length - family);
                    // A path ends at its first zero byte, another name begins with one.
                    let end = name.iter().skip(1).position(|it| *it == 0).map(|it| it + 1);
                    let is_path = name.first().is_some_and(|it| *it != 0);
                    let name = if is_path { &name[..end.unwrap_or(name.len())] } else { name };
                    (!name.is_empty()).then(|| Address::Unix(name.to_owned()))
                }
                _ => None,
            }
        }
    }

    /// Where the socket `fd` is.
    pub(crate) fn of(fd: c_int) -> Option<Address> {
        // SAFETY: what is asked for fits where it is put.
        Self::asked(|address, length| unsafe { libc::getsockname(fd, address, length) })
    }

    /// Where the other end is; none while there is none.
    pub(crate) fn of_peer(fd: c_int) -> Option<Address> {
        // SAFETY: what is asked for fits where it is put.
        Self::asked(|address, length| unsafe { libc::getpeername(fd, address, length) })
    }

    fn asked(ask: impl FnOnce(*mut sockaddr, *mut socklen_t) -> c_int) -> Option<Address> {
        let mut storage = MaybeUninit::<sockaddr_storage>::zeroed();
        let mut length = socklen_t::try_from(mem::size_of::<sockaddr_storage>()).ok()?;
        let address = storage.as_mut_ptr().cast();
        if ask(address, &raw mut length) != 0 {
            return None;
        }
        // SAFETY: the kernel has filled in so many bytes of it.
        unsafe { Address::read(address, length) }
    }

    pub(crate) fn ip(&self) -> Option<IpAddr> {
        match self {
            Address::Inet(it) => Some(it.ip()),
            Address::Unix(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Inet(it) => write!(f, "{it}"),
            Address::Unix(name) => write!(f, "unix:{}", Word(name)),
        }
    }
}

/// Bytes as one word: what is no letter, digit or sign is written as its number.
pub(crate) struct Word<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for it in self.0 {
            match it {
                b'%' => f.write_str("%25")?,
                b'!'..=b'~' => f.write_char(char::from(*it))?,
                _ => write!(f, "%{it:02X}")?,
            }
        }
        Ok(())
    }
}
