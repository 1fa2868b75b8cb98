//! A card by what people call it; and of one that nobody has described, which is nearest.

use crate::{
    cards::{Card, error::CardError},
    spelling,
    units::Bytes,
};

/// The card whose id, alias or driver's name is `given`, whatever its capitals, blanks and dashes. Of slices, too.
pub(super) fn find<'a>(
    (cards, slices): (&'a [Card], &'a [Card]),
    given: &str,
) -> Result<&'a Card, CardError> {
    let wanted = normal(given);
    let names = |card: &'a Card| {
        std::iter::once(&card.id).chain(&card.aliases).chain(std::iter::once(&card.name))
    };
    let is_it = |card: &&'a Card| names(card).any(|it| normal(it) == wanted);
    if let Some(found) = cards.iter().chain(slices).find(|it| is_it(it)) {
        return Ok(found);
    }
    if let Some((whole, profile)) = given.split_once('/')
        && let Ok(card) = find((cards, &[]), whole)
    {
        let start = format!("{}/", card.id);
        let has = slices.iter().filter_map(|it| it.id.strip_prefix(&start));
        return Err(CardError::NoSuchProfile {
            card: card.id.clone(),
            given: profile.to_owned(),
            has: has.map(str::to_owned).collect(),
        });
    }
    if let Some(why) = not_imitated(given) {
        return Err(CardError::NotImitated { given: given.to_owned(), why });
    }
    let ids = cards.iter().flat_map(|it| std::iter::once(&it.id).chain(&it.aliases));
    // Who names a size means no slip of it.
    let near = if Model::of(given).gib.is_some() {
        Vec::new()
    } else {
        spelling::nearest(given, 1, ids, normal)
    };
    let instead = stand_in(cards, given).filter(|_| near.is_empty());
    let letters: String =
        given.to_ascii_lowercase().chars().take_while(char::is_ascii_alphabetic).collect();
    let is_family = near.is_empty()
        && instead.is_none()
        && 2 <= letters.len()
        && cards.iter().any(|card| card.id.starts_with(&letters));
    let family = is_family.then_some(letters);
    Err(CardError::NoSuchCard { given: given.to_owned(), near, instead, family })
}

/// Why a device of this name is none that a phantom can be; none if nothing is known against it.
fn not_imitated(given: &str) -> Option<&'static str> {
    const WITH_THE_HOST: &str = "its GPU shares the host's memory and runs PyTorch built for Arm; plimsoll imitates cards with a memory of their own, under \
         PyTorch for x86-64";
    const OF_OTHERS: &str = "plimsoll imitates NVIDIA's cards, under PyTorch for CUDA";
    const BEGINNINGS: [(&str, &str); 6] = [
        ("mi1", OF_OTHERS),
        ("mi2", OF_OTHERS),
        ("mi3", OF_OTHERS),
        ("gfx", OF_OTHERS),
        ("tpu", OF_OTHERS),
        ("gaudi", OF_OTHERS),
    ];
    let given = given.to_ascii_lowercase();
    let mut words = given.split(|it: char| !it.is_ascii_alphanumeric()).filter(|it| !it.is_empty());
    words.find_map(|word| match word {
        "jetson" | "orin" | "xavier" | "thor" | "agx" | "tegra" | "spark" | "gb10" => {
            Some(WITH_THE_HOST)
        }
        "amd" | "radeon" | "instinct" | "rx" | "apple" | "mps" | "m1" | "m2" | "m3" | "m4"
        | "m5" | "intel" | "arc" => Some(OF_OTHERS),
        word => BEGINNINGS.into_iter().find(|it| word.starts_with(it.0)).map(|it| it.1),
    })
}

/// The card that the driver calls `name`: all of it, or what is left of it before points. Of several, the one whose memory is
/// nearest to `total`, which tools round up by a few percent.
pub(super) fn by_drivers<'a>(
    cards: &'a [Card],
    name: &str,
    total: Option<Bytes>,
) -> Option<&'a Card> {
    let cut = name.trim_end_matches('.');
    let is_cut = cut.len() < name.len();
    let wanted = normal(cut);
    if wanted.len() < 2 {
        return None;
    }
    let is_it = |card: &&Card| {
        let own = normal(&card.name);
        own == wanted || is_cut && own.starts_with(&wanted)
    };
    let off = |card: &Card| total.map_or(0, |it| it.0.abs_diff(card.total.0));
    let near = |card: &&Card| total.is_none_or(|it| off(card) <= it.0 / 10);
    cards.iter().filter(is_it).filter(near).min_by_key(|it| (off(it), !it.usual))
}

