//! Settings: what an option is when it is not given. A project's file says it, or the environment, which goes before the file; the
//! option itself goes before both. Nothing of a file is ever executed, none names a program, and none weakens what keeps the user's files
//! from a script.

mod file;
mod grammar;
mod here;
mod rows;
mod set;
mod value;

pub(crate) use self::{
    grammar::parse,
    here::Settings,
    rows::{OF_MACHINE, ROWS},
    set::Origin,
};
