//! Values that decide how large the next tensor is: how many elements `nonzero()` found (boolean
//! indexing, `masked_select`, `torch.where` of one argument and the choice of an expert's tokens all
//! ask it), how many `unique()` and `coalesce()` left.
//!
//! A mask that the program copied to the device is counted truly. So is one that says which tokens
//! go to which expert: which experts a router chooses is unknown, but a router is trained to spread
//! its tokens evenly, so the indices of a small `topk` are drawn at random, and a comparison of
//! known numbers is computed. Of everything else the user may say what share is found
//! (`plimsoll predict --assume nonzero=0.1`); unless told, masks find nothing, values are all different,
//! non-maximum suppression keeps every box, and the report says where.

use std::collections::BTreeSet;

use crate::arguments::Arguments;
use crate::guesses::choices;
use crate::guesses::{Guesses, OfThread};
use crate::memory::contents::{Contents, KEEP_COMPUTED};
use crate::memory::writes;
use crate::memory::{MOST_LOOKED_AT, Memory, known_among};
use crate::names;
use crate::types::{ScalarType, as_f64, number_after};

/// Kernels that count, or whose values are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// CUB's reduction over `at::native::NonZeroOp`, of elements of that many bytes; the address of the first
    /// stands that many bytes into the iterator.
    NonZero { width: u64, within: usize },
    /// The second half of a CUB reduction, over what the first half left.
    Partials,
    /// CUB's unique-by-key, which is what `coalesce()` counts with.
    UniqueByKey,
    /// What `unique()` counts with: a selection, or Thrust's for rows. Elements of that many bytes, or of some that we do not
    /// look at; how many there are stands at this argument.
    Unique { width: u64, items: usize, within: usize },
    /// A run-length encoding, with which `unique()` also counts how often each is there.
    Runs { width: u64, within: usize },
    /// `nms_kernel_impl` of torchvision is followed by `gather_keep_from_mask`, which says what is kept.
    NonMaximumSuppression,
    /// `gatherTopK` of `at::native::sbtopk` and `mbtopk` with 32-bit positions, of elements of this type if we follow it.
    TopK { key: Option<ScalarType> },
    /// `gatherKthValue`, and `gatherMedian`: one element of each slice, and its place.
    OneOfEach { key: Option<ScalarType>, is_median: bool },
}

/// What a launch means for the next value that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Launched {
    /// It is this count.
    Asks(Count),
    /// It is what it was.
    Continues,
    /// It is none that we know.
    Nothing,
}

/// A count that the program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count {
    /// Where the elements are that are counted if they are not zero; 0 if they are nowhere.
    operand: u64,
    /// Bytes of one.
    width: u64,
    /// How many there are.
    items: u64,
    what: What,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Elements that are not zero.
    NonZero,
    /// Elements that differ from the one before. How often each is there goes to `counts`; 0 if nobody asks.
    Different { counts: u64 },
    /// Indices of a sparse tensor that differ from the one before, on their way to `coalesce()`.
    Indices,
}

