//! What the sensors of a device that does nothing say: nothing runs on a phantom, so it is cool and takes
//! little power, always. What depends on the board and nobody measured (fans, power limits, links) is not
//! supported, as on many real boards.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong};
use std::sync::OnceLock;
use std::time::Instant;

use super::{INVALID_ARGUMENT, NOT_SUPPORTED, ordinal, put};
use crate::border::runtime::{pci_bus_id, write_text};
use crate::machine::card;

const CELSIUS: c_uint = 30;
const MILLIWATTS: c_uint = 75_000;

/// `value` for a device that is there.
fn reads<T>(handle: u64, out: *mut T, value: T) -> i32 {
    ordinal(handle).map_or(INVALID_ARGUMENT, |_| put(out, value))
}

/// C functions `(device, out *T)` that always answer the same.
macro_rules! constants {
    ($($name:ident: $kind:ty = $value:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(handle: u64, out: *mut $kind) -> i32 {
            reads(handle, out, $value)
        }
    )*};
}

constants! {
    nvmlDeviceGetPowerUsage: c_uint = MILLIWATTS;
    nvmlDeviceGetPerformanceState: c_uint = 0;
    nvmlDeviceGetPowerState: c_uint = 0;
    nvmlDeviceGetPersistenceMode: c_uint = 1;
    nvmlDeviceGetComputeMode: c_uint = 0;
    nvmlDeviceGetCurrentClocksThrottleReasons: c_ulonglong = 0;
    nvmlDeviceGetCurrentClocksEventReasons: c_ulonglong = 0;
}

/// C functions `(device, out)` of what is not known.
macro_rules! unsupported {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name(_handle: u64, _out: *mut c_uint) -> i32 {
            NOT_SUPPORTED
        }
    )*};
}

unsupported! {
    nvmlDeviceGetFanSpeed
    nvmlDeviceGetPowerManagementLimit
    nvmlDeviceGetPowerManagementDefaultLimit
    nvmlDeviceGetEnforcedPowerLimit
    nvmlDeviceGetBrand
    nvmlDeviceGetBoardId
    nvmlDeviceGetCurrPcieLinkGeneration
    nvmlDeviceGetCurrPcieLinkWidth
    nvmlDeviceGetMaxPcieLinkGeneration
    nvmlDeviceGetMaxPcieLinkWidth
}

/// Only the sensor of the chip, 0, is there.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTemperature(handle: u64, sensor: c_uint, out: *mut c_uint) -> i32 {
    if sensor != 0 { INVALID_ARGUMENT } else { reads(handle, out, CELSIUS) }
}

/// `nvmlTemperature_t`.
#[repr(C)]
pub struct Temperature {
    version: c_uint,
    sensor: c_uint,
    celsius: c_int,
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTemperatureV(handle: u64, out: *mut Temperature) -> i32 {
    if out.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: not null; the caller has set the version and the sensor.
    let Temperature { version, sensor, .. } = unsafe { out.read() };
    let celsius = c_int::try_from(CELSIUS).unwrap_or(0);
    if sensor != 0 {
        return INVALID_ARGUMENT;
    }
    reads(handle, out, Temperature { version, sensor, celsius })
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTemperatureThreshold(_: u64, _: c_uint, _: *mut c_uint) -> i32 {
    NOT_SUPPORTED
}

/// Millijoules since somebody first asked.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetTotalEnergyConsumption(handle: u64, out: *mut c_ulonglong) -> i32 {
    static SINCE: OnceLock<Instant> = OnceLock::new();
    let seconds = SINCE.get_or_init(Instant::now).elapsed().as_millis() / 1000;
    let used = u64::try_from(seconds).unwrap_or(u64::MAX).saturating_mul(u64::from(MILLIWATTS));
    reads(handle, out, used)
}

/// Megahertz of graphics (0), multiprocessors (1), memory (2) or video (3).
fn clock(kind: c_uint) -> c_uint {
    let khz =
        card::current().map_or(0, |it| if kind == 2 { it.memory_clock_khz } else { it.clock_khz });
    c_uint::try_from(khz / 1000).unwrap_or(0)
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetClockInfo(handle: u64, kind: c_uint, out: *mut c_uint) -> i32 {
    reads(handle, out, clock(kind))
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMaxClockInfo(handle: u64, kind: c_uint, out: *mut c_uint) -> i32 {
    reads(handle, out, clock(kind))
}

/// Not split into instances, and never will be.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMigMode(handle: u64, now: *mut c_uint, pending: *mut c_uint) -> i32 {
    match reads(handle, now, 0) {
        0 => reads(handle, pending, 0),
        status => status,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetMinorNumber(handle: u64, out: *mut c_uint) -> i32 {
    ordinal(handle).map_or(INVALID_ARGUMENT, |it| put(out, it))
}

/// No process draws.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetGraphicsRunningProcesses_v3(
    handle: u64,
    count: *mut c_uint,
    _out: *mut std::ffi::c_void,
) -> i32 {
    reads(handle, count, 0)
}

/// `nvmlPciInfo_t`.
#[repr(C)]
pub struct PciInfo {
    short_name: [u8; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    name: [u8; 32],
}

/// `text` with zeros behind it.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut res = [0; N];
    res.iter_mut().zip(text.bytes()).take(N - 1).for_each(|(to, from)| *to = from);
    res
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetPciInfo_v3(handle: u64, out: *mut PciInfo) -> i32 {
    let Some(at) = ordinal(handle) else { return INVALID_ARGUMENT };
    let name = pci_bus_id(at);
    let info = PciInfo {
        short_name: padded(&name),
        domain: 0,
        bus: at + 1,
        device: 0,
        device_id: 0,
        subsystem_id: 0,
        name: padded(&format!("0000{name}")),
    };
    put(out, info)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetNVMLVersion(text: *mut c_char, length: c_uint) -> i32 {
    // SAFETY: the caller's buffer and its length.
    unsafe { write_text(text, c_int::try_from(length).unwrap_or(0), "13.580.65.06") }
}

/// The only process that is told of is this one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlSystemGetProcessName(
    _pid: c_uint,
    text: *mut c_char,
    length: c_uint,
) -> i32 {
    let name = std::env::current_exe().unwrap_or_default();
    // SAFETY: the caller's buffer and its length.
    unsafe { write_text(text, c_int::try_from(length).unwrap_or(0), &name.to_string_lossy()) }
}
