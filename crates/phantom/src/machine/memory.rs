//! The memory of one device: capacity counted in granules, addresses, contents, and the driver's
//! virtual memory management (what expandable segments are made of). Safe and without C: the
//! entry points in `runtime` and `driver` are a rim around it.

use std::collections::BTreeMap;

use crate::addresses::{Addresses, GRANULE};
use crate::machine::neighbours::{Holder, Seat, together};
use crate::machine::resident::{Handles, Resident, Threads};
use crate::machine::steps;
use plimsoll_values::Contents;

/// The card is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// A handle, an address or a range that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown;

/// Memory of one device.
#[derive(Debug)]
pub struct DeviceMemory {
    /// What the driver has of the card for all processes, contexts included.
    total: u64,
    /// What the driver lends of the host's memory beyond that.
    lent: u64,
    /// What the context of most trainings takes of it.
    usual_context: u64,
    /// Where other processes on the same device are found; `None` if there are no others.
    shared: Option<Seat>,
    /// Whether the process has a context on it, and what it was last said to hold.
    begun: bool,
    told: u64,
    /// Who else held something when it last ran out, if anybody did.
    ran_out: Vec<Holder>,
    used: u64,
    peak: u64,
    /// What the driver and libraries wanted for themselves and did not find.
    lacked: Lacked,
    /// The most that was taken beside the caching allocator, once that has said what it holds.
    other_peak: Option<u64>,
    /// What was taken beside it when it last said so, and what libraries have taken since.
    other: u64,
    addresses: Addresses,
    resident: Resident,
    /// Bytes that the program copied to the device and that we know.
    pub contents: Contents,
    /// Physical memory made by `cuMemCreate`.
    physical: BTreeMap<u64, Physical>,
    /// Where it is mapped: address to size and handle.
    mapped: BTreeMap<u64, (u64, u64)>,
    /// Where other processes' memory is: address by process and address there, and how often it was opened.
    foreign: BTreeMap<(u64, u64), (u64, u32)>,
    next_handle: u64,
}

/// What the driver and libraries wanted for themselves and did not find.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lacked {
    /// How much at most.
    pub bytes: u64,
    /// How many training steps the program had finished when that last happened.
    pub steps: u64,
}

impl Lacked {
    fn note(&mut self, bytes: u64) {
        *self = Lacked { bytes: self.bytes.max(bytes), steps: steps::finished() };
    }
}

#[derive(Debug)]
struct Physical {
    bytes: u64,
    /// The handle itself and every mapping hold it; the memory goes with the last.
    references: u32,
    released: bool,
}

impl DeviceMemory {
    /// A device of `total` bytes, of which most trainings' contexts take `usual_context`; allocations lie at addresses in `floor..ceiling`.
    pub fn new(total: u64, usual_context: u64, floor: u64, ceiling: u64) -> DeviceMemory {
        let mut addresses = Addresses::new(floor, ceiling);
        let resident = Resident::new(&mut addresses);
        DeviceMemory {
            total,
            lent: 0,
            usual_context,
            shared: None,
            begun: false,
            told: 0,
            ran_out: Vec::new(),
            used: 0,
            peak: 0,
            lacked: Lacked::default(),
            other_peak: None,
            other: 0,
            addresses,
            resident,
            contents: Contents::default(),
            physical: BTreeMap::new(),
            mapped: BTreeMap::new(),
            foreign: BTreeMap::new(),
            next_handle: 1,
        }
    }

    /// Counts what libraries and local memory take as this card has them.
    #[must_use]
    pub fn with(mut self, handles: Handles, threads: Threads) -> DeviceMemory {
        self.resident.count(handles, threads);
        self
    }

    /// The driver lends so many bytes of the host's memory once the device is full, which nobody is told of.
    #[must_use]
    pub fn lending(mut self, bytes: u64) -> DeviceMemory {
        self.lent = bytes;
        self
    }

    /// Other processes use it, too.
    pub fn share(&mut self, seat: Seat) {
        self.shared = Some(seat);
    }

    /// The process has a context there from now on, as every call that asks the device for something makes one.
    pub fn begin(&mut self) {
        self.begun = true;
        self.tell();
    }

    /// Who else holds something on it.
    pub fn others(&self) -> Vec<Holder> {
        self.shared.as_ref().map(Seat::others).unwrap_or_default()
    }

    /// What this process holds: its context and its allocations; zero if it has no context there.
    pub fn held(&self) -> u64 {
        if self.begun { self.context() + self.used } else { 0 }
    }

    /// The most that all processes held at once, context included; zero if there was never more than one.
    pub fn most_together(&self) -> u64 {
        self.shared.as_ref().map_or(0, Seat::most_together)
    }

