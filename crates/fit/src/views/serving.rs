//! What a search found that a serving engine can hold, for people and for programs.

use std::fmt::Write as _;

use plimsoll_core::{
    cards::Card,
    prediction::Serving,
    recording::{ENGINES, EngineWords, Reached},
    units::grouped,
    views::wire,
};
use serde_json::{Value, json};

use crate::serving::{Argument, Came, Found, Lever, Order, Trial, Tried, Wanted};

/// The version of the JSON.
const VERSION: u32 = 1;

/// What was asked and found.
#[derive(Clone, Debug)]
pub struct Report<'a> {
    /// On which card.
    pub card: &'a Card,
    /// The smallest card was asked for.
    pub is_any_card: bool,
    /// What was asked.
    pub wanted: Wanted,
    /// What was found.
    pub found: &'a Found,
    /// The command with the flags that were found.
    pub command: Option<String>,
    /// How long all of it took.
    pub seconds: f64,
    /// Whom the engine reached outside of its own processes, in all runs.
    pub reached: Reached,
}

/// What a run is asked for, as the agent reads it.
pub fn for_agent(order: &Order<'_>) -> String {
    let one = |(name, value): (&'static str, Argument)| {
        let value = match value {
            Argument::None => Value::Null,
            Argument::Count(n) => json!(n),
            Argument::Share(share) => json!(share),
            Argument::Word(word) => json!(word),
            Argument::On => json!(true),
        };
        (name.to_owned(), value)
    };
    let of = |words: &EngineWords| {
        let flags: serde_json::Map<String, Value> =
            order.flags.arguments(words).into_iter().map(one).collect();
        (words.id.to_owned(), Value::Object(flags))
    };
    // Which engine the script starts is known once it does.
    let flags: serde_json::Map<String, Value> = ENGINES.iter().map(of).collect();
    json!({ "flags": flags, "users": order.users, "context": order.context }).to_string()
}

/// What came of a run, in a few words.
pub fn outcome(trial: &Trial) -> String {
    let note = &trial.note;
    let longest = note.longest.filter(|it| *it != 0);
    let at_most =
        longest.map_or_else(String::new, |it| format!("; at most {} tokens", grouped(it)));
    match &trial.came {
        Came::Ready => format!("starts, and holds {}", users(note.users.unwrap_or(1))),
        Came::TooFew => match note.at_once.zip(note.users) {
            Some((at_once, held)) if at_once < held => {
                format!("computes {} at once at most ({})", users(at_once), note.words().at_once)
            }
            _ => format!("holds {} only{at_most}", users(note.users.unwrap_or_default())),
        },
        Came::Refuses(_) if longest.is_some() => format!("does not start{at_most}"),
        Came::Refuses(why) => format!("does not start: {why}"),
        Came::RanOut(at) => format!("runs out of memory: {at}"),
        Came::Fails(why) => why.clone(),
        Came::Interrupted => "interrupted".to_owned(),
    }
}

fn users(n: u64) -> String {
    format!("{} {}", grouped(n), if n == 1 { "user" } else { "users" })
}

fn tokens(n: Option<u64>) -> String {
    n.map_or_else(|| "an unknown number of tokens".to_owned(), |n| format!("{} tokens", grouped(n)))
}

/// Why an engine holds nothing, and what to change.
fn why_not(trial: &Trial, card: &Card) -> String {
    match &trial.came {
        Came::RanOut(_) => Serving::new(trial.note.clone(), card).ran_out(),
        Came::Refuses(why) if trial.note.longest.is_none_or(|it| it == 0) => {
            let remedies = trial.note.refused.iter().flat_map(|it| &it.remedies);
            std::iter::once(why).chain(remedies).cloned().collect::<Vec<_>>().join("; ")
        }
        _ => format!("the engine {}", outcome(trial)),
    }
}

/// How a headline without an answer begins.
const UNKNOWN: &str = "COULD NOT TELL:";

