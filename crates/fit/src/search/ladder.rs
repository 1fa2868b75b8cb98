//! The order in which remedies and their combinations are tried: from the mildest on.

use plimsoll_core::{
    cards::Card,
    plan::{
        CATALOGUE, Offer, Parameter, Plan, Remedy, find,
        remedies::{self, Devices, Role},
    },
};

/// Pieces of memory grow as they are needed, and those of one size serve another: free, where batches differ in size.
pub(super) const EXPANDABLE: &str = "expandable_segments:True";

/// Cards from this compute capability on have bfloat16 in their tensor cores.
const BFLOAT16: (u32, u32) = (8, 0);

/// All that one device can be spared: what does not fit so fits with nothing.
const EVERYTHING: [&str; 6] = [
    remedies::PARAMETER_OFFLOAD,
    remedies::OPTIMIZER_OFFLOAD,
    remedies::AUTOCAST,
    remedies::MICRO_BATCHES,
    remedies::CHECKPOINT,
    remedies::OFFLOAD,
];

/// Those that cost no time worth telling.
pub(super) fn free() -> Vec<&'static str> {
    CATALOGUE.iter().filter(|it| it.role == Role::Free).map(|it| it.id).collect()
}

/// Whether it costs no time worth telling.
pub(super) fn is_free(id: &str) -> bool {
    find(id).is_some_and(|it| it.role == Role::Free)
}