/// The most bytes that are computed for a value to be known.
const MOST: u64 = 1 << 20;

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        let find = |part: &[u8]| names::position(name, part);
        let after = |parts: &[&'static [u8]]| {
            names::one_of(name, parts).and_then(|it| Some(&name[find(it)? + it.len()..]))
        };
        let unique = |width, items| {
            let within = names::address_within(name);
            Kernel::Unique { width, items, within }
        };
        let reduces = find(names::DEVICE_REDUCE_SINGLE_TILE).or(find(names::DEVICE_REDUCE));
        if let Some(at) = find(names::NON_ZERO).filter(|_| reduces.is_some()) {
            let width = width(&name[at + names::NON_ZERO.len()..])?;
            return Some(Kernel::NonZero { width, within: names::address_within(name) });
        }
        if find(names::DEVICE_REDUCE_SINGLE_TILE).is_some() {
            return Some(Kernel::Partials);
        }
        if find(names::DEVICE_UNIQUE_BY_KEY_SWEEP).is_some() {
            return Some(Kernel::UniqueByKey);
        }
        if find(names::DEVICE_SELECT_SWEEP).and(find(names::EQUAL_TO)).is_some() {
            let key = after(&[names::POLICY_HUB, names::SELECT_POLICY]);
            // Truth values are read as numbers of 32 bits.
            let key = if find(names::LOAD_BOOL).is_some() { Some(b"b".as_slice()) } else { key };
            return Some(unique(key.and_then(width).unwrap_or(0), 7));
        }
        let of_runs = after(&[names::RUN_LENGTH_POLICY, names::RUN_LENGTH_POLICY_OF_12]);
        if let Some(key) = of_runs.filter(|_| find(names::DEVICE_REDUCE_BY_KEY).is_some()) {
            let within = names::address_within(name);
            return Some(Kernel::Runs { width: width(key).unwrap_or(0), within });
        }
        if find(names::UNIQUE_AGENT).is_some() {
            return Some(unique(0, 4));
        }
        // Rows, whose places are compared by what they lead to. Since torch 2.15.
        if find(names::DEVICE_SELECT_SWEEP).and(find(names::UNIQUE_DIM)).is_some() {
            return Some(unique(0, 7));
        }
        if find(names::GATHER_KEEP_FROM_MASK).is_some() {
            return Some(Kernel::NonMaximumSuppression);
        }
        let of_each = [(names::GATHER_KTH_VALUE, false), (names::GATHER_MEDIAN, true)];
        if let Some((part, is_median)) = of_each.into_iter().find(|(it, _)| find(it).is_some()) {
            return Some(Kernel::OneOfEach { key: number_after(name, part), is_median });
        }
        // `sbtopk` and `mbtopk`: a slice is one block's, or several blocks'.
        const TOPK: &[u8] = names::GATHER_TOP_K;
        let topk = find(TOPK)?;
        // The element type, then `j`: 32-bit positions.
        let rest = &name[topk + TOPK.len()..];
        let key = number_after(name, TOPK);
        rest.windows(3).take(20).any(|it| it == b"jLi").then_some(Kernel::TopK { key })
    }

    /// CUB's reduction of bytes and numbers: on an H200 its temporary storage is that of eight blocks
    /// of 256 threads on each multiprocessor, which is all that there is room for.
    pub(crate) fn is_light(self) -> bool {
        matches!(self, Kernel::NonZero { .. })
    }

    /// The kernel was launched. `None` if its arguments are not what they should be.
    pub(crate) fn launched(
        self,
        arguments: Arguments<'_>,
        memory: &mut dyn Memory,
        guesses: &mut Guesses,
    ) -> Option<Launched> {
        let wide = |i: usize| arguments.whole(i).map(i64::cast_unsigned);
        // What was there before is not the count: deterministic algorithms fill what is new with the largest number.
        let mut overwrite = |i: usize| {
            let at = arguments.address(i)?;
            memory.at(at)?.forget_span(at, 8);
            Some(())
        };
        Some(match self {
            Kernel::NonZero { width, within } => {
                // An iterator, which has the address; where the result goes; how many.
                let (operand, items) = (arguments.elements(0, within)?, wide(2)?);
                overwrite(1);
                Launched::Asks(Count { operand, width, items, what: What::NonZero })
            }
            Kernel::Partials => {
                overwrite(1);
                Launched::Continues
            }
            Kernel::UniqueByKey => {
                // Keys, values, both results, the count, state, equality, and how many.
                let (items, count) = (wide(7)?, arguments.address(4)?);
                // Of indices that are known, the count was written with what is left.
                if memory.at(count)?.known(count, 4).is_some() {
                    return Some(Launched::Nothing);
                }
                Launched::Asks(Count { operand: 0, width: 0, items, what: What::Indices })
            }
            Kernel::Unique { width, items, within } => {
                let (operand, items) = (arguments.elements(0, within)?, wide(items)?);
                // In, flags, out, the count; Thrust's for rows leaves it elsewhere.
                overwrite(3);
                Launched::Asks(Count { operand, width, items, what: What::Different { counts: 0 } })
            }
            Kernel::Runs { width, within } => {
                // In, out, ones, how often, the count.
                let (operand, items) = (arguments.elements(0, within)?, wide(9)?);
                let counts = arguments.address(3)?;
                overwrite(4);
                Launched::Asks(Count { operand, width, items, what: What::Different { counts } })
            }
            Kernel::NonMaximumSuppression => {
                // A truth value for each box, the mask, and how many boxes.
                let (kept, boxes) = (arguments.address(0)?, wide(2)?);
                if boxes <= MOST {
                    write(memory, kept, &vec![1; usize::try_from(boxes).unwrap_or(0)]);
                    guesses.remarks.assume("plimsoll assumed that nms() keeps every box");
                }
                Launched::Nothing
            }
            Kernel::TopK { key } => {
                // The input, its slices' size, how many are chosen, from the top or not, how many slices, a stride, the values,
                // a stride, the indices, and a stride.
                let narrow = |i: usize| u32::try_from(arguments.whole(i)?).ok();
                let (from, values, indices) = (
                    arguments.tensor_address(0)?,
                    arguments.tensor_address(6)?,
                    arguments.tensor_address(8)?,
                );
                let from =
                    Slices { from, size: narrow(1)?, chosen: narrow(2)?, slices: narrow(4)? };
                let largest = arguments.flag(3)?;
                // Slices that lie one after the other, as all three tensors have them.
                let dense = [narrow(5)?, narrow(7)?, narrow(9)?] == [1; 3];
                let known = key.filter(|_| dense).and_then(|it| from.choose(it, largest, memory));
                if let Some((found, places)) = known {
                    write(memory, values, &found);
                    write(memory, indices, &places);
                } else {
                    let out = key.filter(|_| dense).and_then(|it| from.out(it, largest, memory));
                    from.choose_any(indices, &out.unwrap_or_default(), memory, guesses);
                }
                Launched::Nothing
            }
            Kernel::OneOfEach { key, is_median } => {
                // The input, its slices' size, which one, how many slices, a stride, the values, the indices; of a median the results first,
                // and not which one.
                let (input, [value, index], size, slices, stride) =
                    if is_median { (2, [0, 1], 3, 4, 5) } else { (0, [5, 6], 1, 3, 4) };
                let narrow = |i: usize| u32::try_from(arguments.whole(i)?).ok();
                let (size, slices) = (narrow(size)?, narrow(slices)?);
                let which = if is_median { size.div_ceil(2) } else { narrow(2)? };
                let [values, indices] =
                    [arguments.tensor_address(value)?, arguments.tensor_address(index)?];
                let from =
                    Slices { from: arguments.tensor_address(input)?, size, chosen: 1, slices };
                let dense = narrow(stride)? == 1
                    && arguments.tensor(input).is_some_and(|it| {
                        // The last row begins where it does if all lie one after the other.
                        let last = usize::try_from(slices.saturating_sub(1)).unwrap_or(0);
                        let size = usize::try_from(size).unwrap_or(0);
                        it.element_of_row(last) == last.checked_mul(size)
                    });
                let known =
                    key.filter(|_| dense).and_then(|it| from.one_of_each(it, which, memory));
                if let Some((found, places)) = known {
                    write(memory, values, &found);
                    write(memory, indices, &places);
                } else {
                    let sizes = (size.into(), 1, slices.into());
                    let places = guesses.choices.choose(sizes, &[]);
                    if let (Some(places), Some(contents)) = (places, memory.at(indices)) {
                        contents.write_chosen(indices, &places);
                    }
                    guesses.remarks.assume(
                        "plimsoll drew at random the places that kthvalue() and median() find among numbers that are unknown or NaN",
                    );
                }
                Launched::Nothing
            }
        })
    }
}

