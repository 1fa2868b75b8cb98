//! What a serving engine makes of a card: what is free for keys and values, how many tokens and users that is, from which share of the
//! card on it starts, and the same by arithmetic on cards of the same compute capability, where weights and passes are the same.

use crate::{
    cards::{self, Card},
    recording::{EngineNote, Recording},
    units::Bytes,
};

/// An engine that was started, or that refused to.
#[derive(Clone, Debug, PartialEq)]
pub struct Serving {
    /// Its own numbers.
    pub engine: EngineNote,
    /// Users at once that have so many tokens each.
    pub users: Vec<Users>,
    /// The smallest share of the card with which it would start, in hundredths, if it fits into the card at all.
    pub least_share: Option<u32>,
    /// Of one that starts with a cache that does not hold its longest request: the smallest with which it does.
    pub share_for_longest: Option<u32>,
    /// The largest with which what it takes while it starts is still free, in hundredths.
    pub most_share: Option<u32>,
    /// Of one that plans without a pass: what was free of the card at the largest moment of the run.
    pub free: Option<Bytes>,
    /// The usual other cards of the same compute capability.
    pub elsewhere: Vec<Elsewhere>,
}

/// How many requests of a length fit at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Users {
    /// Tokens of each.
    pub length: u64,
    /// How many.
    pub users: u64,
}

/// The same engine on another card, computed.
#[derive(Clone, Debug, PartialEq)]
pub struct Elsewhere {
    /// That card.
    pub card: &'static Card,
    /// What is free there for keys and values; none if it is less than the longest request needs.
    pub available: Option<Bytes>,
    /// The tokens that it holds.
    pub tokens: u64,
}

impl Serving {
    /// Of the engine that a run started on `card`, of which it took `most`.
    pub(super) fn of(recordings: &[Recording], card: &Card, most: Bytes) -> Option<Serving> {
        let notes = recordings.iter().filter_map(|it| it.notes.engine.clone());
        let mut engine = notes.reduce(EngineNote::and)?;
        if engine.plans_without_a_pass() {
            // Its passes take what is free when it is ready.
            let free = card.usable().saturating_sub(most);
            engine.free_when_ready = engine.free_when_ready.map(|it| it.min(free));
        }
        Some(Serving::new(engine, card))
    }

    /// Of what an engine on `card` reported.
    pub fn new(engine: EngineNote, card: &Card) -> Serving {
        let available = engine.cache.or(engine.available).filter(|_| engine.refused.is_none());
        let users = |&(length, needs): &(u64, Bytes)| {
            let users = available?.0.checked_div(needs.0)?;
            (users != 0).then_some(Users { length, users })
        };
        let users = engine.needs.iter().filter_map(users).collect();
        let elsewhere = elsewhere(&engine, card);
        let (least_share, most_share) = (least_share(&engine), most_share(&engine));
        let share_for_longest = match engine.shortest {
            Some(_) => longest(&engine).and_then(|(_, needs)| least_for(&engine, needs)),
            None => engine.least_for_longest.and_then(hundredths),
        };
        let share_for_longest =
            share_for_longest.filter(|it| least_share.is_some_and(|least| least < *it));
        let free = engine.free_when_ready.filter(|_| engine.plans_without_a_pass());
        Serving { engine, users, least_share, share_for_longest, most_share, free, elsewhere }
    }
}

/// What the longest request needs.
fn longest(engine: &EngineNote) -> Option<(u64, Bytes)> {
    engine.needs.last().copied()
}

/// The bytes that an engine may use of a card with `total` bytes, if it is told to take `share` of it: rounded up, as vLLM does.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of a count of bytes, as the engine computes it"
)]
pub fn share_of(total: Bytes, share: f64) -> Bytes {
    Bytes((total.0 as f64 * share).ceil() as u64)
}

/// What everything but keys and values takes of the share that the engine may use.
fn fixed(engine: &EngineNote) -> Option<Bytes> {
    let may_use = share_of(engine.shared()?, engine.share?);
    let parts = [engine.weights, engine.forward, engine.beside, engine.graphs];
    let parts: Bytes = parts.into_iter().flatten().sum();
    // Where nothing is available, the difference says nothing.
    match engine.available {
        Some(it) if it != Bytes::ZERO => Some(may_use.saturating_sub(it)),
        _ => Some(parts).filter(|it| *it != Bytes::ZERO),
    }
}

/// A share in hundredths, if it is one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a card, which is no larger than one"
)]
pub fn hundredths(share: f64) -> Option<u32> {
    (0.0..=1.0).contains(&share).then(|| (100.0 * share).round() as u32)
}

fn least_share(engine: &EngineNote) -> Option<u32> {
    if engine.plans_without_a_pass() {
        return engine.least.and_then(hundredths);
    }
    least_for(engine, to_start(engine)?)
}

/// The bytes for keys and values with which an engine starts that plans with a pass: those of its longest request, unless it chooses that.
fn to_start(engine: &EngineNote) -> Option<Bytes> {
    engine.shortest.or_else(|| longest(engine).map(|it| it.1))
}

