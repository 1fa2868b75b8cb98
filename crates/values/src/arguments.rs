//! What a kernel was launched with. Arguments are read by the types that the kernel's mangled name says, or not at all: who
//! asks for an address where the name has a number is refused. This is the only file of the crate with `unsafe` in it.
//!
//! A launch is told an array of addresses, one for each parameter (`cudaLaunchKernel`, `cuLaunchKernel`). How long the
//! array is, and how long a pointer or a number is that an address leads to, follows from the name. How long a structure is
//! does not: each [`Structure`] states it beside the layout that it was taken from in PyTorch's sources.

use std::ffi::c_void;
use std::marker::PhantomData;

use crate::signature::{Parameter, Signature};
use crate::types::ScalarType;

/// The arguments of one launch.
#[derive(Clone, Copy, Debug)]
pub struct Arguments<'a> {
    at: *const *const c_void,
    signature: &'a Signature,
    /// As long as the launch lasts.
    lives: PhantomData<&'a [u8]>,
}

/// A structure that kernels take by value: parts of its C++ name, one of which it has, and how many of its first bytes are
/// read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Structure<'a> {
    pub(crate) named: &'a [&'a str],
    pub(crate) size: usize,
}

impl<'a> Arguments<'a> {
    /// Those at `at` of a kernel of this signature.
    ///
    /// # Safety
    ///
    /// `at` must be valid for one address for each parameter of the kernel whose name gave `signature`, each of an argument of
    /// the parameter's type, for as long as what is returned lives. So it is for the array that the compiler's stub of a
    /// kernel passes to a launch, until that returns.
    pub unsafe fn new(at: *const *const c_void, signature: &'a Signature) -> Arguments<'a> {
        Arguments { at, signature, lives: PhantomData }
    }

    /// The first `size` bytes of the argument number `i`, whose type has been looked at.
    fn bytes(&self, i: usize, size: usize) -> Option<Bytes<'a>> {
        if self.signature.len() <= i {
            return None;
        }
        // SAFETY: there are as many addresses as parameters, and each leads to an argument of that type, which has so many
        // bytes (see [`Arguments::new`] and [`Structure`]).
        let it = unsafe { std::slice::from_raw_parts(self.at.add(i).read().cast::<u8>(), size) };
        Some(Bytes(it))
    }

    /// The address that is passed as this argument.
    pub(crate) fn address(&self, i: usize) -> Option<u64> {
        matches!(self.signature.get(i)?, Parameter::Pointer).then_some(())?;
        self.bytes(i, 8)?.u64(0)
    }

    /// Where the elements begin that this argument leads to: an address, or an iterator of CUB's or Thrust's, which has one so
    /// many bytes into it (its first member, or behind an operation).
    pub(crate) fn elements(&self, i: usize, within: usize) -> Option<u64> {
        if let Parameter::Pointer = self.signature.get(i)? {
            return self.address(i);
        }
        // `thrust::transform_iterator`, `thrust::device_ptr`, and before CUDA 13 `cub::TransformInputIterator`.
        let named = &["_iterator<", "InputIterator<", "::device_ptr<"];
        self.structure(i, Structure { named, size: within + 8 })?.u64(within)
    }

    /// The whole number, or truth value, that is passed as this argument, whatever its width.
    pub(crate) fn whole(&self, i: usize) -> Option<i64> {
        let Parameter::Whole { width, signed } = *self.signature.get(i)? else { return None };
        let kind = match (width, signed) {
            (1, true) => ScalarType::Char,
            (1, false) => ScalarType::Byte,
            (2, true) => ScalarType::Short,
            (4, true) => ScalarType::Int,
            (8, _) => ScalarType::Long,
            (4, false) => return Some(self.bytes(i, 4)?.u32(0)?.into()),
            _ => return None,
        };
        Some(kind.read(self.bytes(i, width)?.0))
    }

    /// Likewise, of one that counts something.
    pub(crate) fn count(&self, i: usize) -> Option<usize> {
        // A number of 64 bits that is beyond all counts is one still.
        self.whole(i).map(|it| usize::try_from(it.cast_unsigned()).unwrap_or(usize::MAX))
    }

    /// Whether the number that is passed as this argument is another than zero.
    pub(crate) fn flag(&self, i: usize) -> Option<bool> {
        self.whole(i).map(|it| it != 0)
    }

