//! What a serving engine can hold: the longest context for so many users, the users of a context, the flags that are enough for both, the
//! smallest card. Few runs are enough, because the engine itself computes what its cache holds once it has measured a forward pass. The value
//! that is found was started; the next one was tried, or the engine's own rule refuses it with what that run measured.

use plimsoll_core::{
    cards::Card,
    prediction::share_of,
    recording::{EngineNote, EngineWords},
};

/// More runs on one card than this find nothing new.
const MOST_RUNS: usize = 12;

/// What is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Requests at once.
    pub users: Option<u64>,
    /// Tokens of each.
    pub context: Option<u64>,
    /// What may be changed beside the context.
    pub allowed: Vec<Lever>,
}

/// A flag of the engine that a search may set; the mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lever {
    /// As many requests at once as are asked for.
    MaxNumSeqs,
    /// The largest share of the card with which the engine starts.
    GpuMemoryUtilization,
    /// Keys and values in 8 bits.
    KvCacheDtype,
    /// No CUDA graphs.
    EnforceEager,
}

impl Lever {
    /// The mildest first.
    pub const ALL: [Lever; 4] =
        [Lever::MaxNumSeqs, Lever::GpuMemoryUtilization, Lever::KvCacheDtype, Lever::EnforceEager];

    /// As `--allow` names it.
    pub fn id(self, words: &EngineWords) -> String {
        let name = match self {
            Lever::MaxNumSeqs => words.at_once,
            Lever::GpuMemoryUtilization => words.share,
            Lever::KvCacheDtype => words.dtype,
            Lever::EnforceEager => words.eager,
        };
        name.replace('_', "-")
    }

    /// What it costs.
    pub fn costs(self) -> &'static str {
        match self {
            Lever::MaxNumSeqs => "fewer requests are computed at once",
            Lever::GpuMemoryUtilization => "less is free for other programs",
            Lever::KvCacheDtype => "keys and values are less precise",
            Lever::EnforceEager => "slower",
        }
    }
}

/// The longest request that the engine is to serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Length {
    /// As the command says.
    #[default]
    Unchanged,
    /// As long as the model allows.
    OfTheModel,
    /// So many tokens.
    Tokens(u64),
}

/// What the engine is started with instead of its own, by the names that it has for that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// The longest request.
    pub length: Length,
    /// Requests at once.
    pub at_once: Option<u64>,
    /// The share of the card, in hundredths.
    pub share: Option<u32>,
    /// Keys and values in 8 bits.
    pub fp8: bool,
    /// No CUDA graphs.
    pub eager: bool,
}

/// The value of an argument of the engine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument {
    /// What the engine chooses by itself.
    None,
    /// A count.
    Count(u64),
    /// A share, as in 0.92.
    Share(f64),
    /// A word.
    Word(&'static str),
    /// A switch that is on.
    On,
}

impl Flags {
    /// By the names of the engine's arguments.
    pub fn arguments(&self, words: &EngineWords) -> Vec<(&'static str, Argument)> {
        let mut res = Vec::new();
        match self.length {
            Length::Unchanged => {}
            Length::OfTheModel => res.push((words.length, Argument::None)),
            Length::Tokens(n) => res.push((words.length, Argument::Count(n))),
        }
        res.extend(self.at_once.map(|n| (words.at_once, Argument::Count(n))));
        let share = self.share.map(|share| Argument::Share(f64::from(share) / 100.0));
        res.extend(share.map(|share| (words.share, share)));
        res.extend(self.fp8.then_some((words.dtype, Argument::Word(words.eight_bits))));
        res.extend(self.eager.then_some((words.eager, Argument::On)));
        res
    }

    /// As somebody types them: names and values; a switch has none.
    pub fn options(&self, words: &EngineWords) -> Vec<(String, Option<String>)> {
        let typed = |(name, value): (&'static str, Argument)| {
            let value = match value {
                Argument::None => return None,
                Argument::Count(n) => Some(n.to_string()),
                Argument::Share(share) => Some(share.to_string()),
                Argument::Word(word) => Some(word.to_owned()),
                Argument::On => None,
            };
            Some((name.to_owned(), value))
        };
        self.arguments(words).into_iter().filter_map(typed).collect()
    }

