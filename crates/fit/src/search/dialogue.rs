//! A search as something that asks and waits. It is written as straight code with `async`, and the compiler makes the
//! state machine of it. Nothing runs side by side here: the only thing that such code waits for is an answer, and whoever
//! gives the answer has it go on.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt,
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};

use plimsoll_core::prediction::Tuned;

use super::ask::{Measure, Ran, Replay, Run, Steps};

/// A search that finds a `T`.
pub struct Search<T> {
    line: Line,
    code: Pin<Box<dyn Future<Output = T>>>,
    found: Option<T>,
}

/// What a search wants.
#[derive(Debug)]
pub enum Next<T> {
    /// To tell a person how it goes.
    Say(Said, Search<T>),
    /// To know what comes of a run.
    Run(Run, Waiting<T, Ran>),
    /// To know what would have let the last run through.
    Replay(Replay, Waiting<T, Vec<Tuned>>),
    /// To know how long steps take.
    Measure(Measure, Waiting<T, Steps>),
    /// Nothing more: this is what it found.
    Found(T),
}

/// A sentence for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// That is all there is to say.
    Plain(String),
    /// Something was computed, and how long that took may be said with it.
    Computed(String),
}

/// A search that goes on when it is told an `A`.
pub struct Waiting<T, A> {
    search: Search<T>,
    answer: fn(&Shared) -> &Cell<Option<A>>,
}

/// What the code of a search speaks through.
#[derive(Clone, Default)]
pub(super) struct Line(Rc<Shared>);

/// What lies between the code and whoever answers.
#[derive(Default)]
struct Shared {
    said: RefCell<VecDeque<Said>>,
    asked: Cell<Option<Asked>>,
    ran: Cell<Option<Ran>>,
    replayed: Cell<Option<Vec<Tuned>>>,
    measured: Cell<Option<Steps>>,
}

enum Asked {
    Run(Run),
    Replay(Replay),
    Measure(Measure),
}

impl<T> Search<T> {
    /// One that does what `code` says.
    pub(super) fn new<F: Future<Output = T> + 'static>(code: impl FnOnce(Line) -> F) -> Search<T> {
        let line = Line::default();
        let code = Box::pin(code(line.clone()));
        Search { line, code, found: None }
    }

    /// What it wants next.
    pub fn next(mut self) -> Next<T> {
        loop {
            let said = self.line.0.said.borrow_mut().pop_front();
            if let Some(said) = said {
                return Next::Say(said, self);
            }
            if let Some(found) = self.found.take() {
                return Next::Found(found);
            }
            match self.line.0.asked.take() {
                Some(Asked::Run(it)) => return Next::Run(it, self.waits_for(|it| &it.ran)),
                Some(Asked::Replay(it)) => {
                    return Next::Replay(it, self.waits_for(|it| &it.replayed));
                }
                Some(Asked::Measure(it)) => {
                    return Next::Measure(it, self.waits_for(|it| &it.measured));
                }
                None => (),
            }
            if let Poll::Ready(found) =
                self.code.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            {
                self.found = Some(found);
            }
        }
    }

    fn waits_for<A>(self, answer: fn(&Shared) -> &Cell<Option<A>>) -> Waiting<T, A> {
        Waiting { search: self, answer }
    }
}

impl<T, A> Waiting<T, A> {
    /// Tells it.
    pub fn tell(self, answer: A) -> Search<T> {
        (self.answer)(&self.search.line.0).set(Some(answer));
        self.search
    }
}

impl Line {
    /// For people.
    pub(super) fn say(&self, sentence: String) {
        self.0.said.borrow_mut().push_back(Said::Plain(sentence));
    }

    /// The same of something that took time to compute.
    pub(super) fn say_computed(&self, sentence: String) {
        self.0.said.borrow_mut().push_back(Said::Computed(sentence));
    }

    /// What comes of this run.
    pub(super) async fn run(&self, it: Run) -> Ran {
        self.ask(Asked::Run(it), |it| &it.ran).await
    }

    /// Which changes of the allocator would have let the last run through.
    pub(super) async fn replay(&self, it: Replay) -> Vec<Tuned> {
        self.ask(Asked::Replay(it), |it| &it.replayed).await
    }

    /// How long steps take.
    pub(super) async fn measure(&self, it: Measure) -> Steps {
        self.ask(Asked::Measure(it), |it| &it.measured).await
    }

    async fn ask<A>(&self, asked: Asked, answer: fn(&Shared) -> &Cell<Option<A>>) -> A {
        self.0.asked.set(Some(asked));
        poll_fn(|_| answer(&self.0).take().map_or(Poll::Pending, Poll::Ready)).await
    }
}

impl<T> fmt::Debug for Search<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Search").finish_non_exhaustive()
    }
}

impl<T, A> fmt::Debug for Waiting<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting").finish_non_exhaustive()
    }
}