/// The card whose name is exactly what a driver says, whatever memory it has there. Of several, the one whose memory is nearest.
pub(super) fn of_device<'a>(
    cards: impl Iterator<Item = &'a Card>,
    name: &str,
    total: Bytes,
) -> Option<&'a Card> {
    let named = cards.filter(|card| card.name == name);
    named.min_by_key(|card| (card.total.0.abs_diff(total.0), !card.usual))
}

/// A name without what people write in many ways.
pub(super) fn normal(name: &str) -> String {
    let name = name.to_ascii_lowercase();
    let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    let name = name.replace("nvidia", "").replace("geforce", "").replace("tesla", "");
    let name = name.replace("mobile", "laptop");
    name.replace("gib", "g").replace("gb", "g").replace("mig", "")
}

/// The card of the same generation whose number and memory are nearest, as options of a command.
fn stand_in(cards: &[Card], given: &str) -> Option<String> {
    let asked = Model::of(given);
    let generation = asked.generation()?;
    let of_it = cards.iter().filter(|it| it.generation == generation);
    let nearest = of_it.min_by_key(|card| {
        let (model, sold) = (Model::of(&card.id), sold_gib(card.total));
        let is_other_line = u32::from(model.line != asked.line);
        let number = model.number.abs_diff(asked.number);
        let number = number + u32::from(model.variant != asked.variant);
        let memory = asked.gib.map_or(0, |it| sold.abs_diff(it));
        // A GeForce's number says which chip it is; in a data centre the memory says more.
        let is_geforce = 1000 <= asked.number;
        let first = if is_geforce { u64::from(number) } else { memory };
        (is_other_line, first, memory, number, sold)
    })?;
    let memory = match asked.gib {
        None => "SIZE".to_owned(),
        // What the driver leaves of as much on other cards, those of its generation first.
        Some(gib) => cards
            .iter()
            .filter(|it| sold_gib(it.total) == gib)
            .min_by_key(|it| (it.generation != generation, it.total))
            .map_or_else(|| format!("{gib}GiB"), |it| format!("{:.2}GiB", in_gib(it.total))),
    };
    Some(format!("--gpu {} --memory {memory}", nearest.id))
}

/// What a name says of a card.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Model {
    /// The letters before its number.
    line: String,
    /// Zero if there is none.
    number: u32,
    /// What follows: `ti`, `super`, `laptop`.
    variant: String,
    /// The memory that it is sold with, in GiB.
    gib: Option<u64>,
}

impl Model {
    fn of(name: &str) -> Model {
        let name = name.to_ascii_lowercase().replace("nvidia", "").replace("geforce", "");
        let mut res = Model { line: String::new(), number: 0, variant: String::new(), gib: None };
        for word in name.split(|it: char| !it.is_ascii_alphanumeric()).filter(|it| !it.is_empty()) {
            let letters = word.find(|it: char| it.is_ascii_digit()).unwrap_or(word.len());
            let (line, rest) = word.split_at(letters);
            let digits = rest.find(|it: char| !it.is_ascii_digit()).unwrap_or(rest.len());
            let (digits, unit) = rest.split_at(digits);
            let number = digits.parse().unwrap_or(0);
            if line.is_empty() && matches!(unit, "g" | "gb" | "gib") {
                res.gib = Some(u64::from(number));
            } else if res.number == 0 {
                res.line += line;
                res.number = number;
                res.variant += unit;
            } else {
                res.variant += word;
            }
        }
        if res.line.is_empty() && 1000 <= res.number {
            res.line = if res.number < 2000 { "gtx" } else { "rtx" }.to_owned();
        }
        res
    }

    /// NVIDIA's names follow generations.
    fn generation(&self) -> Option<&'static str> {
        Some(match (self.line.as_str(), self.number) {
            ("rtx" | "gtx", 1000..=1099) | ("p" | "titanx", _) => "Pascal",
            ("v", _) => "Volta",
            ("gtx", 1600..=1699) | ("rtx", 2000..=2099) | ("t" | "quadrortx", _) => "Turing",
            ("rtx", 3000..=3099) | ("a" | "rtxa", _) => "Ampere",
            ("rtx", 4000..=4099) | ("l", _) => "Ada",
            ("h" | "gh", _) => "Hopper",
            ("rtx", 5000..=5099) | ("b" | "gb" | "rtxpro" | "pro", _) => "Blackwell",
            _ => return None,
        })
    }
}

