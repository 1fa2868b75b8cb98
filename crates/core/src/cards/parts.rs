//! A part of a card: a slice that MIG cuts, one profile of a virtual GPU, or a share of its memory.

use crate::{
    cards::{Card, Knowledge, derived},
    units::Bytes,
};

/// What a guest's driver leaves of a virtual GPU's memory, in thousandths: 19.12 of 20 GiB were seen.
const LEFT_TO_A_GUEST: u64 = 956;

/// A slice of `card` with so much memory and so many multiprocessors.
pub(super) fn slice(card: &Card, profile: &str, total: Bytes, sm_count: u32) -> Card {
    let mut res = card.clone();
    res.id = format!("{}/{profile}", card.id);
    res.aliases = Vec::new();
    res.usual = false;
    res.name = format!("{} MIG {profile}", card.name);
    res.total = total;
    res.sm_count = sm_count;
    res.chip_sms = sm_count;
    if !card.gpcs.is_empty() {
        let each = card.gpcs.iter().copied().max().unwrap_or(1);
        res.gpcs = derived::gpcs(sm_count, sm_count.div_ceil(each));
    }
    let (context, range) =
        derived::context(card.compute_capability, sm_count, card.max_threads_per_sm);
    (res.context, res.context_range) = (context, range);
    res.provenance.total = Knowledge::Reported;
    res.provenance.context = Knowledge::Derived;
    res.provenance.cudnn = Knowledge::Derived;
    res.provenance.note =
        "memory and multiprocessors: published output of nvidia-smi mig -lgip".to_owned();
    res
}

/// What stands behind the dash or stroke of a name: `12q` and `12c` are profiles of virtual GPUs of so many GiB, which have
/// all multiprocessors in turn; `0.5` and `50%` are shares of the memory.
pub(super) fn part(card: &Card, text: &str) -> Option<Card> {
    let text = text.trim().to_ascii_lowercase();
    let (total, name) = if let Some(gib) = text.strip_suffix(['q', 'c']) {
        let gib: u64 = gib.parse().ok().filter(|it| (1..=1024).contains(it))?;
        let left = Bytes(Bytes::gib(gib).0 / 1000 * LEFT_TO_A_GUEST);
        (left, format!("{}-{text}", card.name))
    } else {
        let share = match text.strip_suffix('%') {
            Some(percent) => percent.parse::<f64>().ok()? / 100.0,
            None if text.contains('.') => text.parse::<f64>().ok()?,
            None => return None,
        };
        let share = Some(share).filter(|it| (0.01..1.0).contains(it))?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 10 and 1000"
        )]
        let thousandths = (share * 1000.0) as u64;
        (Bytes(card.total.0 / 1000 * thousandths), format!("{} ({text} of its memory)", card.name))
    };
    let total = Bytes(total.0 & !(Bytes::mib(1).0 - 1));
    if card.total < total || total <= card.context {
        return None;
    }
    let mut res = card.clone();
    res.id = format!("{}/{text}", card.id);
    res.aliases = Vec::new();
    res.usual = false;
    res.name = name;
    res.total = total;
    res.provenance.total = Knowledge::Derived;
    Some(res)
}
