//! Made-up runs of a made-up script, and what is begun, waited for and made again.

use std::{cell::RefCell, collections::BTreeMap, fmt::Write as _, rc::Rc};

use expect_test::{Expect, expect};
use plimsoll_core::units::Bytes;

use crate::search::Until;

use super::*;

/// What a made-up run comes to.
#[derive(Clone, Debug, Default)]
struct Comes {
    failure: Option<Failure>,
    n_ooms: usize,
    compiles: bool,
    /// Allocated bytes at its first mark.
    takes: u64,
    host_ran_out: bool,
    /// It is lost with another one.
    lost: bool,
    /// The nursery dies of it.
    kills_nursery: bool,
    /// It ends after all others.
    slow: bool,
}

/// What the script does: by the name of the run, its values, whether others are under way, and whether it is a process of its own.
type Script = fn(Made<'_>) -> Comes;

#[derive(Clone, Copy)]
struct Made<'a> {
    name: &'a str,
    values: Values,
    had_company: bool,
    is_alone: bool,
}

#[derive(Debug)]
enum Stopped {
    ValuesMatter,
}

impl From<ValuesMatter> for Stopped {
    fn from(_: ValuesMatter) -> Stopped {
        Stopped::ValuesMatter
    }
}

/// A run that is under way, or has ended and nobody waited for it.
struct Begun {
    name: String,
    comes: Comes,
    had_company: bool,
    has_ended: bool,
}

/// A workshop that makes nothing and writes down what it is asked for.
struct Shop {
    script: Script,
    log: Rc<RefCell<String>>,
    serves: bool,
    may_serve: bool,
    speaks_of_compile: bool,
    begun: BTreeMap<usize, Begun>,
    n_begun: usize,
}

impl Shop {
    fn new(script: Script) -> Shop {
        Shop {
            script,
            log: Rc::default(),
            serves: false,
            may_serve: true,
            speaks_of_compile: false,
            begun: BTreeMap::new(),
            n_begun: 0,
        }
    }

    fn log(&self, line: &str) {
        let _ = writeln!(self.log.borrow_mut(), "{line}");
    }

    fn trial(name: &str, comes: &Comes) -> Trial<String> {
        Trial {
            failure: comes.failure.clone(),
            n_ooms: comes.n_ooms,
            compiles: comes.compiles,
            start: Start { steps: 2, marks: vec![vec![(vec![7], vec![Bytes::mib(comes.takes)])]] },
            had_company: false,
            read: name.to_owned(),
        }
    }
}

fn shown(order: &Order<&'static str>) -> String {
    let few = if order.until == Until::Steps(2) { ", two steps" } else { "" };
    let anew = if order.compiles_anew { ", compiles anew" } else { "" };
    format!("{}{few}{anew}", order.what)
}

impl Workshop for Shop {
    type What = &'static str;
    type Job = usize;
    type Output = (String, Comes);
    type Read = String;
    type Error = Stopped;

    fn has_nursery(&mut self, _: &&'static str) -> Result<bool, Stopped> {
        self.serves = self.may_serve;
        self.log(if self.serves { "a nursery starts" } else { "no nursery starts" });
        Ok(self.serves)
    }

    fn is_served(&self, _: &&'static str) -> bool {
        self.serves
    }

    fn begin(
        &mut self,
        order: &Order<&'static str>,
        values: Values,
    ) -> Result<Option<usize>, Stopped> {
        let had_company = 0 < self.under_way();
        for begun in self.begun.values_mut() {
            begun.had_company = true;
        }
        let with = match values {
            Values::Auto => "with values",
            Values::StandIns => "with stand-ins",
            Values::None => "without values",
        };
        self.log(&format!("begin {} {with}", shown(order)));
        self.n_begun += 1;
        let made = Made { name: order.what, values, had_company, is_alone: false };
        let (name, comes) = (shown(order), (self.script)(made));
        self.begun.insert(self.n_begun, Begun { name, comes, had_company, has_ended: false });
        Ok(Some(self.n_begun))
    }

    fn wait(
        &mut self,
        job: usize,
        or_others: bool,
    ) -> Result<Waited<(String, Comes), usize>, Stopped> {
        loop {
            if self.begun.get(&job).is_some_and(|it| it.has_ended) {
                return Ok(self.leaves(job));
            }
            let not_ended = self.begun.iter_mut().filter(|(_, it)| !it.has_ended);
            let next = not_ended.min_by_key(|(number, it)| (it.comes.slow, **number));
            match next {
                Some((number, begun)) if *number == job => {
                    begun.has_ended = true;
                }
                Some((_, begun)) => {
                    begun.has_ended = true;
                    let name = begun.name.clone();
                    self.log(&format!("{name} has ended"));
                    if or_others {
                        return Ok(Waited::Other(job));
                    }
                }
                None => return Ok(Waited::Lost),
            }
        }
    }

