//! Places that are drawn by their chances, each of them perhaps again: `torch.multinomial(chances, n, replacement=True)`
//! (`aten/src/ATen/native/cuda/MultinomialKernel.cu`). Without replacement PyTorch takes the best of draws, as `topk` and `argmax` do.

use std::collections::BTreeSet;

use crate::arguments::Arguments;
use crate::guesses::choices::{Choices, Row};
use crate::memory::writes::Write;
use crate::memory::{Known, KnowsAny, MOST_LOOKED_AT, known_among};
use crate::names;
use crate::types::{ScalarType, as_f64, element_after};

/// `sampleMultinomialWithReplacement`, by chances of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kernel {
    chances: ScalarType,
}

impl Kernel {
    /// The one of this (mangled) name.
    pub(crate) fn of(name: &[u8]) -> Option<Kernel> {
        element_after(name, names::SAMPLE_WITH_REPLACEMENT).map(|chances| Kernel { chances })
    }

    /// What it writes: the series, how many of each row, where to, rows, places, the chances summed up, and the chances.
    pub(crate) fn writes(
        self,
        arguments: Arguments<'_>,
        (known, knows_any): (Known<'_>, KnowsAny<'_>),
        choices: &mut Choices,
    ) -> Option<Vec<Write>> {
        let (draws, to) = (arguments.count(1)?, arguments.address(2)?);
        let (rows, places) = (arguments.count(3)?, arguments.count(4)?);
        let chances = arguments.address(6)?;
        let mut drawn = || {
            let all = rows.checked_mul(places).filter(|it| *it <= MOST_LOOKED_AT)?;
            let size = u64::try_from(all * self.chances.width()).ok()?;
            let of = |row: usize| {
                let at = chances + u64::try_from(row * places * self.chances.width()).unwrap_or(0);
                self.row(at, places, (known, knows_any))
            };
            let rows: Vec<Row> = match knows_any(chances, size) {
                true => (0..rows).map(of).collect(),
                false => vec![Row::default(); rows],
            };
            choices.draw(u64::try_from(places).ok()?, u64::try_from(draws).ok()?, &rows)
        };
        Some(vec![drawn().map_or(Write::Unknown(to, u64::MAX), |it| Write::Chosen(to, it))])
    }

    /// What is known of the chances of one row.
    fn row(self, at: u64, places: usize, (known, knows_any): (Known<'_>, KnowsAny<'_>)) -> Row {
        let found = known_among(at, (places, self.chances.width()), known, knows_any);
        let found: Vec<(usize, f64)> =
            found.into_iter().map(|(i, it)| (i, as_f64(self.chances.read(&it)))).collect();
        let never = found.iter().filter(|(_, it)| *it <= 0.0);
        let never: BTreeSet<u64> = never.filter_map(|(i, _)| u64::try_from(*i).ok()).collect();
        let is_whole = found.len() == places;
        let weights = is_whole.then(|| found.into_iter().map(|(_, it)| it).collect());
        Row { never, weights }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::made::{Launch, Made};

    #[test]
    fn places_are_drawn_by_their_chances() {
        let name = b"_ZN2at6native59_GLOBAL__N__bc3af53a_20_MultinomialKernel_cu_ef1a7132_2094532sampleMultinomialWithReplacementIfEEvNS_15PhiloxCudaStateEiPlliPKT_S7_";
        let kernel = Kernel::of(name).unwrap();
        assert_eq!(kernel, Kernel { chances: ScalarType::Float });
        let drawn = |chances: [Option<f32>; 4]| -> Vec<u64> {
            let launch = Launch::of(&[
                Made::Structure("at::PhiloxCudaState", &[0; 24]),
                Made::Int(300),
                Made::Address(64),
                Made::Long(1),
                Made::Int(4),
                Made::Address(128),
                Made::Address(256),
            ]);
            let known = |at: u64, size: usize| {
                let (first, count) = (usize::try_from(at - 256).unwrap() / 4, size / 4);
                let all = chances[first..first + count].iter();
                Some(
                    all.copied()
                        .collect::<Option<Vec<f32>>>()?
                        .iter()
                        .flat_map(|it| it.to_le_bytes())
                        .collect(),
                )
            };
            let reads: (Known<'_>, KnowsAny<'_>) = (&known, &|_, _| true);
            let writes = kernel.writes(launch.arguments(), reads, &mut Choices::default()).unwrap();
            let [Write::Chosen(64, bytes)] = &writes[..] else { panic!("{writes:?}") };
            bytes.as_chunks::<8>().0.iter().map(|it| u64::from_le_bytes(*it)).collect()
        };
        let count = |drawn: &[u64], place: u64| drawn.iter().filter(|it| **it == place).count();
        let by_weight = drawn([Some(1.0), Some(0.0), Some(9.0), Some(0.0)]);
        assert_eq!(count(&by_weight, 0) + count(&by_weight, 2), 300);
        assert!((10..60).contains(&count(&by_weight, 0)), "{by_weight:?}");
        let unknown = drawn([None, Some(0.0), None, None]);
        assert_eq!(count(&unknown, 1), 0);
        assert!([0, 2, 3].iter().all(|it| 50 < count(&unknown, *it)), "{unknown:?}");
        assert_eq!(drawn([Some(0.0); 4]).len(), 300);
    }
}