    /// Who else held something when it last ran out.
    pub fn ran_out(&self) -> &[Holder] {
        &self.ran_out
    }

    /// Says what this process holds, if that has changed.
    fn tell(&mut self) {
        let held = self.held();
        if let Some(seat) = &self.shared
            && self.told != held
        {
            seat.hold(held);
            self.told = held;
        }
    }

    /// Takes `whole` bytes more, if there is room.
    fn take_room(&mut self, whole: u64) -> Result<(), Full> {
        self.begun = true;
        let alone = (self.total + self.lent).saturating_sub(self.context() + self.used);
        let Some(seat) = &self.shared else {
            if alone < whole {
                return Err(Full);
            }
            self.take(whole);
            return Ok(());
        };
        let taken = if alone < whole {
            Err(seat.others())
        } else {
            seat.take(self.held() + whole, self.total + self.lent)
        };
        match taken {
            Ok(()) => {
                self.take(whole);
                self.told = self.held();
                Ok(())
            }
            Err(others) => {
                self.ran_out = others;
                // Its context stays.
                self.tell();
                Err(Full)
            }
        }
    }

    /// Bytes that are taken now.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// The most that was ever taken, in bytes.
    pub fn peak(&self) -> u64 {
        self.peak
    }

    /// The most that was taken by anybody but `PyTorch`'s caching allocator, in bytes.
    pub fn other_peak(&self) -> u64 {
        self.other_peak.unwrap_or(self.peak)
    }

    /// The caching allocator holds `reserved` bytes now; the rest is somebody else's.
    pub fn allocator_holds(&mut self, reserved: u64) {
        self.other = self.used.saturating_sub(reserved);
        self.other_peak = Some(self.other_peak.unwrap_or(0).max(self.other));
    }

    /// What the context of this program takes now: it grows as the program uses kernels, streams and libraries.
    pub fn context(&self) -> u64 {
        let (more, less) = self.resident.beside();
        (self.usual_context + more).saturating_sub(less)
    }

    /// What the driver and libraries wanted for themselves and did not find.
    pub fn lacked(&self) -> Lacked {
        self.lacked
    }

    /// Bytes that can still be taken.
    pub fn free(&self) -> u64 {
        self.free_alone().saturating_sub(together(&self.others()))
    }

    /// Likewise, if there were no other process.
    fn free_alone(&self) -> u64 {
        self.total.saturating_sub(self.context() + self.used)
    }

    /// The driver or a library puts something on the device for itself: an address more is taken, and
    /// memory that the card's context has already. Where there is no room for it, the call that wanted it fails.
    pub fn reside(&mut self, what: impl FnOnce(&mut Resident, &mut Addresses)) -> Result<(), Full> {
        let (before, taken) = (self.resident.clone(), self.context());
        what(&mut self.resident, &mut self.addresses);
        self.begun = true;
        let beyond = (self.context() + self.used).saturating_sub(self.total + self.lent);
        if beyond != 0 && taken < self.context() {
            self.resident = before;
            self.lacked.note(beyond);
            return Err(Full);
        }
        self.tell();
        Ok(())
    }

    /// Something that the driver had put there is gone.
    pub fn leave(&mut self, what: impl FnOnce(&mut Resident)) {
        what(&mut self.resident);
        self.tell();
    }

    /// `cudaMalloc`.
    pub fn allocate(&mut self, bytes: u64) -> Result<u64, Full> {
        let whole = bytes.max(1).checked_next_multiple_of(GRANULE).ok_or(Full)?;
        self.take_room(whole)?;
        let Some(at) = self.addresses.take(whole) else {
            self.used -= whole;
            self.tell();
            return Err(Full);
        };
        Ok(at)
    }

    /// `cudaFree`.
    pub fn release(&mut self, at: u64) -> Result<(), Unknown> {
        if self.foreign.values().any(|it| it.0 == at) {
            return Err(Unknown);
        }
        let bytes = self.addresses.give_back(at).ok_or(Unknown)?;
        self.contents.forget(at, bytes);
        self.used -= bytes;
        self.tell();
        Ok(())
    }

    /// `cudaIpcOpenMemHandle`: `bytes` at `there` of another process get an address here, the same one each
    /// time. They are taken where they were made.
    pub fn open_foreign(&mut self, process: u64, there: u64, bytes: u64) -> Result<u64, Full> {
        if let Some((at, times)) = self.foreign.get_mut(&(process, there)) {
            *times += 1;
            return Ok(*at);
        }
        let whole = bytes.max(1).checked_next_multiple_of(GRANULE).ok_or(Full)?;
        let at = self.addresses.take(whole).ok_or(Full)?;
        self.foreign.insert((process, there), (at, 1));
        Ok(at)
    }

