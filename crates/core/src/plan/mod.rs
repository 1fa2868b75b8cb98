//! What to change so that a run fits: remedies, plans that combine them, a plan's file, and whether a run was as its plan says.
//! Which plans are tried, what they cost and how they are made edits of a script is in `plimsoll-fit`.

mod drift;
mod file;
mod remedy;
mod strange;
mod together;

pub use drift::{Drift, drift};
pub use file::PlanError;
pub use plimsoll_remedies as remedies;
pub use plimsoll_remedies::{CATALOGUE, Kind, Numbers, Offer, Op, Parameter, Point, Value, find};
pub use remedy::Remedy;
pub use together::{Plan, VERSION};