/// What `topk` chooses from.
struct Slices {
    from: u64,
    /// Of one slice.
    size: u32,
    chosen: u32,
    slices: u32,
}

impl Slices {
    /// The number that is the `which`-th smallest of each slice, and its place, if all of them are known, and all are numbers.
    fn one_of_each(
        &self,
        key: ScalarType,
        which: u32,
        memory: &mut dyn Memory,
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        let few = |it: u32| usize::try_from(it).ok();
        let (size, which, slices) = (few(self.size)?, few(which)?, few(self.slices)?);
        let width = key.width();
        let bytes = size.checked_mul(slices)?.checked_mul(width)?;
        if which == 0 || size < which || writes::MOST * 8 < bytes {
            return None;
        }
        let all = memory.at(self.from)?.known(self.from, bytes)?;
        let (mut found, mut places) = (Vec::new(), Vec::new());
        let is_nan = |it: &[u8]| !key.is_whole() && as_f64(key.read(it)).is_nan();
        if all.chunks_exact(width).any(is_nan) {
            return None;
        }
        for slice in all.chunks_exact(size * width) {
            let mut order: Vec<usize> = (0..size).collect();
            order.sort_by_key(|i| key.ordered(&slice[i * width..]));
            let it = order[which - 1];
            found.extend_from_slice(&slice[it * width..][..width]);
            places.extend(u64::try_from(it).ok()?.to_le_bytes());
        }
        Some((found, places))
    }

