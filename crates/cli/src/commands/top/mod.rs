//! `plimsoll top`: who holds what on this machine's GPUs, and what is in it, again and again.

mod history;
mod page;
mod view;
mod wire;
mod words;

use std::{
    io::{self, IsTerminal as _},
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
};
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use self::view::{Then, View};
use crate::{
    exit::Exit,
    gpu::machine::{Looker, snapshot::Snapshot},
    options::cli::TopArgs,
    output::Output,
    signals::Signals,
};

/// How often the page asks whether a signal came, in milliseconds.
const TICK: u8 = 200;
/// As wide as text is that goes to no terminal.
const WIDTH: u16 = 160;

pub(crate) fn run(args: &TopArgs, out: &mut Output) -> anyhow::Result<Exit> {
    let mut looker = Looker::default();
    let snapshot = looker.look();
    let view = View {
        sort: args.sort,
        filter: args.filter.clone().unwrap_or_default(),
        ..View::default()
    };
    if args.json {
        out.json(&wire::document(&snapshot))?;
        return Ok(exit_of(&snapshot));
    }
    // Before a page is opened that has nothing to show.
    if let Some(why) = nothing(&snapshot) {
        anyhow::bail!("{why}");
    }
    let is_page = !args.once && out.is_terminal() && io::stdin().is_terminal();
    if !is_page {
        let width = terminal_size::terminal_size().map_or(WIDTH, |it| it.0.0);
        out.text(&page::text(&snapshot, &view, width))?;
        return Ok(Exit::Fits);
    }
    let view = View { has_color: out.is_styled(), is_page, ..view };
    watch(looker, snapshot, view, args.interval.0).context("cannot draw on this terminal")?;
    Ok(Exit::Fits)
}

/// The sentence that there is neither a GPU nor a run.
fn nothing(snapshot: &Snapshot) -> Option<String> {
    let why = snapshot.no_gpu.as_ref().filter(|_| snapshot.processes.is_empty())?;
    Some(format!("no NVIDIA GPU and no plimsoll run here: {why}"))
}

fn exit_of(snapshot: &Snapshot) -> Exit {
    if nothing(snapshot).is_some() { Exit::CouldNotTell } else { Exit::Fits }
}

/// The page, until a key or a signal ends it. The terminal is as it was afterwards, after a panic too.
fn watch(
    mut looker: Looker,
    mut snapshot: Snapshot,
    mut view: View,
    interval: Duration,
) -> io::Result<()> {
    let signals = Signals::hold()?;
    let mut terminal = ratatui::try_init()?;
    let mut looked = Instant::now();
    view.history.note(&snapshot);
    let res = loop {
        let drawn = terminal.draw(|frame| {
            let area = frame.area();
            page::draw(&snapshot, &view, area, frame.buffer_mut());
        });
        if let Err(error) = drawn {
            break Err(error);
        }
        match wait(&signals, &mut view, &snapshot, looked + interval) {
            Ok(Then::End) => break Ok(()),
            Ok(Then::GoOn) => {}
            Ok(Then::Look) => {
                snapshot = looker.look();
                looked = Instant::now();
                view.history.note(&snapshot);
            }
            Err(error) => break Err(error),
        }
    };
    let restored = ratatui::try_restore();
    if restored.is_err() {
        // It would write to the terminal that is gone, and panic.
        std::mem::forget(terminal);
    }
    res.and(restored)
}

/// Until something is to be drawn anew.
fn wait(
    signals: &Signals,
    view: &mut View,
    snapshot: &Snapshot,
    next: Instant,
) -> io::Result<Then> {
    loop {
        if !view.is_paused && next <= Instant::now() {
            return Ok(Then::Look);
        }
        // A terminal that is gone would keep crossterm reading for ever.
        let stdin = io::stdin();
        let mut terminal = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        match poll(&mut terminal, PollTimeout::from(TICK)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
        if terminal[0].revents().is_some_and(|it| it.intersects(is_gone)) {
            return Err(io::Error::other("it is gone"));
        }
        if event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    return Ok(view.press(key, snapshot));
                }
                Event::Resize(..) => return Ok(Then::GoOn),
                _ => {}
            }
        }
        match signals.next(Duration::ZERO)? {
            Some(it) if it.signal != Signal::SIGCHLD => return Ok(Then::End),
            _ => {}
        }
    }
}