/// The answer.
fn headline(it: &Report<'_>) -> String {
    let (wanted, found, card) = (&it.wanted, it.found, it.card);
    let asked = match (wanted.users, wanted.context) {
        (Some(n), Some(context)) => format!("{} of {}", users(n), tokens(Some(context))),
        (Some(n), None) => users(n),
        (None, context) => tokens(context),
    };
    let Some(best) = found.best() else {
        return match (found.failure(), found.interrupted) {
            (Some(why), _) => format!("{UNKNOWN} {why}"),
            (None, true) => format!("{UNKNOWN} interrupted before anything was found"),
            (None, false) => {
                let why = found.tried.last().map(|it| why_not(&it.trial, card)).unwrap_or_default();
                format!("DOES NOT FIT {}: {asked}; {why}", card.id)
            }
        };
    };
    let fits = if found.is_so_far() { "FITS SO FAR" } else { "FITS" };
    let next = found.next().filter(|_| !it.is_any_card);
    match (wanted.users, wanted.context) {
        (Some(_), Some(_)) if it.is_any_card => {
            let smaller =
                found.next().map_or_else(String::new, |it| format!("; {} does not", it.card));
            format!("{} is the smallest card that was found to hold {asked}{smaller}", card.id)
        }
        (Some(_), Some(_)) => format!("{fits} {}: {asked}", card.id),
        (None, Some(_)) => {
            let note = &best.trial.note;
            let held = note.users.unwrap_or_default();
            let at_once = note.at_once.filter(|it| *it < held).map_or_else(String::new, |it| {
                format!("; it computes {} of them at once ({})", grouped(it), note.words().at_once)
            });
            format!("{fits} {}: {} of {asked}{at_once}", card.id, users(held))
        }
        (_, None) => {
            let longest = tokens(best.length());
            let beyond = found.refused.or_else(|| next.and_then(Tried::length));
            let is_next = beyond.is_some() && beyond == best.length().map(|it| it + 1);
            let at_most = if is_next { "at most " } else { "" };
            let rest = if best.length().is_some() && best.length() == found.model_longest {
                ", the longest that the model allows".to_owned()
            } else {
                beyond.map_or_else(String::new, |it| format!("; {} do not fit", grouped(it)))
            };
            format!("{fits} {}: {asked} of {at_most}{longest}{rest}", card.id)
        }
    }
}

/// For people.
pub fn text(it: &Report<'_>) -> String {
    let mut res = headline(it) + "\n";
    let found = it.found;
    let words = found.words();
    if let Some(best) = found.best() {
        let serving = Serving::new(best.trial.note.clone(), it.card);
        let _ = writeln!(res, "{}", serving.taken());
        res.extend(serving.rest().map(|it| it + "\n"));
        if let Some(command) = &it.command {
            let _ = writeln!(res, "\n  {command}");
        }
        let costs: Vec<String> =
            used(best).map(|it| format!("{}: {}", it.id(words), it.costs())).collect();
        if !costs.is_empty() {
            let _ = writeln!(res, "\n{}", costs.join("; "));
        }
    }
    if found.interrupted && found.best().is_some() {
        res += "\nthe search was interrupted; a better answer may exist\n";
    }
    res += "\ntried:\n";
    for tried in &found.tried {
        let _ = writeln!(
            res,
            "  {} on {}: {}",
            tried.flags.shown(words),
            tried.card,
            outcome(&tried.trial)
        );
    }
    if let Some(refused) = found.refused {
        let _ = writeln!(
            res,
            "the engine's own rule refuses {} tokens with what the last of these runs measured",
            grouped(refused)
        );
    }
    let not_allowed: Vec<String> = Lever::ALL
        .into_iter()
        .filter(|lever| !it.wanted.allowed.contains(lever))
        .map(|it| it.id(words))
        .collect();
    let is_whole = found.best().is_some_and(|best| best.length() == found.model_longest);
    // No flag makes an engine fit that has not come to what is free for keys and values.
    let was_measured = found.tried.iter().any(|it| it.trial.note.available.is_some());
    if !not_allowed.is_empty() && !is_whole && was_measured && found.failure().is_none() {
        let _ =
            writeln!(res, "--allow {} lets the search set these flags, too", not_allowed.join(","));
    }
    let ran_out = found.tried.last().is_some_and(|it| matches!(it.trial.came, Came::RanOut(_)));
    if found.best().is_none() && ran_out && !was_measured && !it.is_any_card {
        res += "without --gpu, and with --users and --context, plimsoll fit finds the smallest card that holds them\n";
    }
    let n = found.tried.len();
    let runs = if n == 1 { "once".to_owned() } else { format!("{n} times") };
    let _ = writeln!(res, "plimsoll started the engine {runs}, in {:.1} s", it.seconds);
    res + &it.reached.sentence().map(|it| it + "\n").unwrap_or_default()
}

/// The levers that are set there.
fn used(tried: &Tried) -> impl Iterator<Item = Lever> + '_ {
    let flags = &tried.flags;
    Lever::ALL.into_iter().filter(|lever| match lever {
        Lever::MaxNumSeqs => flags.at_once.is_some(),
        Lever::GpuMemoryUtilization => flags.share.is_some(),
        Lever::KvCacheDtype => flags.fp8,
        Lever::EnforceEager => flags.eager,
    })
}