    fn is_over(&mut self, job: &usize) -> bool {
        self.begun.get(job).is_none_or(|it| it.has_ended)
    }

    fn end_nursery(&mut self) {
        self.log("the nursery ends");
        self.serves = false;
        self.begun.clear();
    }

    fn under_way(&mut self) -> usize {
        self.begun.values().filter(|it| !it.has_ended).count()
    }

    fn has_memory(&self) -> bool {
        true
    }

    fn seems_to_compile(&self) -> bool {
        self.serves && self.speaks_of_compile
    }

    fn needs_process(&self, what: &&'static str) -> bool {
        what.contains("backend")
    }

    fn is_as_a_process(&self, _: &&'static str) -> bool {
        self.serves
    }

    fn read(
        &mut self,
        _: &Order<&'static str>,
        (name, comes): (String, Comes),
    ) -> Result<Trial<String>, Stopped> {
        Ok(Shop::trial(&name, &comes))
    }

    fn alone(
        &mut self,
        order: &Order<&'static str>,
        values: Values,
    ) -> Result<Trial<String>, Stopped> {
        self.log(&format!("{} by itself", shown(order)));
        let made = Made { name: order.what, values, had_company: false, is_alone: true };
        Ok(Shop::trial(order.what, &(self.script)(made)))
    }

    fn pass_on_interrupt(&mut self, _: &(String, Comes)) -> Result<(), Stopped> {
        self.log("the interrupt is passed on");
        Ok(())
    }
}

impl Shop {
    fn leaves(&mut self, job: usize) -> Waited<(String, Comes), usize> {
        let Some(Begun { name, comes, had_company, .. }) = self.begun.remove(&job) else {
            return Waited::Lost;
        };
        if comes.lost {
            self.log(&format!("{name} is lost"));
            return Waited::Lost;
        }
        if comes.kills_nursery {
            self.log(&format!("the nursery dies of {name}"));
            return Waited::NurseryGone;
        }
        self.log(&format!("{name} ends"));
        Waited::Ended {
            had_company,
            host_ran_out: comes.host_ran_out,
            still_writes: false,
            interrupted: comes.failure == Some(Failure::Interrupted),
            left: (name, comes),
        }
    }
}

