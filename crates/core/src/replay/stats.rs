//! What the allocator counts, under PyTorch's names (`torch.cuda.memory_stats`).

use crate::trace::SizeClass;

/// One number that goes up and down (`Stat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Now.
    pub current: u64,
    /// The most that it was.
    pub peak: u64,
    /// The sum of all increases.
    pub allocated: u64,
    /// The sum of all decreases.
    pub freed: u64,
}

/// The same for both halves of the pools (`StatArray`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatArray {
    /// Both halves.
    pub all: Stat,
    /// Blocks of at most 1 MiB.
    pub small_pool: Stat,
    /// Larger blocks.
    pub large_pool: Stat,
}

/// Everything that `memory_stats` has (`DeviceStats`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Blocks that the program has.
    pub allocation: StatArray,
    /// Segments of `cudaMalloc`; mapped ranges do not count.
    pub segment: StatArray,
    /// Blocks that the program has, or another stream may be using.
    pub active: StatArray,
    /// Free blocks of segments that are not wholly free.
    pub inactive_split: StatArray,
    /// Bytes of [`Stats::allocation`].
    pub allocated_bytes: StatArray,
    /// Bytes got from the driver.
    pub reserved_bytes: StatArray,
    /// Bytes of [`Stats::active`].
    pub active_bytes: StatArray,
    /// Bytes of [`Stats::inactive_split`].
    pub inactive_split_bytes: StatArray,
    /// What the program asked for, of [`Stats::active`].
    pub requested_bytes: StatArray,
    /// Blocks of at least `max_split_size`.
    pub oversize_allocations: Stat,
    /// Segments of at least `max_split_size`.
    pub oversize_segments: Stat,
    /// How often all caches were released and the driver was asked again.
    pub num_alloc_retries: u64,
    /// How often a request failed.
    pub num_ooms: u64,
    /// How often all streams were waited for.
    pub num_sync_all_streams: u64,
    /// How often the driver gave memory.
    pub num_device_alloc: u64,
    /// How often it got some back.
    pub num_device_free: u64,
    /// How often a request was refused because of the fraction alone (2.12).
    pub num_oom_rejections: u64,
}

impl Stat {
    /// More by `amount`.
    pub(super) fn increase(&mut self, amount: u64) {
        self.current = self.current.saturating_add(amount);
        self.peak = self.peak.max(self.current);
        self.allocated = self.allocated.saturating_add(amount);
    }

    /// Less by `amount`.
    pub(super) fn decrease(&mut self, amount: u64) {
        self.current = self.current.saturating_sub(amount);
        self.freed = self.freed.saturating_add(amount);
    }
}

impl StatArray {
    pub(super) fn increase(&mut self, class: SizeClass, amount: u64) {
        self.all.increase(amount);
        self.of(class).increase(amount);
    }

    pub(super) fn decrease(&mut self, class: SizeClass, amount: u64) {
        self.all.decrease(amount);
        self.of(class).decrease(amount);
    }

    fn of(&mut self, class: SizeClass) -> &mut Stat {
        match class {
            SizeClass::Small => &mut self.small_pool,
            SizeClass::Large => &mut self.large_pool,
        }
    }
}

impl Stats {
    /// Forgets how it came to be as it is: peaks and sums count from here.
    pub(super) fn begin_here(&mut self) {
        let begin = |stat: &mut Stat| {
            *stat = Stat { current: stat.current, peak: stat.current, allocated: 0, freed: 0 };
        };
        for array in [
            &mut self.allocation,
            &mut self.segment,
            &mut self.active,
            &mut self.inactive_split,
            &mut self.allocated_bytes,
            &mut self.reserved_bytes,
            &mut self.active_bytes,
            &mut self.inactive_split_bytes,
            &mut self.requested_bytes,
        ] {
            begin(&mut array.all);
            begin(&mut array.small_pool);
            begin(&mut array.large_pool);
        }
        begin(&mut self.oversize_allocations);
        begin(&mut self.oversize_segments);
    }

    /// Every number under its key in `torch.cuda.memory_stats`.
    pub fn named(&self) -> Vec<(String, u64)> {
        let mut res = Vec::new();
        let mut stat = |name: String, it: &Stat| {
            res.push((format!("{name}.current"), it.current));
            res.push((format!("{name}.peak"), it.peak));
            res.push((format!("{name}.allocated"), it.allocated));
            res.push((format!("{name}.freed"), it.freed));
        };
        for (name, array) in self.arrays() {
            stat(format!("{name}.all"), &array.all);
            stat(format!("{name}.small_pool"), &array.small_pool);
            stat(format!("{name}.large_pool"), &array.large_pool);
        }
        stat("oversize_allocations".to_owned(), &self.oversize_allocations);
        stat("oversize_segments".to_owned(), &self.oversize_segments);
        res.extend(self.counters().map(|(name, count)| (name.to_owned(), count)));
        res
    }

    /// The arrays by PyTorch's names.
    fn arrays(&self) -> [(&'static str, &StatArray); 9] {
        [
            ("allocation", &self.allocation),
            ("segment", &self.segment),
            ("active", &self.active),
            ("inactive_split", &self.inactive_split),
            ("allocated_bytes", &self.allocated_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("active_bytes", &self.active_bytes),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
        ]
    }

    /// The counters by PyTorch's names.
    fn counters(&self) -> [(&'static str, u64); 5] {
        [
            ("num_alloc_retries", self.num_alloc_retries),
            ("num_ooms", self.num_ooms),
            ("num_sync_all_streams", self.num_sync_all_streams),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
        ]
    }
}