    /// `cudaIpcCloseMemHandle`: the address goes when it was closed as often as it was opened.
    pub fn close_foreign(&mut self, at: u64) -> Result<(), Unknown> {
        let (&key, (_, times)) = self.foreign.iter_mut().find(|it| it.1.0 == at).ok_or(Unknown)?;
        *times -= 1;
        if *times == 0 {
            self.foreign.remove(&key);
            let bytes = self.addresses.give_back(at).ok_or(Unknown)?;
            self.contents.forget(at, bytes);
        }
        Ok(())
    }

    /// The allocation or mapping that `address` lies in: start and size.
    pub fn range_of(&self, address: u64) -> Option<(u64, u64)> {
        self.addresses.range_of(address).or_else(|| {
            let (&at, &(bytes, _)) = self.mapped.range(..=address).next_back()?;
            (address < at + bytes).then_some((at, bytes))
        })
    }

    /// `cuMemCreate`: physical memory without an address.
    pub fn create(&mut self, bytes: u64) -> Result<u64, Full> {
        let whole = bytes.max(1).checked_next_multiple_of(GRANULE).ok_or(Full)?;
        self.take_room(whole)?;
        let handle = self.next_handle;
        self.next_handle += 1;
        self.physical.insert(handle, Physical { bytes: whole, references: 1, released: false });
        Ok(handle)
    }

    /// Physical memory that a library makes, and not the caching allocator; as [`DeviceMemory::create`].
    pub fn create_for_library(&mut self, bytes: u64) -> Result<u64, Full> {
        let before = self.used;
        let handle = self.create(bytes).inspect_err(|_| {
            self.lacked.note(bytes.saturating_sub(self.free()));
        })?;
        self.other += self.used - before;
        self.other_peak = self.other_peak.map(|it| it.max(self.other));
        Ok(handle)
    }

    /// `cuMemRelease`: the memory goes once it is mapped nowhere.
    pub fn release_handle(&mut self, handle: u64) -> Result<(), Unknown> {
        let physical = self.physical.get_mut(&handle).filter(|it| !it.released).ok_or(Unknown)?;
        physical.released = true;
        self.drop_reference(handle);
        Ok(())
    }

    /// `cuMemMap`.
    pub fn map(&mut self, at: u64, bytes: u64, handle: u64) -> Result<(), Unknown> {
        let physical = self.physical.get_mut(&handle).ok_or(Unknown)?;
        physical.references += 1;
        self.mapped.insert(at, (bytes, handle));
        Ok(())
    }

    /// `cuMemUnmap`: every mapping in the range.
    pub fn unmap(&mut self, at: u64, bytes: u64) -> Result<(), Unknown> {
        let end = at.saturating_add(bytes);
        let inside: Vec<(u64, u64)> =
            self.mapped.range(at..end).map(|(&at, &(_, handle))| (at, handle)).collect();
        if inside.is_empty() {
            return Err(Unknown);
        }
        self.contents.forget(at, bytes);
        for (at, handle) in inside {
            self.mapped.remove(&at);
            self.drop_reference(handle);
        }
        Ok(())
    }

