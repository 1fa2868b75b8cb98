//! The machine that is not there: its devices, their memory, what the driver takes of it, when work is done, and the report.

pub mod card;
pub mod completion;
mod devices;
mod drawn;
pub mod ghosts;
pub mod graphs;
pub mod memory;
pub mod nccl;
pub mod neighbours;
pub mod report;
pub mod resident;
pub mod steps;

pub use self::devices::{
    LAUNCH, Machine, PRIORITIES, ask_beyond, asked_beyond, current_device, device_count, installed,
    lock, remarkable_variable, reserve_addresses, set_current_device, uuid_of, watchdog_holds,
};
