//! Searches of programs that are made up: what is asked in which order, and what comes out. Each line of a picture is one
//! run and what it took; what people are told, if it is more than that, begins with a quotation mark.

mod allocator;
mod as_it_is;
mod blocks;
mod compiled;
mod free;
mod interrupted;
mod ladder;
mod lengths;
pub(crate) mod made;
mod measured;
mod nothing_fits;
mod parts;
mod proof;
mod recipes;
mod several;
mod value;