    /// On one line: `max_model_len=32768, kv_cache_dtype=fp8`.
    pub fn shown(&self, words: &EngineWords) -> String {
        let one = |(name, value): (String, Option<String>)| {
            format!("{name}={}", value.unwrap_or_else(|| "True".to_owned()))
        };
        let of_the_model = (self.length == Length::OfTheModel)
            .then(|| format!("the longest {} of the model", words.length));
        let all: Vec<String> =
            of_the_model.into_iter().chain(self.options(words).into_iter().map(one)).collect();
        if all.is_empty() { "its own flags".to_owned() } else { all.join(", ") }
    }
}

/// A run that a search wants.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// On this card.
    pub card: &'a Card,
    /// With these flags.
    pub flags: Flags,
    /// How many the cache is to hold.
    pub users: u64,
    /// Of so many tokens; none for as many as the engine is to serve.
    pub context: Option<u64>,
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Came {
    /// The engine is ready, and holds the users.
    Ready,
    /// It holds fewer users.
    TooFew,
    /// It does not start, for this reason.
    Refuses(String),
    /// Memory ran out, there.
    RanOut(String),
    /// Another failure.
    Fails(String),
    /// Somebody asked us to stop.
    Interrupted,
}

/// A run and what the engine reported.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// What came of it.
    pub came: Came,
    /// The engine's numbers.
    pub note: EngineNote,
}

/// A run that was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Tried {
    /// The id of the card.
    pub card: String,
    /// With these flags.
    pub flags: Flags,
    /// What came of it.
    pub trial: Trial,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// What was started and holds what was asked; an index into `tried`.
    pub best: Option<usize>,
    /// The next value, which was tried and does not; an index into `tried`.
    pub next: Option<usize>,
    /// The context that the engine's own rule refuses with what the best run measured: one token more than that.
    pub refused: Option<u64>,
    /// The longest that the model allows, where that was asked of it.
    pub model_longest: Option<u64>,
    /// All runs.
    pub tried: Vec<Tried>,
    /// Somebody asked us to stop.
    pub interrupted: bool,
}

impl Found {
    /// What was started and holds what was asked.
    pub fn best(&self) -> Option<&Tried> {
        self.best.and_then(|i| self.tried.get(i))
    }

    /// The next value, which does not.
    pub fn next(&self) -> Option<&Tried> {
        self.next.and_then(|i| self.tried.get(i))
    }

    /// Whether passes may be longer there than any that was run.
    pub fn is_so_far(&self) -> bool {
        self.best().is_some_and(|it| it.trial.note.has_longer_passes())
    }

    /// What users of the engine call things, as far as a run showed which engine it is.
    pub fn words(&self) -> &'static EngineWords {
        let named = self.tried.iter().map(|it| &it.trial.note).find(|it| !it.name.is_empty());
        named.map_or_else(|| EngineNote::default().words(), EngineNote::words)
    }

    /// Why the last run that failed did, if one failed for another reason than memory.
    pub fn failure(&self) -> Option<&str> {
        self.tried.iter().rev().find_map(|it| match &it.trial.came {
            Came::Fails(why) => Some(why.as_str()),
            _ => None,
        })
    }
}

impl Tried {
    fn is_ready(&self) -> bool {
        self.trial.came == Came::Ready
    }

    /// Its flags, with the context that the engine was to serve.
    pub fn flags_with_length(&self) -> Flags {
        let length = self.length().map_or(self.flags.length, Length::Tokens);
        Flags { length, ..self.flags }
    }

    /// The context that the engine was to serve.
    pub fn length(&self) -> Option<u64> {
        match self.flags.length {
            Length::Tokens(n) => Some(n),
            Length::Unchanged | Length::OfTheModel => self.trial.note.longest_asked,
        }
    }
}