    /// The float that is passed as this argument.
    pub(crate) fn float(&self, i: usize) -> Option<f64> {
        match self.signature.get(i)? {
            Parameter::Float { width: 4 } => self.bytes(i, 4)?.f32(0).map(f64::from),
            Parameter::Float { width: 8 } => self.bytes(i, 8)?.f64(0),
            _ => None,
        }
    }

    /// The number of this type that is passed as this argument.
    pub(crate) fn element(&self, i: usize, kind: ScalarType) -> Option<i64> {
        let fits = match *self.signature.get(i)? {
            Parameter::Whole { width, .. } => kind.is_whole() && width == kind.width(),
            Parameter::Float { width } => !kind.is_whole() && width == kind.width(),
            Parameter::Pointer | Parameter::Structure(_) => false,
        };
        fits.then_some(())?;
        Some(kind.read(self.bytes(i, kind.width())?.0))
    }

    /// The structure that is passed as this argument, if it is such a one.
    pub(crate) fn structure(&self, i: usize, it: Structure<'_>) -> Option<Bytes<'a>> {
        let Parameter::Structure(name) = self.signature.get(i)? else { return None };
        it.named.iter().any(|part| name.contains(part)).then_some(())?;
        self.bytes(i, it.size)
    }
}

/// A structure's bytes. Nothing is read beyond its end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..)?.first_chunk().copied()
    }

    pub(crate) fn u8(self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    /// The number `i` of an array of indices at `at`, each one or two bytes wide.
    pub(crate) fn index(self, at: usize, i: usize, width: usize) -> Option<usize> {
        match width {
            1 => self.u8(at + i).map(usize::from),
            _ => self.array(at + 2 * i).map(|it| u16::from_le_bytes(it).into()),
        }
    }

    pub(crate) fn u32(self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    pub(crate) fn i32(self, at: usize) -> Option<i32> {
        self.array(at).map(i32::from_le_bytes)
    }

    pub(crate) fn u64(self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_le_bytes)
    }

    pub(crate) fn i64(self, at: usize) -> Option<i64> {
        self.array(at).map(i64::from_le_bytes)
    }

    pub(crate) fn f32(self, at: usize) -> Option<f32> {
        self.array(at).map(f32::from_le_bytes)
    }

    pub(crate) fn f64(self, at: usize) -> Option<f64> {
        self.array(at).map(f64::from_le_bytes)
    }

    /// A number of this type.
    pub(crate) fn element(self, at: usize, kind: ScalarType) -> Option<i64> {
        Some(kind.read(self.0.get(at..at.checked_add(kind.width())?)?))
    }

    /// What follows from `at` on.
    pub(crate) fn from(self, at: usize) -> Option<Bytes<'a>> {
        self.0.get(at..).map(Bytes)
    }
}

/// `at::cuda::detail::TensorInfo<T, unsigned int>` of `aten/src/ATen/cuda/detail/TensorInfo.cuh`:
/// `{ T *data; u32 sizes[25]; u32 strides[25]; int dims }`, strides in elements. One with positions of 64 bits begins with the
/// address, too.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TensorInfo<'a>(Bytes<'a>);

impl<'a> Arguments<'a> {
    /// Where the tensor lies that is passed as this argument, in a `TensorInfo` of any positions.
    pub(crate) fn tensor_address(&self, i: usize) -> Option<u64> {
        self.structure(i, Structure { named: &["at::cuda::detail::TensorInfo<"], size: 8 })?.u64(0)
    }

    /// The tensor that is passed as this argument, with positions of 32 bits.
    pub(crate) fn tensor(&self, i: usize) -> Option<TensorInfo<'a>> {
        let Parameter::Structure(name) = self.signature.get(i)? else { return None };
        (name.ends_with(", unsigned int>") || name.ends_with(", int>")).then_some(())?;
        let size = 8 + 4 * (2 * TensorInfo::DIMENSIONS + 1);
        self.structure(i, Structure { named: &["at::cuda::detail::TensorInfo<"], size })
            .map(TensorInfo)
    }
}

