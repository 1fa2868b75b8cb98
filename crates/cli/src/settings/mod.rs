//! Settings: what an option is when it is not given. A project's file says it, or the environment, which goes before the file; the
//! option itself goes before both. Nothing of a file is ever executed, and none names a program.

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