/// The memory that a card is sold with, in GiB: drivers keep up to one in twenty of it.
fn sold_gib(total: Bytes) -> u64 {
    const SIZES: [u64; 22] =
        [2, 3, 4, 5, 6, 8, 10, 11, 12, 16, 20, 22, 24, 32, 40, 48, 64, 80, 94, 96, 141, 180];
    let gib = in_gib(total);
    #[expect(clippy::cast_precision_loss, reason = "sizes of memory in GiB are small")]
    let is_it = |it: &u64| gib <= *it as f64;
    SIZES.into_iter().find(is_it).unwrap_or(288)
}

fn in_gib(it: Bytes) -> f64 {
    it.share_of(Bytes::gib(1))
}

#[cfg(test)]
mod tests {
    use crate::cards::find;

    #[test]
    fn people_call_a_card_many_things() {
        for (given, id) in [
            ("h200", "h200"),
            ("RTX 4090", "rtx4090"),
            ("4090", "rtx4090"),
            ("rtx4090-24g", "rtx4090"),
            ("NVIDIA GeForce RTX 3060", "rtx3060-12g"),
            ("a100", "a100-40g"),
            ("A100-80GB", "a100-80g"),
            ("Tesla T4", "t4"),
            ("NVIDIA H100 80GB HBM3", "h100-80g"),
            ("3080", "rtx3080-10g"),
            ("RTX 3080", "rtx3080-10g"),
            ("3080 Ti", "rtx3080ti"),
            ("GTX 1080 Ti", "gtx1080ti"),
            ("RTX 3060 Laptop", "rtx3060-laptop"),
            ("RTX 4080 Mobile", "rtx4080-laptop"),
            ("Tesla P40", "p40"),
            ("P4", "p4"),
            ("NVIDIA GB300", "gb300"),
            ("GTX 1660 Super", "gtx1660super"),
            ("A800", "a800-80g"),
            ("RTX PRO 6000", "rtx-pro-6000"),
            ("a100-80g/3g.40gb", "a100-80g/3g.40gb"),
            ("A100-80GB MIG 3g.40gb", "a100-80g/3g.40gb"),
            ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "a100-80g/3g.40gb"),
        ] {
            assert_eq!(find(given).map(|it| it.id.as_str()), Ok(id), "{given}");
        }
    }

    fn error(given: &str) -> String {
        find(given).unwrap_err().to_string()
    }

    #[test]
    fn a_slip_is_answered_with_what_was_meant() {
        assert_eq!(error("rtx4900"), "no card is called \"rtx4900\"; did you mean `rtx4090`?");
        assert_eq!(error("voodoo2"), "no card is called \"voodoo2\"; `plimsoll cards` lists them");
    }

    #[test]
    fn a_card_that_nobody_has_described_has_a_nearest_one() {
        for (given, instead) in [
            ("rtx3060-8g", "--gpu rtx3060-12g --memory 7.60GiB"),
            ("RTX 3080 20GB", "--gpu rtx3080-12g --memory 19.57GiB"),
            ("A800-40GB", "--gpu a100-40g --memory 39.38GiB"),
            ("GTX 1650 6GB", "--gpu gtx1650 --memory 5.60GiB"),
            ("L2 24GB", "--gpu l4 --memory 23.49GiB"),
            ("H100 64GB", "--gpu h100-80g --memory 64GiB"),
        ] {
            let error = error(given);
            assert!(error.contains(&format!("the nearest is `{instead}`")), "{given}: {error}");
        }
    }

    #[test]
    fn what_is_no_card_of_its_own_is_said() {
        for given in ["Jetson AGX Orin", "orin nano", "DGX Spark", "gb10"] {
            assert!(error(given).contains("shares the host's memory"), "{given}");
        }
        for given in ["MI300X", "RX 7900 XTX", "Apple M3 Max", "Intel Arc A770", "tpu-v5e"] {
            assert_eq!(
                error(given),
                format!(
                    "{given:?} cannot be imitated: plimsoll imitates NVIDIA's cards, under PyTorch for CUDA"
                )
            );
        }
        assert!(error("author").contains("no card is called"));
    }

    #[test]
    fn a_profile_that_a_card_does_not_have() {
        assert_eq!(
            error("h100-nvl/3g.40gb"),
            "h100-nvl has no slice \"3g.40gb\"; it has `1g.12gb`, `1g.24gb`, `2g.24gb`, `3g.47gb`, `4g.47gb`; a share of a \
             card is written as in `h100-nvl/0.5`"
        );
        assert!(error("rtx4090/3g.40gb").contains("rtx4090 has no slice \"3g.40gb\"; a share"));
    }
}
