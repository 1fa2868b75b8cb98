//! Kernels are registered with a stub's address and a mangled name, and launched; nothing runs. What a kernel would have
//! computed is its guest's to say, [`plimsoll_values`], which lives here.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_uint, c_void};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use plimsoll_values::{
    Arguments, Contents, Kernel, Launch, Memory, Room, Settings, Thread, Values,
};

use crate::code::modules::{self, Needs};
use crate::machine::Machine;
use crate::machine::card;
use crate::machine::report;
use crate::pytorch;

/// All kernels, by the address of their stub.
static KERNELS: RwLock<BTreeMap<u64, Registered>> = RwLock::new(BTreeMap::new());

/// What kernels need that were found in modules made at run time, by their handle.
static FOUND: RwLock<BTreeMap<u64, Needs>> = RwLock::new(BTreeMap::new());

/// The guest of this process. Its lock is taken last, by whoever holds the machine's.
static VALUES: OnceLock<Mutex<Values>> = OnceLock::new();

thread_local! {
    /// What the guest keeps of this thread.
    static THREAD: Cell<Thread> = const { Cell::new(Thread::NEW) };
    static CONFIGURATIONS: Cell<Option<Configuration>> = const { Cell::new(None) };
    /// Blocks of the kernel that is launched, along their first two dimensions.
    static BLOCKS: Cell<[u32; 2]> = const { Cell::new([0; 2]) };
}

/// A kernel that a library registered. There are tens of thousands, and most are never launched: what one is is looked up
/// when it is.
#[derive(Debug)]
struct Registered {
    /// Its mangled name, which is as long there as the stub is.
    name: &'static CStr,
    /// The module that it is in, if the compiler registered it.
    module: Option<usize>,
    kernel: OnceLock<Arc<Kernel>>,
    needs: OnceLock<Needs>,
}

/// `dim3`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dim3 {
    pub(crate) x: c_uint,
    pub(crate) y: c_uint,
    z: c_uint,
}

/// What `<<<grid, block, shared, stream>>>` leaves for the stub that it calls.
#[derive(Clone, Copy)]
pub(crate) struct Configuration {
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    pub(crate) shared: usize,
    pub(crate) stream: u64,
}

/// Keeps a configuration for the stub that this thread calls next.
pub(crate) fn configure(configuration: Configuration) {
    CONFIGURATIONS.set(Some(configuration));
}

/// The configuration that this thread left, for the kernel that it launches now.
pub(crate) fn configured() -> Option<Configuration> {
    let it = CONFIGURATIONS.take()?;
    BLOCKS.set([it.grid.x, it.grid.y]);
    Some(it)
}

/// A library registers the kernel of this mangled name, with its stub and its module.
pub(crate) fn register(stub: u64, name: &'static CStr, module: usize) {
    insert(stub, name, Some(module));
}

fn insert(stub: u64, name: &'static CStr, module: Option<usize>) {
    let it = Registered { name, module, kernel: OnceLock::new(), needs: OnceLock::new() };
    KERNELS.write().unwrap_or_else(PoisonError::into_inner).insert(stub, it);
}

/// The program found a kernel of this name in a module that was made at run time: `function` is its handle, and it `needs` that.
pub(crate) fn found(function: u64, name: &CStr, needs: Needs) {
    FOUND.write().unwrap_or_else(PoisonError::into_inner).insert(function, needs);
    // Thousands of others, of which none is followed.
    if let Some(name) = Kernel::of_a_module(name) {
        insert(function, name, None);
    }
}

/// The kernel at `stub`, if one was registered.
fn kernel(stub: u64) -> Option<Arc<Kernel>> {
    let kernels = KERNELS.read().unwrap_or_else(PoisonError::into_inner);
    let it = kernels.get(&stub)?;
    Some(Arc::clone(it.kernel.get_or_init(|| Arc::new(Kernel::of(it.name.to_bytes())))))
}