fn order(what: &'static str) -> Order<&'static str> {
    Order { what, until: Until::Steady, purpose: Purpose::Search, compiles_anew: false }
}

/// Asks for the runs of `names` one after the other, those after a `+` being likely with the one after them; and holds what was done against
/// `expected`.
fn asks(shop: Shop, cores: usize, names: &[&'static str], expected: &Expect) {
    let log = Rc::clone(&shop.log);
    let mut trials = Trials::new(shop, cores, true);
    let write = |line: String| {
        let _ = writeln!(log.borrow_mut(), "{line}");
    };
    let mut likely = Vec::new();
    for name in names {
        if let Some(name) = name.strip_prefix('+') {
            likely.push(order(name));
            continue;
        }
        trials.likely(likely.drain(..));
        match trials.run(&order(name)) {
            Err(Stopped::ValuesMatter) => {
                write("= values matter: the search begins anew".to_owned())
            }
            Ok(trial) => {
                let failure = trial.failure.map_or("fits".to_owned(), |it| format!("{it:?}"));
                write(format!("= {name}: {failure}"));
            }
        }
    }
    match trials.be_certain() {
        Err(Stopped::ValuesMatter) => write("= values matter: the search begins anew".to_owned()),
        Ok(()) => write(format!("= certain, {} runs", trials.n_runs())),
    }
    expected.assert_eq(&log.borrow());
}

fn fits(_: Made<'_>) -> Comes {
    Comes { takes: 4000, ..Comes::default() }
}

#[test]
fn what_is_likely_begins_beside_what_is_waited_for() {
    asks(
        Shop::new(fits),
        2,
        &["a", "+c", "b", "c"],
        &expect![[r#"
        a nursery starts
        begin a, two steps with stand-ins
        begin a without values
        a, two steps has ended
        a ends
        = a: fits
        a, two steps ends
        begin b without values
        begin c without values
        b ends
        = b: fits
        c ends
        = c: fits
        = certain, 4 runs
    "#]],
    );
}

#[test]
fn on_one_core_one_run_follows_the_other() {
    asks(
        Shop::new(fits),
        1,
        &["a", "+c", "b", "c"],
        &expect![[r#"
        a nursery starts
        begin a with values
        a ends
        begin a, two steps without values
        a, two steps ends
        = a: fits
        begin b without values
        b ends
        = b: fits
        begin c without values
        c ends
        = c: fits
        = certain, 4 runs
    "#]],
    );
}

#[test]
fn what_was_likely_and_is_not_any_more_does_not_begin() {
    asks(
        Shop::new(fits),
        2,
        &["+c", "a", "+d", "b", "d"],
        &expect![[r#"
            a nursery starts
            begin a, two steps with stand-ins
            begin a without values
            a, two steps has ended
            a ends
            = a: fits
            a, two steps ends
            begin b without values
            begin d without values
            b ends
            = b: fits
            d ends
            = d: fits
            = certain, 4 runs
        "#]],
    );
}

/// The run with values ends while `b` is made, or after everything.
fn values_matter(made: Made<'_>) -> Comes {
    Comes { takes: if made.values == Values::None { 4000 } else { 5000 }, ..Comes::default() }
}

#[test]
fn where_weights_without_values_change_what_is_allocated_the_search_begins_anew() {
    let names = ["a", "b", "a", "b"];
    asks(
        Shop::new(values_matter),
        2,
        &names,
        &expect![[r#"
        a nursery starts
        begin a, two steps with stand-ins
        begin a without values
        a, two steps has ended
        a ends
        = a: fits
        a, two steps ends
        = values matter: the search begins anew
        begin a, two steps without values
        begin a with values
        a, two steps has ended
        a ends
        a, two steps ends
        = a: fits
        begin b, two steps without values
        begin b with values
        b, two steps has ended
        b ends
        b, two steps ends
        = b: fits
        = certain, 6 runs
    "#]],
    );
}

#[test]
fn that_they_do_may_be_known_only_in_the_end() {
    let script =
        |made: Made<'_>| Comes { slow: made.values == Values::StandIns, ..values_matter(made) };
    asks(
        Shop::new(script),
        2,
        &["a", "b"],
        &expect![[r#"
        a nursery starts
        begin a, two steps with stand-ins
        begin a without values
        a ends
        = a: fits
        begin b without values
        b ends
        = b: fits
        a, two steps ends
        = values matter: the search begins anew
    "#]],
    );
}

#[test]
fn two_runs_that_need_the_same_port_are_made_one_at_a_time() {
    let script = |made: Made<'_>| Comes {
        failure: made.had_company.then(|| Failure::Raised {
            class: "OSError".to_owned(),
            at: Some(("train.py".to_owned(), 3)),
        }),
        takes: 4000,
        ..Comes::default()
    };
    asks(
        Shop::new(script),
        2,
        &["a", "+c", "b", "c"],
        &expect![[r#"
        a nursery starts
        begin a, two steps with stand-ins
        begin a without values
        a, two steps has ended
        a ends
        a, two steps ends
        begin a with values
        a ends
        begin a, two steps without values
        a, two steps ends
        = a: fits
        begin b without values
        b ends
        = b: fits
        begin c without values
        c ends
        = c: fits
        = certain, 5 runs
    "#]],
    );
}

#[test]
fn a_script_that_fails_in_any_case_stays_two_at_a_time() {
    let script = |made: Made<'_>| Comes {
        failure: made.name.contains('b').then_some(Failure::Exited(3)),
        takes: 4000,
        ..Comes::default()
    };
    asks(
        Shop::new(script),
        2,
        &["a", "+c", "b", "+d", "c", "d"],
        &expect![[r#"
        a nursery starts
        begin a, two steps with stand-ins
        begin a without values
        a, two steps has ended
        a ends
        = a: fits
        a, two steps ends
        begin b without values
        begin c without values
        b ends
        c ends
        begin b without values
        b ends
        = b: Exited(3)
        = c: fits
        begin d without values
        d ends
        = d: fits
        = certain, 6 runs
    "#]],
    );
}

#[test]
fn a_run_of_which_the_nursery_dies_is_made_again_by_itself_and_so_are_all_after_it() {
    let script = |made: Made<'_>| Comes {
        kills_nursery: made.name == "b" && !made.is_alone,
        takes: 4000,
        ..Comes::default()
    };
    asks(
        Shop::new(script),
        2,
        &["a", "b", "c"],
        &expect![[r#"
        a nursery starts
        begin a, two steps with stand-ins
        begin a without values
        a, two steps has ended
        a ends
        = a: fits
        a, two steps ends
        begin b without values
        the nursery dies of b
        the nursery ends
        b by itself
        = b: fits
        c by itself
        = c: fits
        = certain, 4 runs
    "#]],
    );
}

#[test]
fn where_two_at_a_time_take_all_of_the_machines_memory_the_run_is_made_again() {
    let script = |made: Made<'_>| Comes {
        host_ran_out: made.name == "c" && made.had_company,
        takes: 4000,
        ..Comes::default()
    };
    asks(
        Shop::new(script),
        2,
        &["a", "+c", "b", "c"],
        &expect![[r#"
        a nursery starts
        begin a, two steps with stand-ins
        begin a without values
        a, two steps has ended
        a ends
        = a: fits
        a, two steps ends
        begin b without values
        begin c without values
        b ends
        = b: fits
        c ends
        the nursery ends
        a nursery starts
        begin c without values
        c ends
        = c: fits
        = certain, 5 runs
    "#]],
    );
}

#[test]
fn a_run_that_is_lost_with_another_one_is_made_again() {
    let script = |made: Made<'_>| Comes {
        lost: made.name == "c" && made.had_company,
        takes: 4000,
        ..Comes::default()
    };
    asks(
        Shop::new(script),
        2,
        &["a", "+c", "b", "c"],
        &expect![[r#"
        a nursery starts
        begin a, two steps with stand-ins
        begin a without values
        a, two steps has ended
        a ends
        = a: fits
        a, two steps ends
        begin b without values
        begin c without values
        b ends
        = b: fits
        c is lost
        begin c without values
        c ends
        = c: fits
        = certain, 5 runs
    "#]],
    );
}

#[test]
fn ctrl_c_ends_the_first_run_and_nothing_is_made_again() {
    let script = |made: Made<'_>| Comes {
        failure: (made.values == Values::None).then_some(Failure::Interrupted),
        slow: made.values == Values::StandIns,
        ..Comes::default()
    };
    asks(
        Shop::new(script),
        2,
        &["a"],
        &expect![[r#"
        a nursery starts
        begin a, two steps with stand-ins
        begin a without values
        a ends
        = a: Interrupted
        = certain, 2 runs
    "#]],
    );
}

#[test]
fn a_script_that_compiles_has_values_and_compiles_once_more() {
    let script = |_: Made<'_>| Comes { compiles: true, takes: 4000, ..Comes::default() };
    asks(
        Shop::new(script),
        2,
        &["a", "b"],
        &expect![[r#"
        a nursery starts
        begin a, two steps with stand-ins
        begin a without values
        a, two steps has ended
        a ends
        a, two steps ends
        begin a, compiles anew with values
        a, compiles anew ends
        = a: fits
        begin b with values
        b ends
        = b: fits
        = certain, 4 runs
    "#]],
    );
}

#[test]
fn where_no_nursery_starts_each_run_is_a_process() {
    let shop = Shop { may_serve: false, ..Shop::new(fits) };
    asks(
        shop,
        2,
        &["a", "+c", "b", "c"],
        &expect![[r#"
        no nursery starts
        a by itself
        = a: fits
        b by itself
        = b: fits
        c by itself
        = c: fits
        = certain, 3 runs
    "#]],
    );
}

#[test]
fn another_allocator_is_a_process_of_its_own() {
    asks(
        Shop::new(fits),
        2,
        &["a", "backend:cudaMallocAsync", "b"],
        &expect![[r#"
        a nursery starts
        begin a, two steps with stand-ins
        begin a without values
        a, two steps has ended
        a ends
        = a: fits
        a, two steps ends
        backend:cudaMallocAsync by itself
        = backend:cudaMallocAsync: fits
        begin b without values
        b ends
        = b: fits
        = certain, 4 runs
    "#]],
    );
}

#[test]
fn a_run_that_ends_early_is_compared_by_what_it_did() {
    let script = |made: Made<'_>| Comes {
        failure: Some(Failure::NoStep),
        takes: if made.values == Values::None { 100 } else { 200 },
        ..Comes::default()
    };
    asks(
        Shop::new(script),
        1,
        &["a", "b", "c", "d"],
        &expect![[r#"
        a nursery starts
        begin a with values
        a ends
        begin a, two steps without values
        a, two steps ends
        = a: NoStep
        begin b with values
        b ends
        begin b, two steps without values
        b, two steps ends
        = b: NoStep
        begin c with values
        c ends
        begin c, two steps without values
        c, two steps ends
        = c: NoStep
        begin d with values
        d ends
        = d: NoStep
        = certain, 7 runs
    "#]],
    );
}
