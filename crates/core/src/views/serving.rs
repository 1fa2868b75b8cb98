//! What a serving engine makes of the card, in lines for people: tokens and users, from which share on it starts, other cards, and what
//! each setting would give.

use crate::{
    prediction::{Serving, Users},
    recording::OtherFlag,
    units::{Bytes, grouped},
};

/// Lengths that are named: few, and the longest among them.
const LENGTHS: usize = 4;

impl Serving {
    /// What is taken and what is free, behind the verdict.
    pub fn taken(&self) -> String {
        let it = &self.engine;
        let parts = [
            ("weights", it.weights),
            (it.words().passes, it.forward),
            ("CUDA graphs", it.graphs),
            ("states of requests (Mamba)", it.states),
            ("the driver", it.beside),
        ];
        let parts: Vec<String> = parts
            .into_iter()
            .filter_map(|(name, bytes)| {
                bytes.filter(|it| *it != Bytes::ZERO).map(|bytes| format!("{name} {bytes}"))
            })
            .collect();
        let parts = parts.join(", ");
        match it.cache.or(it.available) {
            Some(free) => format!("{parts}; {free} for keys and values"),
            None => parts,
        }
    }

    /// When an engine ran out of memory, and what to change.
    pub fn ran_out(&self) -> String {
        let it = &self.engine;
        let words = it.words();
        let (share, batched, ranks) = (words.share, words.batched, words.ranks);
        let (when, what) = if it.weights.is_none() {
            let what = format!("use quantized weights, a larger card, or several cards ({ranks})");
            ("while it loaded the weights", what)
        } else if it.blocks.is_none() {
            ("in its first forward pass", format!("a smaller {batched} makes that smaller"))
        } else if it.is_ready && it.plans_without_a_pass() {
            let what = format!(
                "a smaller {share} leaves more for passes, and a smaller {batched} makes them smaller"
            );
            ("while it served", what)
        } else if it.is_ready {
            ("while it served", format!("a smaller {share} leaves more beside the keys and values"))
        } else {
            let what = format!("a smaller {share} leaves more for CUDA graphs and the sampler");
            ("after it had planned its cache, while it warmed up", what)
        };
        format!("the engine ran out of memory {when}: {what}")
    }

    /// What follows, a sentence each.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut res = Vec::new();
        let is_rest_first = self.engine.has_longer_passes();
        res.extend(self.rest().filter(|_| is_rest_first));
        res.extend(self.tokens());
        res.extend(self.starts());
        res.extend(self.rest().filter(|_| !is_rest_first));
        res.extend(self.settings());
        res.extend(self.other_cards());
        res
    }

    /// With which share of the card, and on which others, an engine starts that does not start as it is.
    pub(super) fn elsewhere_and_other_shares(&self) -> Vec<String> {
        self.starts().into_iter().chain(self.other_cards()).collect()
    }

    /// `462,944 tokens of 128.00 KiB: 56 users of 8,192 tokens, 14 of 32,768`
    fn tokens(&self) -> Option<String> {
        let tokens = self.engine.tokens?;
        let (length, needs) = self.engine.needs.last()?;
        let each = Bytes(needs.0.checked_div(*length)?);
        let skip = self.users.len().saturating_sub(LENGTHS);
        let users: Vec<String> = (self.users.iter().skip(skip).enumerate())
            .map(|(i, Users { length, users })| {
                let (users, length) = (grouped(*users), grouped(*length));
                if i == 0 {
                    format!("{users} users of {length} tokens")
                } else {
                    format!("{users} of {length}")
                }
            })
            .collect();
        Some(format!("{} tokens of {each}: {}", grouped(tokens), users.join(", ")))
    }

    /// `starts with gpu_memory_utilization from 0.41 to 0.97 (it is 0.92 now)`
    fn starts(&self) -> Option<String> {
        let least = self.least_share?;
        let share = |it: u32| format!("{}.{:02}", it / 100, it % 100);
        let now = self.engine.share.map_or_else(String::new, |it| {
            let text = format!("{it:.3}");
            format!(" (it is {} now)", text.strip_suffix('0').unwrap_or(&text))
        });
        let range = match self.most_share.filter(|most| least <= *most) {
            Some(most) => format!("from {} to {}", share(least), share(most)),
            None => format!("from {} on", share(least)),
        };
        let longest = self.share_for_longest.zip(self.engine.longest_asked).map(|(it, length)| {
            format!("; holds a request of {} tokens from {} on", grouped(length), share(it))
        });
        let name = self.engine.words().share;
        Some(format!("starts with {name} {range}{now}{}", longest.unwrap_or_default()))
    }

    /// What an engine that plans without a pass leaves for them, and whether one as long as they may be was run.
    pub fn rest(&self) -> Option<String> {
        let (free, most) = (self.free?, self.engine.batched_tokens?);
        let run = self.engine.longest_pass.unwrap_or_default();
        let passes = if most <= run {
            format!("a pass of {} tokens was run", grouped(run))
        } else {
            let run = match run {
                0 => "none was run, and one".to_owned(),
                run => format!("the longest that was run had {}, so a longer one", grouped(run)),
            };
            let (most, flag) = (grouped(most), self.engine.words().batched);
            format!("passes may have {most} tokens ({flag}); {run} may still run out of memory")
        };
        Some(format!("{free} remained free at the largest moment of the run; {passes}"))
    }

    /// What each setting would give, by arithmetic.
    fn settings(&self) -> Option<String> {
        let it = &self.engine;
        if it.plans_without_a_pass() {
            let one = |other: &OtherFlag| {
                let (flag, tokens) = (&other.flag, grouped(other.tokens));
                match other {
                    OtherFlag { tokens: 0, .. } => format!("with {flag} it does not start"),
                    OtherFlag { freed: Bytes::ZERO, .. } => format!("{tokens} tokens with {flag}"),
                    OtherFlag { freed, .. } if it.tokens == Some(other.tokens) => {
                        format!("{freed} more beside the cache with {flag}")
                    }
                    OtherFlag { freed, .. } => {
                        format!("{tokens} tokens and {freed} more beside them with {flag}")
                    }
                }
            };
            let all: Vec<String> = it.instead.iter().map(one).collect();
            let name = it.words().name;
            return (!all.is_empty())
                .then(|| format!("by {name}'s own functions: {}", all.join("; ")));
        }
        let mut res = Vec::new();
        if it.dtype.as_deref() == Some("auto") {
            res.push("kv_cache_dtype=fp8 holds twice the tokens".to_owned());
        }
        if let Some(graphs) = it.graphs.filter(|graphs| !it.eager && *graphs != Bytes::ZERO) {
            res.push(format!("enforce_eager=True gives {graphs} more and is slower"));
        }
        if let (Some(forward), Some(tokens @ 2..)) = (it.forward, it.batched_tokens) {
            let half = Bytes(forward.0 / 2);
            res.push(format!("max_num_batched_tokens={} gives up to {half} more", tokens / 2));
        }
        (!res.is_empty()).then(|| format!("by arithmetic: {}", res.join("; ")))
    }

    fn other_cards(&self) -> Option<String> {
        let cards: Vec<String> = (self.elsewhere.iter())
            .map(|other| match other.available {
                Some(free) => {
                    format!("{} {free} for {} tokens", other.card.id, grouped(other.tokens))
                }
                None => format!("{} does not start", other.card.id),
            })
            .collect();
        (!cards.is_empty()).then(|| {
            format!(
                "the same on other cards of this architecture, by arithmetic: {}",
                cards.join("; ")
            )
        })
    }
}