/// Finds what is `wanted` on `card`; `run` makes a run.
///
/// # Errors
/// That of `run`.
pub fn search<E>(
    wanted: &Wanted,
    card: &Card,
    run: &mut dyn FnMut(Order<'_>) -> Result<Trial, E>,
) -> Result<Found, E> {
    let mut search = Search::new(wanted, run);
    search.on(card)?;
    Ok(search.found)
}

/// The smallest of `cards`, the smallest first, that holds what is `wanted`; `first` is where the search begins.
///
/// # Errors
/// That of `run`.
pub fn smallest_card<E>(
    wanted: &Wanted,
    cards: &[&Card],
    first: &Card,
    run: &mut dyn FnMut(Order<'_>) -> Result<Trial, E>,
) -> Result<Found, E> {
    let mut search = Search::new(wanted, run);
    search.on(first)?;
    let (Some(mut best), true) = (search.found.best, search.found.failure().is_none()) else {
        return Ok(search.found);
    };
    // What the first card's engine takes beside keys and values, and these for what is wanted, shows where to look.
    let needs = search.found.best().and_then(|it| needs(&it.trial.note, wanted));
    let fits =
        |card: &&Card| needs.is_none_or(|needs| needs <= share_of(card.total, search.share()).0);
    let guess = cards.iter().position(fits).unwrap_or_default();
    let (mut low, mut high) = (0, cards.iter().position(|it| it.id == first.id));
    let mut at = guess;
    while high.is_none_or(|it| low < it) && at < cards.len() {
        search.on(cards[at])?;
        if search.found.interrupted || search.found.failure().is_some() {
            break;
        }
        match search.found.best {
            Some(there) if search.found.tried[there].card == cards[at].id => {
                (best, high) = (there, Some(at));
                at = at.saturating_sub(1).max(low);
            }
            _ => {
                search.found.next = Some(search.found.tried.len() - 1);
                low = at + 1;
                at = low;
            }
        }
    }
    search.found.best = Some(best);
    Ok(search.found)
}

/// Bytes that the engine needs for what is wanted.
fn needs(note: &EngineNote, wanted: &Wanted) -> Option<u64> {
    let may_use = share_of(note.shared()?, note.share?).0;
    let fixed = may_use.saturating_sub(note.available?.0);
    let (length, bytes) = *note.needs.last()?;
    let tokens = wanted.context?.saturating_mul(wanted.users?);
    let cache = u128::from(bytes.0) * u128::from(tokens) / u128::from(length.max(1));
    Some(fixed.saturating_add(u64::try_from(cache).unwrap_or(u64::MAX)))
}

/// The largest share of the card, in hundredths, that the engine may ask for when it begins. A run shows whether it is ready with
/// it; what is free then is unknown before.
fn share_at_start(note: &EngineNote) -> Option<u32> {
    let (free, total) = (note.free_at_start?.0, note.total?.0);
    // What is beside the cache at any share is known of one that is ready.
    if note.plans_without_a_pass() {
        let (when_ready, share) = (note.free_when_ready?, note.share?);
        let most = share + when_ready.share_of(note.free_at_start?);
        return plimsoll_core::prediction::hundredths(most);
    }
    u32::try_from((u128::from(free) * 100).checked_div(u128::from(total))?).ok()
}

struct Search<'a, E> {
    wanted: &'a Wanted,
    run: &'a mut dyn FnMut(Order<'_>) -> Result<Trial, E>,
    found: Found,
}