    /// The chosen elements and their places, if all that they are chosen from is known: those beyond the last one in their
    /// order, then its equals. They are sorted afterwards.
    fn choose(
        &self,
        key: ScalarType,
        largest: bool,
        memory: &mut dyn Memory,
    ) -> Option<(Vec<u8>, Vec<u8>)> {
        let few = |it: u32| usize::try_from(it).ok();
        let (size, chosen, slices) = (few(self.size)?, few(self.chosen)?, few(self.slices)?);
        let width = key.width();
        let bytes = size.checked_mul(slices)?.checked_mul(width)?;
        if chosen == 0 || size < chosen || writes::MOST * 8 < bytes {
            return None;
        }
        let all = memory.at(self.from)?.known(self.from, bytes)?;
        let (mut found, mut places) = (Vec::new(), Vec::new());
        for slice in all.chunks_exact(size * width) {
            let rank = |i: usize| {
                let it = key.ordered(&slice[i * width..]);
                if largest { !it } else { it }
            };
            let mut order: Vec<(u64, usize)> = (0..size).map(|i| (rank(i), i)).collect();
            order.sort_unstable();
            order.truncate(chosen);
            let last = order[chosen - 1].0;
            order.sort_unstable_by_key(|it| (it.0 == last, it.1));
            for (_, i) in order {
                found.extend_from_slice(&slice[i * width..][..width]);
                places.extend(u64::try_from(i).ok()?.to_le_bytes());
            }
        }
        Some((found, places))
    }

    /// The places of each slice whose numbers are known, and are none of the best; see [`choices::is_out`].
    fn out(
        &self,
        key: ScalarType,
        largest: bool,
        memory: &mut dyn Memory,
    ) -> Option<Vec<BTreeSet<u64>>> {
        let size = usize::try_from(self.size).ok()?;
        let all = size.checked_mul(usize::try_from(self.slices).ok()?)?;
        if key.is_whole() || MOST_LOOKED_AT < all {
            return None;
        }
        let width = u64::try_from(size * key.width()).ok()?;
        let contents = memory.at(self.from)?;
        let slices = u64::from(self.slices);
        // What is computed where it is read would be, all of it.
        let is_some = contents.knows_any(self.from, slices * width) && !contents.is_lazy(self.from);
        is_some.then_some(())?;
        let known = |at, size| contents.known(at, size);
        let knows_any = |at, size| contents.knows_any(at, size);
        let places = |slice: u64| {
            let at = self.from + slice * width;
            let found = known_among(at, (size, key.width()), &known, &knows_any);
            let is_out = |bytes: &[u8]| choices::is_out(as_f64(key.read(bytes)), largest);
            let out = found.filter(|(_, it)| is_out(it));
            out.filter_map(|(i, _)| u64::try_from(i).ok()).collect()
        };
        Some((0..slices).map(places).collect())
    }

    /// Writes indices of which nobody knows better: as [`choices`] has them.
    fn choose_any(
        &self,
        indices: u64,
        out: &[BTreeSet<u64>],
        memory: &mut dyn Memory,
        guesses: &mut Guesses,
    ) {
        let (size, chosen) = (self.size.into(), self.chosen.into());
        let values = guesses.choices.choose((size, chosen, self.slices.into()), out);
        let Some(values) = values else { return };
        if let Some(contents) = memory.at(indices) {
            contents.write_chosen(indices, &values);
        }
        guesses.remarks.assume(if size <= choices::FEW {
            "plimsoll answered topk() with evenly spaced indices; if they choose experts, --assume experts=worst shows the largest rank"
        } else {
            "topk() of more than 256 values is random on a phantom and never finds the end-of-text token, so generation runs to its full length"
        });
    }
}

/// Bytes of the type that a mangled name goes on with.
fn width(mangled: &[u8]) -> Option<u64> {
    Some(match mangled.first()? {
        b'b' | b'a' | b'h' => 1,
        b's' | b't' => 2,
        b'i' | b'j' | b'f' => 4,
        b'l' | b'm' | b'x' | b'y' | b'd' => 8,
        b'N' if mangled.starts_with(names::C10_HALF) || mangled.starts_with(names::C10_BRAIN) => 2,
        _ => return None,
    })
}

