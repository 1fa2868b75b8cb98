//! One file for each subcommand, each with one `run`.

#[cfg(feature = "phantom")]
pub(crate) mod agent;
#[cfg(feature = "phantom")]
pub(crate) mod calibrate;
pub(crate) mod cards;
#[cfg(feature = "phantom")]
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod config;
pub(crate) mod diff;
#[cfg(feature = "phantom")]
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod export;
#[cfg(feature = "phantom")]
pub(crate) mod exporter;
#[cfg(feature = "phantom")]
pub(crate) mod fit;
#[cfg(feature = "phantom")]
pub(crate) mod fix;
pub(crate) mod glossary;
#[cfg(feature = "phantom")]
pub(crate) mod layouts;
pub(crate) mod lint;
pub(crate) mod man;
#[cfg(feature = "phantom")]
mod misplaced;
#[cfg(feature = "phantom")]
pub(crate) mod predict;
pub(crate) mod replay;
#[cfg(feature = "phantom")]
pub(crate) mod run;
mod sarif;
#[cfg(feature = "phantom")]
pub(crate) mod top;
#[cfg(feature = "phantom")]
pub(crate) mod verify;
pub(crate) mod view;
#[cfg(feature = "phantom")]
pub(crate) mod watch;