    fn take(&mut self, bytes: u64) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
    }

    fn drop_reference(&mut self, handle: u64) {
        let Some(physical) = self.physical.get_mut(&handle) else { return };
        physical.references -= 1;
        if physical.references == 0 {
            self.used -= physical.bytes;
            self.physical.remove(&handle);
            self.tell();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use plimsoll_values::Room;

    const MIB: u64 = 1 << 20;
    const TOP: u64 = 0x7f00_0000_0000;

    fn device() -> DeviceMemory {
        DeviceMemory::new(618 * MIB, 760 * MIB, 0x7000_0000_0000, 0x7f00_0000_0000)
    }

    #[test]
    fn capacity_is_counted_in_granules() {
        let mut device = device();
        let a = device.allocate(1).expect("room");
        assert_eq!(device.used(), 2 * MIB);
        assert_eq!(device.allocate(99 * MIB), Err(Full));
        assert!(device.allocate(98 * MIB).is_ok());
        assert_eq!(device.free(), 0);
        assert_eq!(device.release(a), Ok(()));
        assert_eq!(device.release(a), Err(Unknown));
        assert_eq!((device.used(), device.peak()), (98 * MIB, 100 * MIB));
        assert_eq!(device.allocate(u64::MAX), Err(Full));
    }

    #[test]
    fn what_the_context_takes_cannot_be_allocated() {
        let mut device = device();
        assert_eq!((device.free(), device.context()), (100 * MIB, 518 * MIB));
        assert_eq!(device.reside(Resident::blas), Ok(()));
        assert_eq!((device.free(), device.context()), (34 * MIB, 584 * MIB));
        assert_eq!(device.allocate(36 * MIB), Err(Full));
        assert!(device.allocate(34 * MIB).is_ok());
        assert_eq!((device.free(), device.lacked().bytes), (0, 0));
        assert_eq!(device.reside(Resident::blas), Err(Full));
        assert_eq!((device.context(), device.lacked().bytes), (584 * MIB, 64 * MIB));
    }

    #[test]
    fn what_a_program_reads_and_what_is_reported_are_the_same_bytes() {
        type Use = fn(&mut Resident, &mut Addresses);
        let uses: [Use; 7] = [
            |it, addresses| it.kernel(addresses, Room::Less),
            |it, addresses| it.kernel(addresses, Room::Asserting),
            Resident::blas,
            Resident::dnn,
            Resident::solver,
            Resident::stream,
            Resident::transform,
        ];
        // Every order of three uses between allocations and frees, with and without the usual context's size being enough.
        for usual in [760 * MIB, 148 * MIB, 0] {
            for order in 0..uses.len().pow(3) {
                let mut device = DeviceMemory::new(4 << 30, usual, 0x7000_0000_0000, TOP);
                device.begin();
                let mut context = device.context();
                for i in 0..3 {
                    let block = device.allocate(30 * MIB + 5).expect("4 GiB are enough");
                    let used = uses[order / uses.len().pow(i) % uses.len()];
                    assert_eq!(device.reside(used), Ok(()));
                    assert_eq!(device.free() + device.context() + device.used(), 4 << 30);
                    assert_eq!(device.held(), (4 << 30) - device.free());
                    assert!(context <= device.context(), "a context never shrinks");
                    context = device.context();
                    if i == 1 {
                        device.release(block).expect("allocated");
                    }
                }
            }
        }
    }

    #[test]
    fn another_process_s_memory_has_an_address_and_takes_nothing() {
        let mut device = device();
        let at = device.open_foreign(7, 0x10_0000, 200 * MIB).expect("addresses");
        assert_eq!(device.open_foreign(7, 0x10_0000, 200 * MIB), Ok(at));
        assert_ne!(device.open_foreign(8, 0x10_0000, 2 * MIB), Ok(at));
        assert_eq!((device.used(), device.peak()), (0, 0));
        assert_eq!(device.range_of(at + 5), Some((at, 200 * MIB)));
        assert_eq!(device.release(at), Err(Unknown), "it is not ours to free");
        assert_eq!((device.close_foreign(at), device.close_foreign(at)), (Ok(()), Ok(())));
        assert_eq!((device.close_foreign(at), device.range_of(at)), (Err(Unknown), None));
    }

    #[test]
    fn what_the_allocator_does_not_hold_is_others() {
        let mut device = device();
        device.allocate(20 * MIB).expect("room");
        assert_eq!(device.other_peak(), 20 * MIB, "there is no allocator");
        device.allocator_holds(20 * MIB);
        assert_eq!(device.other_peak(), 0);
        let nccl = device.allocate(6 * MIB).expect("room");
        device.allocator_holds(20 * MIB);
        device.release(nccl).expect("allocated");
        device.allocator_holds(20 * MIB);
        assert_eq!(device.other_peak(), 6 * MIB);
        device.create_for_library(8 * MIB).expect("room");
        assert_eq!(device.other_peak(), 8 * MIB, "whether or not the allocator comes again");
        let free = device.free();
        assert_eq!(
            (device.create_for_library(free + MIB), device.lacked().bytes),
            (Err(Full), MIB)
        );
    }

    #[test]
    fn physical_memory_lives_as_long_as_its_handle_or_a_mapping() {
        let mut device = device();
        let handle = device.create(20 * MIB).expect("room");
        device.map(0x1000_0000, 20 * MIB, handle).expect("a handle");
        device.release_handle(handle).expect("a handle");
        assert_eq!(device.used(), 20 * MIB, "still mapped");
        assert_eq!(device.release_handle(handle), Err(Unknown), "released twice");
        assert_eq!(device.range_of(0x1000_0005), Some((0x1000_0000, 20 * MIB)));
        device.unmap(0x1000_0000, 20 * MIB).expect("a mapping");
        assert_eq!(device.used(), 0);
        assert_eq!(device.unmap(0x1000_0000, 20 * MIB), Err(Unknown));
        assert_eq!(device.create(101 * MIB), Err(Full));
    }
}
