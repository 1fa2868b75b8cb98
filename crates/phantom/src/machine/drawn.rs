//! The host's random numbers after a fill that was left out: a ghost has no values, and what the script draws next must be
//! what it draws after real ones. Lengths and orders of batches are drawn so, and with them sizes on the device.
//!
//! PyTorch's generator on the host is the Mersenne Twister MT19937 (`ATen/core/MT19937RNGEngine.h`).

use std::ffi::c_int;

/// Words of the state, and how far the one lies that each is mixed with.
const WORDS: usize = 624;
const MIDDLE: usize = 397;
const ALL: u32 = 624;
/// What `torch.Generator.get_state()` gives: `CPUGeneratorImplState` of `ATen/CPUGeneratorImpl.cpp`, with its size and where in it
/// lie: how many draws are left before the words are mixed again, the next word's number, and the words, of 8 bytes each.
const SIZE: usize = 5056;
const LEFT: usize = 8;
const NEXT: usize = 16;
const FIRST: usize = 24;

/// The generator, as far as draws change it.
struct Twister {
    words: [u32; WORDS],
    left: u32,
    next: u32,
}

impl Twister {
    /// The same after `n` more draws.
    fn draw(&mut self, mut n: u64) {
        loop {
            // The draw at which nothing is left mixes the words.
            let there = u64::from(self.left.saturating_sub(1));
            let taken = u32::try_from(n.min(there)).unwrap_or(u32::MAX);
            self.left -= taken;
            self.next += taken;
            n -= u64::from(taken);
            if n == 0 {
                return;
            }
            self.mix();
            (self.left, self.next) = (ALL, 1);
            n -= 1;
        }
    }

    fn mix(&mut self) {
        let mixed = |a: u32, b: u32| {
            let joined = (a & 0x8000_0000) | (b & 0x7fff_ffff);
            (joined >> 1) ^ (0x9908_b0df & (b & 1).wrapping_neg())
        };
        let words = &mut self.words;
        for at in 0..WORDS - MIDDLE {
            words[at] = words[at + MIDDLE] ^ mixed(words[at], words[at + 1]);
        }
        for at in WORDS - MIDDLE..WORDS - 1 {
            words[at] = words[at + MIDDLE - WORDS] ^ mixed(words[at], words[at + 1]);
        }
        words[WORDS - 1] = words[MIDDLE - 1] ^ mixed(words[WORDS - 1], words[0]);
    }

    fn read(state: &[u8; SIZE]) -> Twister {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|it| state[at + it]));
        let words = std::array::from_fn(|it| word(FIRST + 8 * it));
        Twister { words, left: word(LEFT), next: word(NEXT) }
    }

    fn write(&self, state: &mut [u8; SIZE]) {
        let mut put =
            |at: usize, value: u32| state[at..at + 4].copy_from_slice(&value.to_le_bytes());
        put(LEFT, self.left);
        put(NEXT, self.next);
        for (at, word) in self.words.iter().enumerate() {
            put(FIRST + 8 * at, *word);
        }
    }
}

/// For the agent: changes the `size` bytes at `state`, a generator's, as `n` draws of 32 bits would; 0 if that is no state that
/// we know.
///
/// # Safety
///
/// `state` is that of so many bytes, and nobody else's meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn plimsoll_phantom_drawn(state: *mut u8, size: usize, n: u64) -> c_int {
    if state.is_null() || size != SIZE {
        return 0;
    }
    // SAFETY: as the caller says.
    let state = unsafe { &mut *state.cast::<[u8; SIZE]>() };
    let mut twister = Twister::read(state);
    if !(1..=ALL).contains(&twister.left) || ALL < twister.next {
        return 0;
    }
    twister.draw(n);
    twister.write(state);
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `torch.manual_seed` makes it.
    fn seeded(seed: u32) -> Twister {
        let mut words = [seed; WORDS];
        for at in 1..WORDS {
            let before = words[at - 1] ^ (words[at - 1] >> 30);
            words[at] =
                1_812_433_253_u32.wrapping_mul(before).wrapping_add(u32::try_from(at).unwrap());
        }
        Twister { words, left: 1, next: 0 }
    }

    fn value(it: &mut Twister) -> u32 {
        it.draw(1);
        let mut y = it.words[it.next as usize - 1];
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c_5680;
        y ^= (y << 15) & 0xefc6_0000;
        y ^ (y >> 18)
    }

    #[test]
    fn the_ten_thousandth_number_is_what_the_standard_says() {
        // [rand.predef] of C++: the 10000th value of `mt19937` with its default seed.
        let mut it = seeded(5489);
        it.draw(9999);
        assert_eq!(value(&mut it), 4_123_659_995);
    }

    #[test]
    fn many_draws_are_as_one_after_the_other() {
        for n in [0, 1, 2, 622, 623, 624, 625, 1247, 1248, 5000] {
            let (mut at_once, mut singly) = (seeded(7), seeded(7));
            for it in [&mut at_once, &mut singly] {
                it.draw(3);
            }
            at_once.draw(n);
            (0..n).for_each(|_| singly.draw(1));
            assert_eq!((at_once.left, at_once.next), (singly.left, singly.next), "{n}");
            assert_eq!(value(&mut at_once), value(&mut singly), "{n}");
        }
    }

    #[test]
    fn what_is_no_state_is_left_alone() {
        let mut state = [0_u8; SIZE];
        // SAFETY: our own bytes.
        unsafe {
            assert_eq!(plimsoll_phantom_drawn(state.as_mut_ptr(), SIZE, 5), 0);
            assert_eq!(plimsoll_phantom_drawn(state.as_mut_ptr(), 100, 5), 0);
            assert_eq!(plimsoll_phantom_drawn(std::ptr::null_mut(), SIZE, 5), 0);
        }
        assert!(state.iter().all(|it| *it == 0));
        seeded(3).write(&mut state);
        // SAFETY: our own bytes.
        assert_eq!(unsafe { plimsoll_phantom_drawn(state.as_mut_ptr(), SIZE, 700) }, 1);
        let mut expected = seeded(3);
        expected.draw(700);
        assert_eq!(value(&mut Twister::read(&state)), value(&mut expected));
    }
}