impl<'a, E> Search<'a, E> {
    fn new(
        wanted: &'a Wanted,
        run: &'a mut dyn FnMut(Order<'_>) -> Result<Trial, E>,
    ) -> Search<'a, E> {
        let found = Found {
            best: None,
            next: None,
            refused: None,
            model_longest: None,
            tried: Vec::new(),
            interrupted: false,
        };
        Search { wanted, run, found }
    }

    fn users(&self) -> u64 {
        self.wanted.users.unwrap_or(1)
    }

    /// The share with which the best was found.
    fn share(&self) -> f64 {
        self.found.best().and_then(|it| it.trial.note.share).unwrap_or(0.9)
    }

    fn runs_on(&self, card: &Card) -> usize {
        self.found.tried.iter().filter(|it| it.card == card.id).count()
    }

    /// Searches on one card; `found` has its best.
    fn on(&mut self, card: &Card) -> Result<(), E> {
        self.found.best = None;
        match (self.wanted.users, self.wanted.context) {
            (Some(_), Some(context)) => self.flags_for(card, context),
            (None, Some(context)) => self.users_of(card, context),
            (_, None) => self.longest(card),
        }
    }

    /// Makes a run. None if the search is over: the script fails, or somebody asked us to stop.
    fn attempt(&mut self, card: &Card, flags: Flags) -> Result<Option<usize>, E> {
        if let Some(i) =
            (self.found.tried.iter()).position(|it| it.card == card.id && it.flags == flags)
        {
            return Ok(Some(i));
        }
        let (users, context) = (self.users(), self.wanted.context);
        let mut trial = (self.run)(Order { card, flags, users, context })?;
        // Who computes fewer at once serves fewer.
        if trial.came == Came::Ready
            && self.wanted.users.zip(trial.note.at_once).is_some_and(|(users, n)| n < users)
        {
            trial.came = Came::TooFew;
        }
        let goes_on = !matches!(trial.came, Came::Fails(_) | Came::Interrupted);
        self.found.interrupted |= trial.came == Came::Interrupted;
        self.found.tried.push(Tried { card: card.id.clone(), flags, trial });
        Ok(goes_on.then(|| self.found.tried.len() - 1))
    }

    /// The same; a share that the user allows to change is lowered until memory does not run out.
    fn settle(&mut self, card: &Card, flags: &mut Flags) -> Result<Option<usize>, E> {
        loop {
            let Some(i) = self.attempt(card, *flags)? else { return Ok(None) };
            match (flags.share, &self.found.tried[i].trial.came) {
                (Some(share @ 2..), Came::RanOut(_)) if self.runs_on(card) < MOST_RUNS => {
                    self.found.next = Some(i);
                    flags.share = Some(share - 1);
                }
                _ => return Ok(Some(i)),
            }
        }
    }

    /// `flags` with the first `n` of what is allowed.
    fn with_levers(&self, flags: Flags, n: usize, like: &EngineNote) -> Flags {
        let mut res = flags;
        let all = Lever::ALL.into_iter().filter(|it| self.wanted.allowed.contains(it));
        for lever in all.take(n) {
            match lever {
                Lever::MaxNumSeqs => {
                    res.at_once = self.wanted.users.or(like.users.filter(|it| *it != 0))
                }
                Lever::GpuMemoryUtilization => res.share = share_at_start(like),
                Lever::KvCacheDtype => res.fp8 = true,
                Lever::EnforceEager => res.eager = true,
            }
        }
        res
    }

    /// The longest context for so many users.
    fn longest(&mut self, card: &Card) -> Result<(), E> {
        let as_it_is = Flags { length: Length::OfTheModel, ..Flags::default() };
        let Some(mut at) = self.attempt(card, as_it_is)? else { return Ok(()) };
        let first = self.found.tried[at].trial.note.clone();
        self.found.model_longest = first.longest_asked;
        let mut flags = self.with_levers(as_it_is, Lever::ALL.len(), &first);
        if !self.found.tried[at].is_ready() && flags != as_it_is {
            let Some(i) = self.settle(card, &mut flags)? else { return Ok(()) };
            at = i;
        }
        if self.found.tried[at].is_ready() {
            self.found.best = Some(at);
            return Ok(());
        }
        let (mut good, mut bad): (Option<u64>, Option<u64>) = (None, self.found.model_longest);
        self.found.next = Some(at);
        let mut guess = self.found.tried[at].trial.note.longest.unwrap_or_default();
        while guess != 0 && self.runs_on(card) < MOST_RUNS {
            flags.length = Length::Tokens(guess);
            let Some(i) = self.settle(card, &mut flags)? else { return Ok(()) };
            let it = &self.found.tried[i];
            let rule = it.trial.note.longest.unwrap_or_default();
            if it.is_ready() {
                (good, self.found.best) = (Some(guess), Some(i));
                // A longer request makes no other part of the engine smaller.
                if rule == guess {
                    self.found.refused = Some(guess + 1);
                    break;
                }
            } else {
                (bad, self.found.next) = (Some(guess), Some(i));
            }
            let (low, high) = (good.unwrap_or_default(), bad.unwrap_or(u64::MAX));
            if high <= low + 1 {
                break;
            }
            // The rule says where to look. An engine that was told of a shorter request may have measured less, and hold a longer one.
            guess = if good == Some(guess) {
                rule.clamp(low + 1, high - 1)
            } else if low < rule && rule < high {
                rule
            } else {
                low.midpoint(high)
            };
        }
        Ok(())
    }

    /// How many users of a context.
    fn users_of(&mut self, card: &Card, context: u64) -> Result<(), E> {
        let as_it_is = Flags { length: Length::Tokens(context), ..Flags::default() };
        let Some(at) = self.attempt(card, as_it_is)? else { return Ok(()) };
        let first = &self.found.tried[at];
        let mut flags = self.with_levers(as_it_is, Lever::ALL.len(), &first.trial.note);
        if first.is_ready() {
            self.found.best = Some(at);
        }
        if flags != as_it_is {
            let Some(i) = self.settle(card, &mut flags)? else { return Ok(()) };
            if self.found.tried[i].is_ready() {
                self.found.best = Some(i);
            }
        }
        Ok(())
    }

    /// The fewest flags with which both are held.
    fn flags_for(&mut self, card: &Card, context: u64) -> Result<(), E> {
        let as_it_is = Flags { length: Length::Tokens(context), ..Flags::default() };
        let Some(at) = self.attempt(card, as_it_is)? else { return Ok(()) };
        if self.found.tried[at].is_ready() {
            self.found.best = Some(at);
            return Ok(());
        }
        let like = self.found.tried[at].trial.note.clone();
        self.found.next = Some(at);
        for n in 1..=self.wanted.allowed.len() {
            let mut flags = self.with_levers(as_it_is, n, &like);
            let Some(i) = self.settle(card, &mut flags)? else { return Ok(()) };
            if self.found.tried[i].is_ready() {
                self.found.best = Some(i);
                return Ok(());
            }
            self.found.next = Some(i);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use plimsoll_core::{cards, units::Bytes};

    use super::*;

    const GIB: u64 = 1 << 30;
    /// Of a token, in bytes.
    const TOKEN: u64 = 128 << 10;
    const BLOCK: u64 = 16;

    /// An engine of 16 GiB of weights and passes; what it takes grows a little with the longest request.
    fn engine(order: Order<'_>) -> Result<Trial, Infallible> {
        growing(order, 100)
    }

    /// The same that takes `each` bytes for each token of the longest request.
    fn growing(order: Order<'_>, each: u64) -> Result<Trial, Infallible> {
        let Order { card, flags, users, context } = order;
        let length = match flags.length {
            Length::Tokens(n) => n,
            Length::OfTheModel | Length::Unchanged => 131_072,
        };
        let share = flags.share.map_or(0.92, |it| f64::from(it) / 100.0);
        let token = if flags.fp8 { TOKEN / 2 } else { TOKEN };
        let graphs = if flags.eager { 0 } else { GIB };
        let fixed = 16 * GIB + graphs + length * each;
        let available = share_of(card.total, share).0.saturating_sub(fixed);
        let of = |length: u64| length.next_multiple_of(BLOCK) * token;
        let holds = |length: u64| available / of(length);
        let most = if matches!(flags.length, Length::Tokens(_)) { 2 * length } else { length };
        let longest = (1..=most).rev().find(|it| users <= holds(*it)).unwrap_or_default();
        let note = EngineNote {
            total: Some(card.total),
            share: Some(share),
            available: Some(Bytes(available)),
            free_at_start: Some(Bytes(card.total.0 - GIB)),
            longest_asked: Some(length),
            at_once: Some(flags.at_once.unwrap_or(64)),
            needs: vec![(length, Bytes(of(length)))],
            longest: Some(longest),
            users: Some(holds(context.unwrap_or(length))),
            ..EngineNote::default()
        };
        let came = if holds(length) == 0 {
            Came::Refuses("it needs more".to_owned())
        } else if holds(context.unwrap_or(length)) < users {
            Came::TooFew
        } else if 0.975 < share {
            Came::RanOut("while graphs are captured".to_owned())
        } else {
            Came::Ready
        };
        Ok(Trial { came, note })
    }

    fn card(id: &str) -> &'static Card {
        cards::find(id).unwrap()
    }

    fn found(wanted: &Wanted, id: &str) -> Found {
        search(wanted, card(id), &mut engine).unwrap()
    }

    #[test]
    fn the_longest_context_is_found_in_few_runs_and_the_next_is_refused() {
        for users in [4, 8, 31] {
            let it = found(&Wanted { users: Some(users), ..Wanted::default() }, "h100-80g");
            let length = it.best().unwrap().length();
            assert_eq!(length.map(|it| it + 1), it.refused, "{users}");
            let next = Order {
                card: card("h100-80g"),
                flags: Flags { length: Length::Tokens(it.refused.unwrap()), ..Flags::default() },
                users,
                context: None,
            };
            assert_eq!(engine(next).unwrap().came, Came::TooFew, "{users}");
            assert!(it.tried.len() <= 3, "{users}: {} runs", it.tried.len());
        }
    }

    #[test]
    fn an_engine_that_takes_much_less_for_a_shorter_request_holds_more_of_its_tokens() {
        let wanted = Wanted { users: Some(8), ..Wanted::default() };
        let it =
            search(&wanted, card("h100-80g"), &mut |it: Order<'_>| growing(it, 20_000)).unwrap();
        let length = it.best().unwrap().length().unwrap();
        assert!(it.tried.len() <= 5, "{} runs", it.tried.len());
        let holds = |length| {
            let flags = Flags { length: Length::Tokens(length), ..Flags::default() };
            let order = Order { card: card("h100-80g"), flags, users: 8, context: None };
            growing(order, 20_000).unwrap().came == Came::Ready
        };
        assert!(holds(length) && !holds(length + 16), "{length}");
    }

    #[test]
    fn a_model_that_fits_whole_takes_one_run() {
        let it = found(&Wanted::default(), "h100-80g");
        assert_eq!((it.tried.len(), it.best().and_then(Tried::length)), (1, Some(131_072)));
    }

    #[test]
    fn what_is_allowed_is_used_and_a_share_that_runs_out_is_lowered() {
        let wanted = Wanted { users: Some(32), allowed: Lever::ALL.to_vec(), ..Wanted::default() };
        let it = found(&wanted, "h100-80g");
        let flags = it.best().unwrap().flags;
        assert!(flags.fp8 && flags.eager, "{flags:?}");
        assert_eq!((flags.share, flags.at_once), (Some(97), Some(32)));
    }

    #[test]
    fn the_mildest_flag_that_is_enough() {
        let allowed = vec![Lever::EnforceEager, Lever::KvCacheDtype];
        let wanted = Wanted { users: Some(20), context: Some(32_768), allowed };
        let it = found(&wanted, "h100-80g");
        assert_eq!(
            it.best().unwrap().flags.shown(EngineNote::default().words()),
            "max_model_len=32768, kv_cache_dtype=fp8"
        );
        let none = Wanted { allowed: Vec::new(), ..wanted };
        assert_eq!(found(&none, "h100-80g").best, None);
        // More users than are computed at once.
        let many = Wanted { users: Some(65), context: Some(1024), allowed: Vec::new() };
        assert_eq!(found(&many, "h100-80g").best, None);
    }

    #[test]
    fn users_of_a_context() {
        let it = found(&Wanted { context: Some(8192), ..Wanted::default() }, "h100-80g");
        assert_eq!((it.tried.len(), it.best().unwrap().trial.note.users), (1, Some(55)));
    }

    #[test]
    fn a_share_is_lowered_on_each_of_many_cards() {
        let allowed = vec![Lever::GpuMemoryUtilization];
        let wanted = Wanted { users: Some(20), context: Some(16_384), allowed };
        // It runs out above 0.9 of each.
        let mut strict = |order: Order<'_>| {
            let mut trial = engine(order)?;
            if trial.came == Came::Ready && order.flags.share.is_some_and(|it| 90 < it) {
                trial.came = Came::RanOut("while graphs are captured".to_owned());
            }
            if order.flags.share.is_none() {
                trial.came = Came::TooFew;
            }
            Ok::<_, Infallible>(trial)
        };
        let cards = ["a100-80g", "h100-80g", "h200"].map(card);
        let it = smallest_card(&wanted, &cards, card("h200"), &mut strict).unwrap();
        let best = it.best().map(|it| (it.card.as_str(), it.flags.share));
        assert_eq!(best, Some(("a100-80g", Some(90))));
        assert!(MOST_RUNS < it.tried.len());
    }

    #[test]
    fn the_smallest_card() {
        let wanted = Wanted { users: Some(4), context: Some(8192), allowed: Vec::new() };
        let cards = ["t4", "l4", "rtx5090", "a100-40g", "h100-80g", "h200"].map(card);
        let it = smallest_card(&wanted, &cards, card("h200"), &mut engine).unwrap();
        let (best, next) = (it.best().unwrap(), it.next().unwrap());
        assert_eq!((best.card.as_str(), next.card.as_str()), ("rtx5090", "l4"));
    }
}
