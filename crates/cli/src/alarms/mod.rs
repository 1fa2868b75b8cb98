//! Alarms of watched runs: read from what the agent writes, put into words, passed on. What an alarm says is core's.

mod client;
mod news;
mod sinks;
mod teller;

pub(crate) use self::{
    news::News,
    sinks::Sinks,
    teller::{Teller, label},
};
