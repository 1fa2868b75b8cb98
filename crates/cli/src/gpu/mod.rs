//! Real GPUs and their stand-ins: this machine's devices and who is on them, the user's own cards, and `nvidia-smi` for scripts.

#[cfg(feature = "phantom")]
pub(crate) mod devices;
#[cfg(feature = "phantom")]
pub(crate) mod machine;
#[cfg(feature = "phantom")]
pub(crate) mod nvidia_smi;
pub(crate) mod own_cards;