/// What is added to the free remedies, step by step, of what may be used, on so many devices; of a combination what is left of
/// it. `suits`: what there is something for to do, of the remedies that are not for every program.
pub(super) fn rungs(
    card: &Card,
    gpus: u32,
    suits: impl Fn(&str) -> bool,
    may: impl Fn(&str) -> bool,
) -> Vec<Vec<&'static str>> {
    let all: [&[&'static str]; 22] = [
        &[],
        &[remedies::CHANNELS_LAST],
        &[remedies::AUTOCAST],
        &[remedies::AUTOCAST, remedies::CHANNELS_LAST],
        &[remedies::MICRO_BATCHES],
        &[remedies::OPTIMIZER_IN_BACKWARD],
        &[remedies::OPTIMIZER_8BIT],
        &[remedies::CHECKPOINT],
        &[remedies::AUTOCAST, remedies::MICRO_BATCHES],
        &[remedies::AUTOCAST, remedies::CHECKPOINT],
        &[remedies::MICRO_BATCHES, remedies::CHECKPOINT],
        &[remedies::AUTOCAST, remedies::MICRO_BATCHES, remedies::CHECKPOINT],
        &[remedies::OPTIMIZER_IN_BACKWARD, remedies::CHECKPOINT],
        &[remedies::OPTIMIZER_IN_BACKWARD, remedies::AUTOCAST, remedies::CHECKPOINT],
        &[remedies::OPTIMIZER_OFFLOAD, remedies::CHECKPOINT],
        &[remedies::PARAMETER_OFFLOAD, remedies::OPTIMIZER_IN_BACKWARD, remedies::CHECKPOINT],
        &[remedies::PARAMETER_OFFLOAD, remedies::OPTIMIZER_OFFLOAD, remedies::CHECKPOINT],
        &[remedies::OFFLOAD],
        &[remedies::AUTOCAST, remedies::OFFLOAD],
        &[remedies::MICRO_BATCHES, remedies::OFFLOAD],
        &[remedies::OPTIMIZER_OFFLOAD, remedies::MICRO_BATCHES, remedies::CHECKPOINT],
        &EVERYTHING,
    ];
    // Who has several devices wants them used.
    let several: [&[&'static str]; 12] = [
        &[remedies::ZERO1],
        &[remedies::FSDP2],
        &[remedies::ZERO1, remedies::MICRO_BATCHES],
        &[remedies::FSDP2, remedies::AUTOCAST],
        &[remedies::FSDP2, remedies::MICRO_BATCHES],
        &[remedies::FSDP2, remedies::CHECKPOINT],
        &[remedies::ZERO1, remedies::MICRO_BATCHES, remedies::CHECKPOINT],
        &[remedies::FSDP2, remedies::AUTOCAST, remedies::CHECKPOINT],
        &[remedies::FSDP2, remedies::AUTOCAST, remedies::MICRO_BATCHES, remedies::CHECKPOINT],
        &[remedies::FSDP2, remedies::AUTOCAST, remedies::OFFLOAD],
        &[remedies::MODEL_PARALLEL],
        &[remedies::MODEL_PARALLEL, remedies::CHECKPOINT],
    ];
    let mentioned = [all.concat(), several.concat()].concat();
    let several = several.into_iter().filter(|_| 1 < gpus);
    let one = all.into_iter();
    let all = one.clone().take(1).chain(several).chain(one.skip(1));
    let mut res: Vec<Vec<&'static str>> = all.map(<[_]>::to_vec).collect();
    // A new one that nobody has put between the others yet.
    let is_missing = |id: &str| id != remedies::AUTOCAST_FP16 && !mentioned.contains(&id);
    let missing = CATALOGUE.iter().filter(|it| it.role == Role::Rung && is_missing(it.id));
    res.extend(missing.map(|it| vec![it.id]));
    for it in res.iter_mut().flatten() {
        *it = for_card(card, it);
    }
    // What somebody asked for by name comes before everything else, and again in company.
    let asked = CATALOGUE.iter().filter(|it| it.offer == Offer::Asked && it.id != remedies::TF32);
    for it in asked.filter(|it| may(it.id)) {
        let company: Vec<Vec<_>> =
            res.iter().skip(1).map(|rest| [&[it.id], rest.as_slice()].concat()).collect();
        res.insert(1.min(res.len()), vec![it.id]);
        res.extend(company);
    }
    let all = res.into_iter().map(|it| without(&it, |it| may(it) && suits(it)));
    let mut res: Vec<Vec<&'static str>> = Vec::new();
    for it in all {
        if !res.iter().any(|other| are_same(other, &it)) {
            res.push(it);
        }
    }
    res
}

/// What of a combination is left if only those may stay.
pub(super) fn without(all: &[&'static str], stays: impl Fn(&str) -> bool) -> Vec<&'static str> {
    all.iter().filter(|it| stays(it)).copied().collect()
}

/// Whether both have the same remedies.
pub(super) fn are_same(one: &[&str], other: &[&str]) -> bool {
    one.len() == other.len() && one.iter().all(|it| other.contains(it))
}

/// The remedy in the form that suits the card.
pub(super) fn for_card(card: &Card, id: &'static str) -> &'static str {
    match id {
        remedies::AUTOCAST if card.compute_capability < BFLOAT16 => remedies::AUTOCAST_FP16,
        id => id,
    }
}

/// `plan` with the parameters that its remedies need to run.
pub(super) fn settled(plan: &Plan, parts: u64, gpus: u32) -> Plan {
    let remedies = plan.remedies.iter().map(|remedy| match remedy.id {
        remedies::MICRO_BATCHES => Remedy::plain(remedy.id).with(Parameter::Parts(parts)),
        id if find(id).is_some_and(|it| it.devices != Devices::One) => {
            Remedy::plain(id).with(Parameter::Gpus(gpus.into()))
        }
        _ => remedy.clone(),
    });
    Plan::of(remedies.collect())
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{cards, plan::find};

    use super::*;

    fn shown(card: &str, gpus: u32, allow: &[&str]) -> Vec<String> {
        let card = cards::find(card).unwrap();
        let may = |id: &str| match find(id).unwrap().offer {
            Offer::Usual => allow.is_empty() || allow.contains(&id),
            Offer::Asked => allow.contains(&id),
            Offer::ByHand => false,
        };
        let suits = |id: &str| !["optimizer-8bit", "channels-last"].contains(&id);
        rungs(card, gpus, suits, may).iter().map(|it| it.join("+")).collect()
    }

    #[test]
    fn what_was_asked_for_comes_first_and_in_company() {
        assert_eq!(
            shown("h200", 1, &["sgd", "checkpoint"]),
            ["", "sgd", "checkpoint", "sgd+checkpoint"]
        );
        assert!(!shown("h200", 1, &[]).iter().any(|it| it.contains("sgd") || it.contains("8bit")));
    }

    #[test]
    fn several_devices_are_used_first_and_only_where_there_are() {
        let allow = ["fsdp2", "zero1", "checkpoint"];
        assert_eq!(
            shown("h200", 4, &allow),
            ["", "zero1", "fsdp2", "fsdp2+checkpoint", "zero1+checkpoint", "checkpoint"]
        );
        assert_eq!(
            shown("h200", 2, &["zero1", "fsdp2", "micro-batches"]),
            ["", "zero1", "fsdp2", "zero1+micro-batches", "fsdp2+micro-batches", "micro-batches"]
        );
        assert_eq!(shown("h200", 1, &allow), ["", "checkpoint"]);
    }

    #[test]
    fn an_old_card_gets_float16() {
        assert_eq!(shown("t4", 1, &["autocast-fp16"]), ["", "autocast-fp16"]);
        assert_eq!(shown("a100-40g", 1, &["autocast"]), ["", "autocast"]);
    }
}