/// What the kernel at `stub` needs, by its machine code; nothing where that is unknown. PyTorch's own machine code, which is large, is read for what
/// `is_captured` and for the few kernels that need much local memory only.
pub(crate) fn needs(stub: u64, is_captured: bool) -> Needs {
    let kernels = KERNELS.read().unwrap_or_else(PoisonError::into_inner);
    if let Some((it, module)) = kernels.get(&stub).and_then(|it| Some((it, it.module?))) {
        let is_foreign = modules::is_foreign(module);
        let spills = || it.kernel.get().is_some_and(|it| it.spills());
        if !is_captured && !is_foreign && !spills() {
            return Needs::default();
        }
        return *it.needs.get_or_init(|| Needs { is_foreign, ..modules::needs(module, it.name) });
    }
    drop(kernels);
    let found = FOUND.read().unwrap_or_else(PoisonError::into_inner);
    let made = |it: &Needs| Needs { is_foreign: modules::has_foreign(), ..*it };
    found.get(&stub).map(made).unwrap_or_default()
}

/// The kernel at `stub` was launched on this thread, on `machine`. Returns what it makes the driver take.
///
/// # Safety
///
/// `arguments` must be what the stub at `stub` passes to a launch, or null.
pub(crate) unsafe fn launched(
    stub: u64,
    arguments: *const *const c_void,
    machine: &mut Machine,
) -> Room {
    let kernel = kernel(stub);
    let signature = kernel.as_ref().and_then(|it| it.signature());
    let signature = signature.filter(|_| !arguments.is_null());
    // SAFETY: the arguments of a kernel of this name, until this returns.
    let arguments = signature.map(|it| unsafe { Arguments::new(arguments, it) });
    let kernel = kernel.as_deref();
    let launch = Launch { kernel, arguments, identity: stub, blocks: BLOCKS.get() };
    with_values(|values, thread| values.launched(launch, thread, machine));
    kernel.map_or(Room::Usual, Kernel::room)
}

/// Whether the kernel at `stub` needs so few registers that a multiprocessor holds as many blocks of
/// it as its threads allow.
pub(crate) fn is_light(stub: u64) -> bool {
    kernel(stub).is_some_and(|it| it.is_light())
}

/// Asks the guest, for this thread. Whoever needs the machine, too, locks that first.
pub(crate) fn with_values<R>(ask: impl FnOnce(&mut Values, &mut Thread) -> R) -> R {
    let values = VALUES.get_or_init(|| Mutex::new(Values::new(settings())));
    let mut values = values.lock().unwrap_or_else(PoisonError::into_inner);
    let mut thread = THREAD.get();
    let answer = ask(&mut values, &mut thread);
    THREAD.set(thread);
    for it in values.take_remarks() {
        if it.decides_size {
            report::assume(it.sentence);
        } else {
            report::approximate(it.sentence);
        }
    }
    answer
}

fn settings() -> Settings {
    let Some(card) = card::current() else { return Settings::default() };
    Settings {
        imitates: card.imitates_values,
        nonzero_millionths: card.assumed_nonzero_millionths,
        unique_millionths: card.assumed_unique_millionths,
        experts_millionths: card.assumed_experts_millionths,
        overflows: card.assumed_overflows,
        long_lists: pytorch::versions().is_some_and(|[it, cuda]| (2, 12) <= it && (13, 0) <= cuda),
        multiprocessors: usize::try_from(card.sm_count).unwrap_or(0),
        threads_per_multiprocessor: usize::try_from(card.max_threads_per_sm).unwrap_or(0),
    }
}

impl Memory for Machine {
    fn current(&mut self) -> &mut Contents {
        &mut Machine::current(self).contents
    }

    fn at(&mut self, address: u64) -> Option<&mut Contents> {
        let (device, ..) = self.device_of(address)?;
        Some(&mut self.devices[device].contents)
    }
}
