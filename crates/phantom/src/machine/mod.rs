//! The machine that is not there: its devices, their memory, what the driver takes of it, when work is done, and the report.

pub mod card;
pub mod completion;
mod devices;
pub mod ghosts;
pub mod memory;
pub mod neighbours;
pub mod report;
pub mod resident;

pub use self::devices::{
    LAUNCH, Machine, PRIORITIES, current_device, device_count, finish_steps, lock,
    reserve_addresses, set_current_device, watchdog_holds,
};