/// `result[i] = operand[i] == scalar`, or `!=` if `negated`, where the operand is known.
pub(crate) fn compare(
    memory: &mut dyn Memory,
    (result, operand): (u64, u64),
    count: u64,
    scalar: i64,
    negated: bool,
) {
    let Some(bytes) = count.checked_mul(8).filter(|&it| it <= MOST) else { return };
    let mut known = vec![0; usize::try_from(bytes).unwrap_or(0)];
    let Some(contents) = memory.at(operand) else { return };
    if contents.read(operand, &mut known) != 0 {
        return;
    }
    let values: Vec<u8> = known
        .chunks_exact(8)
        .map(|it| u8::from((it == scalar.to_le_bytes().as_slice()) != negated))
        .collect();
    write(memory, result, &values);
}

fn write(memory: &mut dyn Memory, at: u64, values: &[u8]) {
    if let Some(contents) = memory.at(at) {
        contents.write(at, values);
    }
}

impl Count {
    /// How many it is. What is assumed of a mask is written into it, so that whoever asks again, as the
    /// backward pass does, or asks for the rest, is told the same.
    pub(crate) fn answer(
        self,
        contents: &mut Contents,
        guesses: &mut Guesses,
        thread: &mut OfThread,
    ) -> u64 {
        if let Some(count) = self.true_answer(contents) {
            return count;
        }
        if thread.kept == ALL && self.what == What::NonZero {
            return self.items;
        }
        let kept = u64::try_from(thread.kept).ok();
        match self.what {
            What::Indices => {
                guesses.remarks.assume("coalesce() was assumed to find no index twice");
                self.items
            }
            What::Different { .. } if kept.is_some() => 1.min(self.items),
            What::Different { counts } => {
                let assumed = guesses.settings.unique_millionths;
                guesses.remarks.assume(if assumed.is_some() {
                    "unique() found the share that --assume gives"
                } else {
                    "unique() was assumed to find no value twice; give the true share with --assume unique=0.1"
                });
                let found = self.share(assumed).unwrap_or(self.items);
                self.spread(found, counts, contents);
                found
            }
            What::NonZero => {
                let assumed = guesses.settings.nonzero_millionths;
                guesses.remarks.assume(match (assumed, kept) {
                    (Some(_), _) => "nonzero() found the share that --assume gives",
                    (None, Some(_)) => {
                        "plimsoll assumed that torchvision's detectors keep as many boxes as their limits allow, and in training one proposal for each object (six with trained weights); give the true number with --assume objects=6"
                    }
                    (None, None) => {
                        "nonzero() was assumed to find nothing; give the true share with --assume nonzero=0.1"
                    }
                });
                let share = self.share(assumed.or(kept));
                // Rejection sampling goes on until enough is found.
                let Guesses { wait, remarks, .. } = guesses;
                let mut comes =
                    || wait.over(&mut thread.kernels, 0, remarks).map_or(0, |_| self.items);
                let found = share.unwrap_or_else(&mut comes);
                self.assume(found, contents);
                found
            }
        }
    }

    /// Likewise, if every element is known.
    pub(crate) fn true_answer(self, contents: &mut Contents) -> Option<u64> {
        let count = self.known(contents)?;
        self.settle(contents);
        Some(count)
    }

    /// What was counted stays so, whatever kernels that we do not follow come in between: a backward pass counts the
    /// mask of its forward pass once more.
    fn settle(self, contents: &mut Contents) {
        if self.what == What::NonZero {
            contents.settle(self.operand, self.items.saturating_mul(self.width));
        }
    }

    /// Writes truth values of which `found` are true.
    fn assume(self, found: u64, contents: &mut Contents) {
        if self.width != 1 || self.operand == 0 || MOST < self.items {
            return;
        }
        let items = usize::try_from(self.items).unwrap_or(0);
        let mut mask = vec![0; items];
        mask[..usize::try_from(found).unwrap_or(0).min(items)].fill(1);
        contents.write(self.operand, &mask);
    }

    /// Writes how often each of `found` is there, of whom nobody knows better: as often as every other.
    fn spread(self, found: u64, counts: u64, contents: &mut Contents) {
        if counts == 0 || found == 0 || MOST / 8 < found {
            return;
        }
        let often = |i: u64| self.items / found + u64::from(i < self.items % found);
        let bytes: Vec<u8> = (0..found).flat_map(|it| often(it).to_le_bytes()).collect();
        contents.write_computed(counts, &bytes);
    }