/// The smallest share that leaves so many bytes for keys and values.
fn least_for(engine: &EngineNote, needs: Bytes) -> Option<u32> {
    let (fixed, total) = (fixed(engine)?, engine.total?);
    let hundredths = (100 * (fixed.0 + needs.0)).checked_div(total.0)? + 1;
    u32::try_from(hundredths).ok().filter(|it| *it <= 100)
}

/// The engine asks for its share of the whole card when it begins, and gives what it measured free to keys and values: what is free
/// once it is ready is what a larger share may take.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a share of a count of bytes, as the engine computes it"
)]
fn most_share(engine: &EngineNote) -> Option<u32> {
    let total = engine.shared()?.0 as f64;
    let at_start = engine.free_at_start?.0 as f64 / total;
    let when_ready = engine.free_when_ready?.0 as f64 / total + engine.share?;
    Some((100.0 * at_start.min(when_ready)).floor() as u32)
}

fn elsewhere(engine: &EngineNote, card: &Card) -> Vec<Elsewhere> {
    let (
        Some(fixed),
        Some((length, needs)),
        Some(to_start),
        Some(share),
        Some(total),
        Some(shared),
    ) = (
        fixed(engine),
        longest(engine),
        to_start(engine),
        engine.share,
        engine.total,
        engine.shared(),
    )
    else {
        return Vec::new();
    };
    // It would choose another share there, or divide it otherwise between states and the rest.
    if engine.is_own_share || engine.states.is_some() {
        return Vec::new();
    }
    let tokens = |it: Bytes| {
        let tokens = (u128::from(it.0) * u128::from(length)) / u128::from(needs.0.max(1));
        u64::try_from(tokens).unwrap_or(u64::MAX)
    };
    // What is not shared, its own context, is the same on each; so is what it takes of the rest of its share, where its cache is planned without that.
    let beside = engine.free_when_ready.filter(|_| engine.plans_without_a_pass());
    let beside = beside.map(|free| (shared - share_of(shared, share)).saturating_sub(free));
    let others = cards::catalogue().iter().filter(|other| {
        other.usual && other.id != card.id && other.compute_capability == card.compute_capability
    });
    others
        .map(|other| {
            let shared = other.total.saturating_sub(total.saturating_sub(shared));
            let may_use = share_of(shared, share);
            let available = may_use.0.checked_sub(fixed.0).map(Bytes);
            let starts = |it: &Bytes| match beside {
                Some(beside) => tokens(*it) != 0 && beside <= shared.saturating_sub(may_use),
                None => to_start <= *it,
            };
            let available = available.filter(starts);
            Elsewhere { card: other, available, tokens: available.map_or(0, tokens) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Refusal;

    const GIB: u64 = 1 << 30;

    /// As vLLM 0.24 reported it of an 8 B model on an H100.
    fn engine() -> EngineNote {
        EngineNote {
            name: "vllm".to_owned(),
            total: Some(Bytes(85_017_493_504)),
            share: Some(0.92),
            weights: Some(Bytes(15 * GIB)),
            forward: Some(Bytes(GIB)),
            available: Some(Bytes(56 * GIB)),
            cache: Some(Bytes(56 * GIB)),
            free_at_start: Some(Bytes(84_465_090_560)),
            free_when_ready: Some(Bytes(5_200_000_000)),
            needs: vec![(8192, Bytes(GIB)), (32_768, Bytes(4 * GIB)), (131_072, Bytes(16 * GIB))],
            ..EngineNote::default()
        }
    }

    fn serving(engine: EngineNote) -> Serving {
        let mut recording = Recording::default();
        recording.notes.engine = Some(engine);
        Serving::of(&[recording], cards::find("h100-80g").unwrap(), Bytes::ZERO).unwrap()
    }

    #[test]
    fn users_and_other_cards_follow_from_one_run() {
        let found = serving(engine());
        let users: Vec<_> = found.users.iter().map(|it| (it.length, it.users)).collect();
        assert_eq!(users, [(8192, 56), (32_768, 14), (131_072, 3)]);
        // 16.84 GiB for all but keys and values, and 16 for one request: of 79.18.
        assert_eq!(found.least_share, Some(42));
        assert_eq!(found.most_share, Some(98), "1.2 GiB of it are taken when the engine begins");
        let h200 = found.elsewhere.iter().find(|it| it.card.id == "h200").unwrap();
        assert_eq!(h200.available.map(|it| it.0 / GIB), Some(111));
        assert!(found.elsewhere.iter().all(|it| it.card.compute_capability == (9, 0)));
    }

    #[test]
    fn an_engine_that_chooses_its_longest_request_starts_with_less() {
        let found = serving(EngineNote { shortest: Some(Bytes(2 << 20)), ..engine() });
        assert_eq!((found.least_share, found.share_for_longest), (Some(22), Some(42)));
        let starts =
            |found: &Serving| found.elsewhere.iter().filter(|it| it.available.is_some()).count();
        assert!(starts(&serving(engine())) <= starts(&found));
    }

    #[test]
    fn an_engine_that_refuses_has_no_users() {
        let refused = Some(Refusal::default());
        assert!(serving(EngineNote { refused, cache: None, ..engine() }).users.is_empty());
    }
}
