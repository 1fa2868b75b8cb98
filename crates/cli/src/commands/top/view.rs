//! What the person has chosen to see, and how keys change it. It draws nothing.

use std::cmp::Ordering;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use crate::{
    commands::top::history::{History, Key, key},
    gpu::machine::snapshot::{End, Row, Snapshot},
    options::cli::Sort,
};

const SORTS: [Sort; 10] = [
    Sort::Gpu,
    Sort::Pid,
    Sort::User,
    Sort::Name,
    Sort::Held,
    Sort::Allocated,
    Sort::Reserved,
    Sort::Step,
    Sort::Growth,
    Sort::End,
];

/// What is seen, and of what.
#[derive(Clone, Debug, Default)]
pub(super) struct View {
    pub(super) sort: Sort,
    pub(super) is_turned: bool,
    /// Lines without this text are not shown.
    pub(super) filter: String,
    /// Keys go into the filter.
    pub(super) is_typing: bool,
    pub(super) only_watched: bool,
    pub(super) only_gpu: Option<u32>,
    pub(super) is_help: bool,
    pub(super) is_paused: bool,
    pub(super) has_color: bool,
    /// Somebody chooses lines in it.
    pub(super) is_page: bool,
    pub(super) history: History,
    /// The line that is chosen.
    pub(super) chosen: Option<Key>,
}

/// What a key leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    GoOn,
    /// With a fresh look at the machine.
    Look,
    End,
}

impl View {
    /// The lines that are seen, in order.
    pub(super) fn rows<'a>(&self, snapshot: &'a Snapshot) -> Vec<Row<'a>> {
        let mut res = snapshot.rows();
        res.retain(|it| self.has(it));
        res.sort_by(|a, b| {
            let order = self.sort.compare(a, b);
            if self.is_turned { order.reverse() } else { order }
        });
        res
    }

    /// Which of `rows` is chosen.
    pub(super) fn place(&self, rows: &[Row<'_>]) -> Option<usize> {
        let chosen = self.chosen.as_ref();
        let found = chosen.and_then(|chosen| rows.iter().position(|it| key(it) == *chosen));
        found.or((!rows.is_empty()).then_some(0))
    }

    fn has(&self, row: &Row<'_>) -> bool {
        let wanted = self.filter.to_lowercase();
        let process = row.process;
        let text = [
            process.name().unwrap_or_default(),
            process.person.as_ref().map_or("", |it| &it.user),
            process.person.as_ref().map_or("", |it| &it.name),
            row.device.map_or("", |it| &it.uuid),
            &process.pid.to_string(),
            &process.status.as_ref().map(|it| it.command.join(" ")).unwrap_or_default(),
        ];
        let is_gpu = |gpu: u32| row.device.is_some_and(|it| it.index == gpu);
        (wanted.is_empty() || text.join("\n").to_lowercase().contains(&wanted))
            && (!self.only_watched || process.status.is_some())
            && self.only_gpu.is_none_or(is_gpu)
    }

    pub(super) fn press(&mut self, key: KeyEvent, snapshot: &Snapshot) -> Then {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c' | 'd') => Then::End,
                KeyCode::Char('l') => Then::Look,
                _ => Then::GoOn,
            };
        }
        if self.is_typing {
            match key.code {
                KeyCode::Char(it) => self.filter.push(it),
                KeyCode::Backspace => drop(self.filter.pop()),
                KeyCode::Enter | KeyCode::Up | KeyCode::Down => self.is_typing = false,
                KeyCode::Esc => {
                    self.is_typing = false;
                    self.filter.clear();
                }
                _ => {}
            }
            return Then::GoOn;
        }
        match key.code {
            KeyCode::Char('q') => return Then::End,
            KeyCode::Esc if self.is_help => self.is_help = false,
            KeyCode::Esc if self.is_narrowed() => {
                self.filter.clear();
                self.only_watched = false;
                self.only_gpu = None;
            }
            KeyCode::Esc => return Then::End,
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.is_help = !self.is_help,
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char('s' | '>') => self.sort = self.sort.beside(1),
            KeyCode::Char('S' | '<') => self.sort = self.sort.beside(SORTS.len() - 1),
            KeyCode::Char('r') => self.is_turned = !self.is_turned,
            KeyCode::Char('m') => self.only_watched = !self.only_watched,
            KeyCode::Char(it) if it.is_ascii_digit() => {
                let gpu = it.to_digit(10);
                self.only_gpu = if self.only_gpu == gpu { None } else { gpu };
            }
            KeyCode::Char(' ') => {
                self.is_paused = !self.is_paused;
                if !self.is_paused {
                    return Then::Look;
                }
            }
            KeyCode::Up | KeyCode::Char('k') => self.step(snapshot, -1),
            KeyCode::Down | KeyCode::Char('j') => self.step(snapshot, 1),
            KeyCode::PageUp => self.step(snapshot, -10),
            KeyCode::PageDown => self.step(snapshot, 10),
            KeyCode::Home | KeyCode::Char('g') => self.step(snapshot, isize::MIN),
            KeyCode::End | KeyCode::Char('G') => self.step(snapshot, isize::MAX),
            _ => {}
        }
        Then::GoOn
    }

    fn is_narrowed(&self) -> bool {
        !self.filter.is_empty() || self.only_watched || self.only_gpu.is_some()
    }

    fn step(&mut self, snapshot: &Snapshot, by: isize) {
        let rows = self.rows(snapshot);
        let Some(place) = self.place(&rows) else { return };
        let to = place.saturating_add_signed(by).min(rows.len() - 1);
        self.chosen = Some(key(&rows[to]));
    }
}