    /// That share of them, if one was assumed.
    fn share(self, millionths: Option<u64>) -> Option<u64> {
        Some((self.items * millionths? + MILLIONTHS / 2) / MILLIONTHS)
    }

    /// The true count, if every element is known.
    fn known(self, contents: &Contents) -> Option<u64> {
        let bytes = self.items.checked_mul(self.width);
        let bytes = bytes.filter(|&it| 0 < it && it <= KEEP_COMPUTED)?;
        let mut known = vec![0; usize::try_from(bytes).ok()?];
        if contents.read(self.operand, &mut known) != 0 {
            return None;
        }
        let width = usize::try_from(self.width).ok()?;
        let elements = known.chunks_exact(width);
        let found = match self.what {
            What::NonZero => elements.filter(|it| it.iter().any(|&byte| byte != 0)).count(),
            What::Indices => return None,
            What::Different { .. } => {
                elements.clone().zip(elements.skip(1)).filter(|it| it.0 != it.1).count() + 1
            }
        };
        u64::try_from(found).ok()
    }
}

const MILLIONTHS: u64 = 1_000_000;

/// Filters are known to find everything: the mask says which ranks have an input.
const ALL: i32 = -2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guesses::settings::Settings;

    #[test]
    fn kernels_are_told_by_their_mangled_names() {
        let single = b"_ZN14at_cuda_detail3cub6detail6reduce28DeviceReduceSingleTileKernelINS2_10policy_hubIiyE10Policy1000EN6thrust18transform_iteratorIN2at6native43_GLOBAL__N__e625f313_10_Nonzero_cu_cba1aaa09NonZeroOpIbEEPKbEEPiyEEvT0_";
        let halves = b"_ZN14at_cuda_detail3cub6detail6reduce18DeviceReduceKernelIN6thrust18transform_iteratorIN2at6native9NonZeroOpIN3c104HalfEEEPKS9_EEEEvT0_";
        let partials = b"_ZN14at_cuda_detail3cub6detail6reduce28DeviceReduceSingleTileKernelINS2_10policy_hubIiyE10Policy1000EPiSC_iS9_iiEEvT0_";
        let topk =
            b"_ZN2at6native6sbtopk10gatherTopKIfjLi2ELb0EEEvNS_4cuda6detail10TensorInfoIKT_T0_EE";
        let wide =
            b"_ZN2at6native6sbtopk10gatherTopKIfmLi2ELb0EEEvNS_4cuda6detail10TensorInfoIKT_T0_EE";
        assert_eq!(Kernel::of(single), Some(Kernel::NonZero { width: 1, within: 0 }));
        assert_eq!(Kernel::of(halves), Some(Kernel::NonZero { width: 2, within: 0 }));
        let of_cuda_12 = b"_ZN14at_cuda_detail3cub28DeviceReduceSingleTileKernelINS0_18DeviceReducePolicyIiyE9Policy600ENS0_22TransformInputIteratorIbN2at6native43_GLOBAL__N__e625f313_10_Nonzero_cu_cba1aaa09NonZeroOpIN3c104HalfEEEPKSG_lEEPiyEEvT0_";
        assert_eq!(Kernel::of(of_cuda_12), Some(Kernel::NonZero { width: 2, within: 8 }));
        assert_eq!(Kernel::of(partials), Some(Kernel::Partials));
        let rows = b"_ZN14at_cuda_detail3cub6detail6select23DeviceSelectSweepKernelINS2_10policy_hubIlNS0_8NullTypeEiLb0ELNS0_10SelectImplE1EE10Policy1000EPlPS5_S9_S9_NS0_13ScanTileStateIiLb1EEES5_ZN39_INTERNAL_ad704282_9_Unique_cu_285fecc22at6native41_GLOBAL__N__ad704282_9_Unique_cu_285fecc224unique_dim_cuda_templateIfEESt5tupleIJNSE_6TensorESJ_SJ_EERKSJ_lbbbEUlllE0_iNS2_19streaming_context_tIlLb1EEELS6_1EEEvT0_T1_T2_T3_T4_T5_T6_T7_iT8_NS1_7vsmem_tE";
        assert_eq!(Kernel::of(rows), Some(Kernel::Unique { width: 0, items: 7, within: 0 }));
        assert_eq!(Kernel::of(topk), Some(Kernel::TopK { key: Some(ScalarType::Float) }));
        let blocks =
            b"_ZN2at6native6mbtopk10gatherTopKIfjLi2EEEvNS_4cuda6detail10TensorInfoIKT_T0_EE";
        assert_eq!(Kernel::of(blocks), Some(Kernel::TopK { key: Some(ScalarType::Float) }));
        assert_eq!(Kernel::of(wide), None, "64-bit positions have another layout");
        let kth = b"_ZN2at6native43_GLOBAL__N__58383465_10_Sorting_cu_8150cb8f14gatherKthValueIfiLi2EEEvNS_4cuda6detail10TensorInfoIKT_T0_EES7_S7_S7_S7_NS5_IS6_S7_EENS5_IlS7_EE";
        let found = Kernel::OneOfEach { key: Some(ScalarType::Float), is_median: false };
        assert_eq!(Kernel::of(kth), Some(found));
        assert_eq!(Kernel::of(b"_ZN2at6native13reduce_kernelE"), None);
    }

    #[test]
    fn a_mask_of_what_every_rank_has_finds_all() {
        let count = Count { operand: 4096, width: 1, items: 16, what: What::NonZero };
        let mut guesses = Guesses::new(Settings::default());
        let mut thread = OfThread { kept: ALL, ..OfThread::NEW };
        assert_eq!(count.answer(&mut Contents::default(), &mut guesses, &mut thread), 16);
        thread.kept = OfThread::NEW.kept;
        assert_eq!(count.answer(&mut Contents::default(), &mut guesses, &mut thread), 0);
    }

    #[test]
    fn one_of_each_row_is_unknown_where_a_row_has_what_is_no_number() {
        let from = Slices { from: 4096, size: 3, chosen: 1, slices: 2 };
        let mut contents = Contents::default();
        let mut smallest = |rows: [f32; 6]| {
            let bytes: Vec<u8> = rows.iter().flat_map(|it| it.to_le_bytes()).collect();
            contents.write(4096, &bytes);
            from.one_of_each(ScalarType::Float, 1, &mut contents).map(|it| it.1)
        };
        let places: Vec<u8> = [1_i64, 2].map(i64::to_le_bytes).concat();
        assert_eq!(smallest([3.0, 1.0, 2.0, 3.0, 2.0, f32::NEG_INFINITY]), Some(places));
        assert_eq!(smallest([3.0, 1.0, 2.0, 3.0, f32::NAN, 1.0]), None);
        assert_eq!(smallest([3.0, -f32::NAN, 2.0, 3.0, 2.0, 1.0]), None);
    }

    #[test]
    fn what_was_counted_is_counted_again_in_the_backward_pass() {
        let count = Count { operand: 4096, width: 1, items: 4, what: What::NonZero };
        let mut contents = Contents::default();
        contents.write_computed(4096, &[0, 1, 1, 0]);
        let (mut guesses, mut thread) = (Guesses::new(Settings::default()), OfThread::NEW);
        assert_eq!(count.answer(&mut contents, &mut guesses, &mut thread), 2);
        contents.forget_computed(); // A kernel that scatters.
        assert_eq!(count.answer(&mut contents, &mut guesses, &mut thread), 2);
    }

    #[test]
    fn how_often_each_is_there_follows_from_how_many_there_are() {
        let what = What::Different { counts: 8192 };
        let count = Count { operand: 4096, width: 4, items: 72, what };
        let mut contents = Contents::default();
        let settings = Settings { unique_millionths: Some(100_000), ..Settings::default() };
        let (mut guesses, mut thread) = (Guesses::new(settings), OfThread::NEW);
        assert_eq!(count.answer(&mut contents, &mut guesses, &mut thread), 7);
        let often: Vec<u8> = [11_i64, 11, 10, 10, 10, 10, 10].map(i64::to_le_bytes).concat();
        assert_eq!(contents.known(8192, 56), Some(often));
    }

    #[test]
    fn a_mask_that_is_known_is_counted() {
        let mut contents = Contents::default();
        contents.write(4096, &[0, 1, 1, 0, 1, 0, 0, 0]);
        let count = |items, width| Count { operand: 4096, width, items, what: What::NonZero };
        assert_eq!(count(8, 1).known(&contents), Some(3));
        assert_eq!(count(2, 4).known(&contents), Some(2), "two numbers, neither of them zero");
        assert_eq!(count(9, 1).known(&contents), None, "the ninth is not known");
        assert_eq!(count(u64::MAX, 8).known(&contents), None);
    }
}
