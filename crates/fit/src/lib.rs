//! The runs that `plimsoll fit` makes. The search (in `plimsoll-core`) says which run it wants to know about; [`trials`] decides how that run
//! is made: out of a nursery or as a process of its own, with weights that have values or without, beside others or alone. Nothing here starts a
//! process: an executor does, and is a [`trials::Workshop`].

#![forbid(unsafe_code)]

pub mod trials;