impl Sort {
    fn beside(self, by: usize) -> Sort {
        let place = SORTS.iter().position(|it| *it == self).unwrap_or(0);
        SORTS[(place + by) % SORTS.len()]
    }

    /// As the title of its column has it.
    pub(super) fn title(self) -> &'static str {
        match self {
            Sort::Gpu => "GPU",
            Sort::Pid => "PID",
            Sort::User => "USER",
            Sort::Name => "WHAT",
            Sort::Held => "HELD",
            Sort::Allocated => "ALLOC",
            Sort::Reserved => "RESERV",
            Sort::Step => "STEP",
            Sort::Growth => "GROWTH",
            Sort::End => "END IN",
        }
    }

    /// Lines that are equal stay in the order of the devices.
    fn compare(self, a: &Row<'_>, b: &Row<'_>) -> Ordering {
        let user = |it: &Row<'_>| it.process.person.as_ref().map(|it| it.user.clone());
        let name = |it: &Row<'_>| it.process.name().map(str::to_lowercase);
        let step = |it: &Row<'_>| it.process.status.as_ref().and_then(|it| it.step);
        let growth = |it: &Row<'_>| it.counters.and_then(|it| it.growth).unwrap_or(f64::MIN);
        // Sooner is more.
        let nearness = |row: &Row<'_>| match row.end() {
            Some(End::In { steps, seconds }) => -seconds.unwrap_or(steps),
            Some(End::Never) => f64::MIN / 2.0,
            None => f64::MIN,
        };
        match self {
            Sort::Gpu => Ordering::Equal,
            Sort::Pid => a.process.pid.cmp(&b.process.pid),
            Sort::User => user(a).cmp(&user(b)),
            Sort::Name => name(a).cmp(&name(b)),
            Sort::Held => b.held.cmp(&a.held),
            Sort::Allocated => {
                b.counters.map(|it| it.allocated).cmp(&a.counters.map(|it| it.allocated))
            }
            Sort::Reserved => {
                b.counters.map(|it| it.reserved).cmp(&a.counters.map(|it| it.reserved))
            }
            Sort::Step => step(b).cmp(&step(a)),
            Sort::Growth => growth(b).total_cmp(&growth(a)),
            Sort::End => nearness(b).total_cmp(&nearness(a)),
        }
    }
}