impl TensorInfo<'_> {
    /// Dimensions at most.
    pub(crate) const DIMENSIONS: usize = 25;

    pub(crate) fn address(self) -> Option<u64> {
        self.0.u64(0)
    }

    pub(crate) fn size(self, dimension: usize) -> Option<u32> {
        self.0.u32(8 + 4 * dimension.min(Self::DIMENSIONS - 1))
    }

    /// From one element to the next along that dimension, in elements.
    pub(crate) fn stride(self, dimension: usize) -> Option<u32> {
        self.0.u32(8 + 4 * (Self::DIMENSIONS + dimension.min(Self::DIMENSIONS - 1)))
    }

    /// Where the element number `row` lies, in elements.
    pub(crate) fn element_of_row(self, mut row: usize) -> Option<usize> {
        let wide = |it: u32| usize::try_from(it).ok();
        let mut at = 0_usize;
        for dim in (0..self.dims()?).rev() {
            let size = wide(self.size(dim)?)?.max(1);
            let index = if dim == 0 { row } else { row % size };
            at = at.checked_add(index.checked_mul(wide(self.stride(dim)?)?)?)?;
            row /= size;
        }
        Some(at)
    }

    /// How many dimensions there are.
    pub(crate) fn dims(self) -> Option<usize> {
        let dims = self.0.u32(8 + 4 * 2 * Self::DIMENSIONS)?;
        Some(usize::try_from(dims).ok()?.min(Self::DIMENSIONS))
    }
}

/// Arguments for tests.
#[cfg(test)]
pub(crate) mod made {
    use super::{Arguments, Parameter, Signature, c_void};

    /// One argument.
    pub(crate) enum Made<'a> {
        Address(u64),
        Int(i32),
        Unsigned(u32),
        Long(i64),
        Flag(bool),
        Float(f32),
        /// Of this name; what follows these bytes is zeros.
        Structure(&'a str, &'a [u8]),
    }

    /// The arguments of a launch, which lie in this.
    pub(crate) struct Launch {
        signature: Signature,
        addresses: Vec<*const c_void>,
        _bytes: Vec<Vec<u8>>,
    }

    impl Launch {
        pub(crate) fn of(all: &[Made<'_>]) -> Launch {
            let whole = |width, signed| Parameter::Whole { width, signed };
            let (parameters, bytes): (Vec<_>, Vec<_>) = all
                .iter()
                .map(|it| match it {
                    Made::Address(it) => (Parameter::Pointer, it.to_le_bytes().to_vec()),
                    Made::Int(it) => (whole(4, true), it.to_le_bytes().to_vec()),
                    Made::Unsigned(it) => (whole(4, false), it.to_le_bytes().to_vec()),
                    Made::Long(it) => (whole(8, true), it.to_le_bytes().to_vec()),
                    Made::Flag(it) => (whole(1, false), vec![u8::from(*it)]),
                    Made::Float(it) => (Parameter::Float { width: 4 }, it.to_le_bytes().to_vec()),
                    Made::Structure(name, bytes) => {
                        let mut bytes = bytes.to_vec();
                        bytes.resize(8192, 0);
                        (Parameter::Structure((*name).into()), bytes)
                    }
                })
                .unzip();
            let addresses = bytes.iter().map(|it: &Vec<u8>| it.as_ptr().cast()).collect();
            Launch { signature: Signature::made(parameters), addresses, _bytes: bytes }
        }

        /// Zeros for a kernel of this mangled name, with these addresses in the place of pointers.
        pub(crate) fn of_name(name: &[u8]) -> Option<Launch> {
            let signature = Signature::of(name)?;
            let bytes = vec![vec![0; 8192]; signature.len()];
            let addresses = bytes.iter().map(|it: &Vec<u8>| it.as_ptr().cast()).collect();
            Some(Launch { signature, addresses, _bytes: bytes })
        }

        pub(crate) fn arguments(&self) -> Arguments<'_> {
            // SAFETY: an address for each parameter, of bytes that are as many as it has, and of a structure more than any
            // that is read has.
            unsafe { Arguments::new(self.addresses.as_ptr(), &self.signature) }
        }
    }

    #[test]
    fn an_argument_is_read_by_its_type_or_not_at_all() {
        let launch = Launch::of(&[
            Made::Address(4096),
            Made::Int(-7),
            Made::Float(0.5),
            Made::Unsigned(u32::MAX),
        ]);
        let it = launch.arguments();
        assert_eq!([0, 1, 2, 3, 4].map(|i| it.address(i)), [Some(4096), None, None, None, None]);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|i| it.whole(i)),
            [None, Some(-7), None, Some(0xffff_ffff), None]
        );
        assert_eq!([1, 2].map(|i| it.float(i)), [None, Some(0.5)]);
        let structure = super::Structure { named: &["TensorInfo<"], size: 8 };
        assert!(it.structure(0, structure).is_none());
    }
}