/// For programs.
pub fn json(it: &Report<'_>) -> String {
    let found = it.found;
    let words = found.words();
    let one = |tried: &Tried| {
        let flags: serde_json::Map<String, Value> = (tried.flags.options(words).into_iter())
            .map(|(name, value)| (name, value.map_or(json!(true), Value::String)))
            .collect();
        let note = &tried.trial.note;
        json!({
            "gpu": tried.card,
            "flags": flags,
            "context": tried.length(),
            "users": note.users,
            "longest": note.longest,
            "outcome": word(&tried.trial.came),
            "text": outcome(&tried.trial),
        })
    };
    let best = found.best();
    let outcome = match best {
        Some(_) if found.is_so_far() => "fits_so_far",
        Some(_) => "fits",
        None if found.interrupted || found.failure().is_some() => "could_not_tell",
        None => "does_not_fit",
    };
    let serving = best.map(|best| wire::serving(&Serving::new(best.trial.note.clone(), it.card)));
    let res = json!({
        "version": VERSION,
        "outcome": outcome,
        "text": headline(it),
        "gpu": it.card.id,
        "asked": { "users": it.wanted.users, "context": it.wanted.context, "allow": it.wanted.allowed.iter().map(|it| it.id(words)).collect::<Vec<_>>() },
        "found": best.map(one),
        "next": found.next().map(one),
        "refused": found.refused,
        "command": it.command,
        "serving": serving,
        "tried": found.tried.iter().map(one).collect::<Vec<_>>(),
        "runs": found.tried.len(),
        "seconds": it.seconds,
        "interrupted": found.interrupted,
        "connections": wire::connections(&it.reached),
    });
    serde_json::to_string_pretty(&res).unwrap_or_default() + "\n"
}

fn word(came: &Came) -> &'static str {
    match came {
        Came::Ready => "ready",
        Came::TooFew => "too_few",
        Came::Refuses(_) => "refuses",
        Came::RanOut(_) => "runs_out",
        Came::Fails(_) => "fails",
        Came::Interrupted => "interrupted",
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::{cards, recording::EngineNote};

    use super::*;
    use crate::serving::{Flags, Length};

    /// What a search for the context of 8 users found that tried these, the best first.
    fn shown(tried: &[(u64, Came)], model_longest: Option<u64>, interrupted: bool) -> String {
        let card = cards::find("h200").unwrap();
        let of = |(length, came): &(u64, Came)| Tried {
            card: card.id.clone(),
            flags: Flags { length: Length::Tokens(*length), ..Flags::default() },
            trial: Trial { came: came.clone(), note: EngineNote::default() },
        };
        let next = (1 < tried.len()).then_some(1);
        let tried = tried.iter().map(of).collect();
        let found = Found { best: Some(0), next, refused: None, model_longest, tried, interrupted };
        text(&Report {
            card,
            is_any_card: false,
            wanted: Wanted { users: Some(8), ..Wanted::default() },
            found: &found,
            command: None,
            seconds: 1.0,
            reached: Reached::default(),
        })
    }

    #[test]
    fn only_what_the_next_value_refutes_is_the_most() {
        let first = |tried: &[(u64, Came)], longest| {
            shown(tried, longest, false).lines().next().unwrap_or_default().to_owned()
        };
        let near = [(1000, Came::Ready), (1001, Came::TooFew)];
        let at_most = "FITS h200: 8 users of at most 1,000 tokens; 1,001 do not fit";
        assert_eq!(first(&near, Some(9000)), at_most);
        let far = [(1000, Came::Ready), (2000, Came::TooFew)];
        assert_eq!(first(&far, Some(9000)), "FITS h200: 8 users of 1,000 tokens; 2,000 do not fit");
        assert_eq!(first(&far[..1], None), "FITS h200: 8 users of 1,000 tokens");
        let whole = "FITS h200: 8 users of 1,000 tokens, the longest that the model allows";
        assert_eq!(first(&far[..1], Some(1000)), whole);
    }

    #[test]
    fn who_interrupts_a_search_is_told_that_it_was_not_finished() {
        let says = "the search was interrupted; a better answer may exist";
        let tried = [(1000, Came::Ready), (2000, Came::Interrupted)];
        assert!(shown(&tried[..1], Some(9000), true).contains(says));
        assert!(!shown(&tried[..1], Some(9000), false).contains(says));
    }
}
