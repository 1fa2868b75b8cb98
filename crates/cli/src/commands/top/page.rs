//! A snapshot as a page of text: devices above, processes below, and all that is known of the chosen one.

use plimsoll_core::units::Bytes;
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{
        Block, Borders, Cell, Clear, Paragraph, Row as Cells, Sparkline, StatefulWidget, Table,
        TableState, Widget as _, Wrap,
    },
};

use crate::{
    commands::top::{history::followed, view::View, words},
    gpu::machine::snapshot::{Device, End, Row, Snapshot},
    options::cli::Sort,
};

/// A device needs so many columns beside others.
const CELL: u16 = 26;
/// As people know what a training's memory is made of.
const CATEGORIES: [&str; 4] = ["parameters", "gradients", "optimizer", "other"];
/// Columns of the chosen process's history, and how wide a terminal has them.
const HISTORY: u16 = 40;
const WITH_HISTORY: u16 = 110;
/// Lines of the chosen process.
const DETAILS: u16 = 7;

const KEYS: &[(&str, &str)] = &[
    ("q, Ctrl-C", "end"),
    ("up, down, j, k", "choose a process; PgUp, PgDn, Home, End move further"),
    ("s, S", "sort by the next or the previous column"),
    ("r", "reverse the order"),
    ("/", "filter by name, command, user or process id"),
    ("m", "only watched processes"),
    ("0 to 9", "only this GPU; again: all"),
    ("Esc", "all lines again"),
    ("space", "hold still"),
    ("?", "these keys"),
];

const WORDS: &[(&str, &str)] = &[
    ("HELD", "GPU memory as the driver reports it, CUDA context included"),
    ("ALLOC", "memory of its tensors"),
    ("RESERV", "memory that PyTorch's allocator holds from the driver"),
    ("GROWTH", "growth of ALLOC from step to step"),
    ("ROOM", "free on the card, or reserved and not used by the process"),
    ("END IN", "when free memory is gone, if all on the card go on growing"),
];

/// Fills `area`.
pub(super) fn draw(snapshot: &Snapshot, view: &View, area: Rect, buffer: &mut Buffer) {
    let rows = view.rows(snapshot);
    let devices =
        device_lines(snapshot, view, area.width, (area.height.saturating_sub(4) / 3).max(1));
    let has_details = 16 <= area.height && !rows.is_empty();
    let notes = note_lines(snapshot, area.width);
    let [top, of_devices, of_notes, table, details, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(lines(&devices)),
        Constraint::Length(lines(&notes)),
        Constraint::Min(2),
        Constraint::Length(if has_details { DETAILS } else { 0 }),
        Constraint::Length(1),
    ])
    .areas(area);
    head(snapshot, view).render(top, buffer);
    Paragraph::new(devices).render(of_devices, buffer);
    Paragraph::new(notes).style(view.style(Color::Yellow)).render(of_notes, buffer);
    draw_table(&rows, view, table, buffer);
    if let Some(row) = view.place(&rows).map(|it| &rows[it]).filter(|_| has_details) {
        draw_details(snapshot, view, row, details, buffer);
    }
    foot_line(view).render(foot, buffer);
    if view.is_help {
        draw_help(view, area, buffer);
    }
}

/// The same as text, all lines of it, without what only a page has.
pub(super) fn text(snapshot: &Snapshot, view: &View, width: u16) -> String {
    let rows = view.rows(snapshot);
    let devices = device_lines(snapshot, view, width, u16::MAX);
    let notes = note_lines(snapshot, width);
    let of_table = u16::try_from(rows.len()).unwrap_or(u16::MAX).saturating_add(1);
    // A buffer of more is none.
    let most = u16::MAX / width.max(1);
    let mut res = String::new();
    let mut part = |height: u16, draw: &dyn Fn(Rect, &mut Buffer)| {
        let area = Rect::new(0, 0, width, height.min(most));
        let mut buffer = Buffer::empty(area);
        draw(area, &mut buffer);
        res += &picture(&buffer);
    };
    part(1, &|area, buffer| head(snapshot, view).render(area, buffer));
    part(lines(&devices), &|area, buffer| Paragraph::new(devices.clone()).render(area, buffer));
    part(lines(&notes), &|area, buffer| Paragraph::new(notes.clone()).render(area, buffer));
    if !rows.is_empty() {
        part(of_table, &|area, buffer| draw_table(&rows, view, area, buffer));
    }
    res
}

/// What stands in the buffer, line by line.
pub(super) fn picture(buffer: &Buffer) -> String {
    let area = buffer.area;
    let line = |y| {
        let mut res = String::new();
        let mut x = area.left();
        while x < area.right() {
            let symbol = buffer[(x, y)].symbol();
            res += symbol;
            x += u16::try_from(Span::raw(symbol).width()).unwrap_or(1).max(1);
        }
        format!("{}\n", res.trim_end())
    };
    (area.top()..area.bottom()).map(line).collect()
}

fn lines(of: &[Line<'_>]) -> u16 {
    u16::try_from(of.len()).unwrap_or(u16::MAX)
}

impl View {
    fn style(&self, color: Color) -> Style {
        if self.has_color { Style::new().fg(color) } else { Style::new() }
    }
}

fn head<'a>(snapshot: &Snapshot, view: &View) -> Line<'a> {
    let mut text = format!("plimsoll top  {}", snapshot.host);
    if let Some(driver) = &snapshot.driver {
        text += &format!("  driver {driver}");
    }
    text += &format!("  {}", words::clock(snapshot.at));
    if view.is_paused {
        text += "  paused: space goes on";
    }
    Line::styled(text, Modifier::BOLD)
}

/// Each in as many lines as it takes.
fn note_lines<'a>(snapshot: &Snapshot, width: u16) -> Vec<Line<'a>> {
    let mut res: Vec<String> = Vec::new();
    for note in snapshot.notes() {
        let first = res.len();
        for word in note.split(' ') {
            match res.get_mut(first..).and_then(<[String]>::last_mut) {
                Some(line) if line.chars().count() + word.chars().count() < usize::from(width) => {
                    *line += &format!(" {word}");
                }
                _ => res.push(word.to_owned()),
            }
        }
    }
    res.into_iter().map(Line::raw).collect()
}

/// What a device's memory is taken by.
struct Shares {
    total: Bytes,
    /// By tensors of watched processes; what these have reserved beside; what others hold, and the driver.
    parts: [Bytes; 3],
}

impl Shares {
    fn of(rows: &[Row<'_>], device: &Device) -> Option<Shares> {
        let memory = device.memory?;
        let here = rows.iter().filter(|it| it.device.is_some_and(|it| std::ptr::eq(it, device)));
        let counters: Vec<_> = here.filter_map(|it| it.counters).collect();
        let sum = |of: &dyn Fn(usize) -> Bytes| (0..counters.len()).map(of).sum::<Bytes>();
        let allocated = sum(&|it| counters[it].allocated);
        let unused = sum(&|it| counters[it].reserved.saturating_sub(counters[it].allocated));
        let others = memory.used().saturating_sub(allocated).saturating_sub(unused);
        Some(Shares { total: memory.total, parts: [allocated, unused, others] })
    }

    /// A bar `width` wide.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "columns of a terminal"
    )]
    fn bar(&self, view: &View, width: usize) -> Vec<Span<'static>> {
        let mut at = 0;
        let mut sum = Bytes::ZERO;
        let mut res = Vec::new();
        let looks = [("█", Color::Green), ("▓", Color::Cyan), ("▒", Color::Yellow)];
        for (part, (symbol, color)) in self.parts.iter().zip(looks) {
            sum = Bytes(sum.0.saturating_add(part.0));
            let to = ((sum.share_of(self.total).min(1.0)) * width as f64).round() as usize;
            // What is there at all is to be seen.
            let to = if *part != Bytes::ZERO && sum.share_of(self.total) < 1.0 {
                to.max(at)
            } else {
                to
            };
            res.push(Span::styled(symbol.repeat(to.saturating_sub(at)), view.style(color)));
            at = at.max(to);
        }
        res.push(Span::styled("░".repeat(width.saturating_sub(at)), view.style(Color::DarkGray)));
        res
    }
}

/// One line for each device; where there is no room for as many, several beside each other.
fn device_lines(snapshot: &Snapshot, view: &View, width: u16, most: u16) -> Vec<Line<'static>> {
    let rows = &snapshot.rows();
    let devices: Vec<&Device> = snapshot
        .devices
        .iter()
        .filter(|it| view.only_gpu.is_none_or(|gpu| it.index == gpu))
        .collect();
    if devices.len() <= usize::from(most) {
        let longest = devices.iter().map(|it| it.name.chars().count()).max().unwrap_or(0);
        let name_width = longest.min(usize::from(width / 4).clamp(12, 40));
        return devices
            .into_iter()
            .map(|it| device_line(rows, view, it, (name_width, width)))
            .collect();
    }
    let beside = usize::from((width / CELL).max(1));
    let room = beside * usize::from(most);
    let is_cut = room < devices.len();
    let shown = if is_cut { (room - 1).max(1) } else { devices.len() };
    let mut cells: Vec<Vec<Span<'static>>> =
        devices[..shown].iter().map(|it| device_cell(rows, view, it)).collect();
    if is_cut && 1 < room {
        cells.push(vec![Span::raw(format!("and {} more", devices.len() - shown))]);
    }
    cells.chunks(beside).map(|it| Line::from(it.concat())).collect()
}

fn device_line(
    rows: &[Row<'_>],
    view: &View,
    device: &Device,
    (name_width, width): (usize, u16),
) -> Line<'static> {
    let width = usize::from(width);
    let mut spans = vec![Span::raw(format!("GPU {:<5}", device.number()))];
    spans.push(Span::raw(cut(&device.name, name_width) + " "));
    let Some(shares) = Shares::of(rows, device) else {
        spans.push(Span::raw("the driver does not say how much memory it has"));
        return Line::from(spans);
    };
    let used = device.memory.unwrap_or_default().used();
    let busy = device.utilization.map(|it| format!(" busy {it:>3}%")).unwrap_or_default();
    let text = format!(
        " {:>5} of {:<5} {:>3.0}%{busy}",
        words::size(used),
        words::size(shares.total),
        100.0 * used.share_of(shares.total)
    );
    let bar = width.saturating_sub(9 + name_width + 1 + text.chars().count());
    spans.extend(shares.bar(view, bar));
    spans.push(Span::raw(text));
    Line::from(spans)
}

fn device_cell(rows: &[Row<'_>], view: &View, device: &Device) -> Vec<Span<'static>> {
    let mut spans = vec![Span::raw(format!("{:>4} ", device.number()))];
    match Shares::of(rows, device) {
        Some(shares) => {
            spans.extend(shares.bar(view, 8));
            let used = device.memory.unwrap_or_default().used();
            let (used, total) = (words::size(used), words::size(shares.total));
            spans.push(Span::raw(format!(" {used:>5}/{total:<6}")));
        }
        None => spans.push(Span::raw(format!("{:21}", "unknown"))),
    }
    spans
}

/// `text` in exactly so many columns; some letters take two.
fn cut(text: &str, width: usize) -> String {
    let taken = Span::raw(text).width();
    if taken <= width {
        return text.to_owned() + &" ".repeat(width - taken);
    }
    let mut res = String::new();
    for letter in text.chars() {
        if width <= Span::raw(&res).width() + Span::raw(letter.to_string()).width() {
            break;
        }
        res.push(letter);
    }
    res += "…";
    let taken = Span::raw(&res).width();
    res + &" ".repeat(width.saturating_sub(taken))
}

struct Column {
    title: &'static str,
    width: u16,
    /// Terminals that are narrower do without.
    from: u16,
    sort: Option<Sort>,
    cell: fn(&Row<'_>) -> Option<String>,
}

const fn column(
    title: &'static str,
    width: u16,
    from: u16,
    sort: Option<Sort>,
    cell: fn(&Row<'_>) -> Option<String>,
) -> Column {
    Column { title, width, from, sort, cell }
}

fn category(row: &Row<'_>, name: &str) -> Option<String> {
    row.counters?.categories.get(name).map(|it| words::size(*it))
}

/// All but the last are as wide as they say; the last has the rest.
const COLUMNS: &[Column] = &[
    column("GPU", 4, 0, Some(Sort::Gpu), |it| it.device.map(Device::number)),
    column("PID", 7, 0, Some(Sort::Pid), |it| Some(it.process.pid.to_string())),
    column("USER", 8, 72, Some(Sort::User), |row| {
        row.process.person.as_ref().map(|it| cut(&it.user, 8))
    }),
    column("HELD", 6, 0, Some(Sort::Held), |it| it.held.map(words::size)),
    column("ALLOC", 6, 0, Some(Sort::Allocated), |row| {
        row.counters.map(|it| words::size(it.allocated))
    }),
    column("RESERV", 6, 60, Some(Sort::Reserved), |row| {
        row.counters.map(|it| words::size(it.reserved))
    }),
    column("PARAMS", 6, 130, None, |it| category(it, "parameters")),
    column("GRADS", 6, 130, None, |it| category(it, "gradients")),
    column("OPTIM", 6, 130, None, |it| category(it, "optimizer")),
    column("OTHER", 6, 130, None, |it| category(it, "other")),
    column("STEP", 7, 80, Some(Sort::Step), |row| {
        row.process.status.as_ref()?.step.map(|it| it.to_string())
    }),
    column("GROWTH", 7, 66, Some(Sort::Growth), |it| it.counters?.growth.map(words::change)),
    column("ROOM", 6, 100, None, |it| it.room().map(words::size)),
    column("END IN", 7, 48, Some(Sort::End), |it| it.end().map(words::end)),
    column("WHAT", 0, 0, Some(Sort::Name), what),
];

/// The process's name; the rank of a job behind it.
fn what(row: &Row<'_>) -> Option<String> {
    let process = row.process;
    let mut res = process.name()?.to_owned();
    if let Some(status) = &process.status {
        if let Some(rank) = status.rank {
            res = format!("{res} rank {rank}");
        }
        if !status.alarms.is_empty() {
            res = format!("! {res}");
        }
    }
    Some(res)
}

fn draw_table(rows: &[Row<'_>], view: &View, area: Rect, buffer: &mut Buffer) {
    let columns: Vec<&Column> = COLUMNS.iter().filter(|it| it.from <= area.width).collect();
    let is_text = |it: &Column| matches!(it.title, "USER" | "WHAT");
    let title = |column: &Column| {
        let mark =
            if column.sort == Some(view.sort) { Modifier::REVERSED } else { Modifier::empty() };
        let text = Span::styled(column.title, mark | Modifier::BOLD);
        let line = Line::from(text);
        Cell::from(if is_text(column) { line } else { line.right_aligned() })
    };
    let taken: u16 = columns.iter().map(|it| it.width + 1).sum();
    let rest = usize::from((area.width + 1).saturating_sub(taken));
    let cells = |row: &Row<'_>| {
        let is_watched = row.process.status.is_some();
        let color = match row.end() {
            Some(End::In { seconds: Some(seconds), .. }) if seconds < 600.0 => Some(Color::Red),
            Some(End::In { .. }) => Some(Color::Yellow),
            _ if is_watched => Some(Color::Green),
            _ => None,
        };
        let cell = |column: &&Column| {
            let text = (column.cell)(row).unwrap_or_else(|| "-".to_owned());
            let line = Line::raw(if column.width == 0 { cut(&text, rest) } else { text });
            Cell::from(if is_text(column) { line } else { line.right_aligned() })
        };
        Cells::new(columns.iter().map(cell)).style(color.map_or(Style::new(), |it| view.style(it)))
    };
    let width = |column: &&Column| match column.width {
        0 => Constraint::Fill(1),
        width => Constraint::Length(width),
    };
    let table = Table::new(rows.iter().map(cells), columns.iter().map(width))
        .header(Cells::new(columns.iter().map(|it| title(it))))
        .row_highlight_style(Modifier::REVERSED);
    // What is printed once has no chosen line.
    let chosen = if view.is_page { view.place(rows) } else { None };
    let mut state = TableState::new().with_selected(chosen);
    StatefulWidget::render(table, area, buffer, &mut state);
}

fn draw_details(snapshot: &Snapshot, view: &View, row: &Row<'_>, area: Rect, buffer: &mut Buffer) {
    let process = row.process;
    let user = process.person.as_ref().map(|it| format!(" of {}", it.user)).unwrap_or_default();
    let name = process.name().unwrap_or("without a name here");
    let block = Block::new().borders(Borders::TOP).title(format!(" {} {name}{user} ", process.pid));
    let text: Vec<Line<'_>> = details(snapshot, row)
        .into_iter()
        .map(|(text, color)| Line::styled(text, color.map_or(Style::new(), |it| view.style(it))))
        .collect();
    let inner = block.inner(area);
    block.render(area, buffer);
    let looks = view.history.of(row);
    let is_drawn = WITH_HISTORY <= area.width && 1 < looks.len();
    let width = if is_drawn { HISTORY } else { 0 };
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(width)]).areas(inner);
    Paragraph::new(text).wrap(Wrap { trim: true }).render(left, buffer);
    if let Some((what, _)) = followed(row).filter(|_| is_drawn) {
        draw_history(what, &looks, view, right, buffer);
    }
}

/// How it came to be what it is: from the least to the most, as high as there is room.
fn draw_history(what: &str, looks: &[(f64, Bytes)], view: &View, area: Rect, buffer: &mut Buffer) {
    let looks = &looks[looks.len().saturating_sub(usize::from(area.width))..];
    let sizes = || looks.iter().map(|it| it.1);
    let (Some(least), Some(most)) = (sizes().min(), sizes().max()) else { return };
    let seconds = looks[looks.len() - 1].0 - looks[0].0;
    let [title, chart] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let between = if least == most {
        words::size(most)
    } else {
        format!("{} to {}", words::size(least), words::size(most))
    };
    Line::raw(format!("{what} {between} in {}", words::duration(seconds))).render(title, buffer);
    let range = most.saturating_sub(least).0;
    // The least is seen, too: as a tenth.
    let height = |it: Bytes| it.saturating_sub(least).0.saturating_add(range / 9).max(1);
    let bars: Vec<u64> = sizes().map(height).collect();
    let top = range.saturating_add(range / 9).max(10);
    Sparkline::default().data(bars).max(top).style(view.style(Color::Green)).render(chart, buffer);
}

fn details(snapshot: &Snapshot, row: &Row<'_>) -> Vec<(String, Option<Color>)> {
    let process = row.process;
    let held = row.held.map(|it| format!("holds {}", words::size(it)));
    let Some(status) = &process.status else {
        let held = held.unwrap_or_else(|| "the driver does not say how much it holds".to_owned());
        return vec![
            (held, None),
            (
                "To see what is in this memory, start the script with `plimsoll run`, or call `plimsoll.watch()` in it."
                    .to_owned(),
                None,
            ),
        ];
    };
    let mut res = Vec::new();
    if let Some(it) = status.alarms.last() {
        let step = it.step.map(|it| format!(" at step {it}")).unwrap_or_default();
        res.push((format!("{}{step}: {}", it.code, it.text), Some(Color::Red)));
    }
    if let Some(it) = row.counters {
        let size = words::size;
        let held = held.map(|it| format!("{it}, ")).unwrap_or_default();
        res.push((
            format!(
                "{held}reserved {} (most {}), allocated {} (most {})",
                size(it.reserved),
                size(it.peak_reserved),
                size(it.allocated),
                size(it.peak_allocated),
            ),
            None,
        ));
        let mut parts: Vec<_> = it.categories.iter().collect();
        parts.sort_by_key(|share| {
            CATEGORIES.iter().position(|name| name == share.0).unwrap_or(usize::MAX)
        });
        let parts: Vec<String> =
            parts.into_iter().map(|(name, bytes)| format!("{name} {}", size(*bytes))).collect();
        if !parts.is_empty() {
            res.push((parts.join(", "), None));
        }
        let free = it.largest_free.map(|it| format!(", the largest piece {}", size(it)));
        let expected = status.expected_peak.map(|it| format!(", {} reserved expected", size(it)));
        res.push((
            format!(
                "free in split blocks {}{}, {} retries, {} out of memory{}",
                size(it.inactive_split),
                free.unwrap_or_default(),
                it.retries,
                it.ooms,
                expected.unwrap_or_default()
            ),
            None,
        ));
    }
    res.push((progress(snapshot, row), None));
    res
}

/// Step, growth, end, and for how long nothing was heard.
fn progress(snapshot: &Snapshot, row: &Row<'_>) -> String {
    let Some(status) = &row.process.status else { return String::new() };
    let mut parts = Vec::new();
    match (status.step, status.seconds_per_step) {
        (Some(step), Some(seconds)) => parts.push(format!("step {step}, {seconds:.2} s each")),
        (Some(step), None) => parts.push(format!("step {step}")),
        _ => parts.push("no step yet".to_owned()),
    }
    match row.end() {
        Some(End::In { steps, .. }) => parts.push(format!(
            "grows {0} a step: free memory ({2}) is used up in {1} steps",
            words::change(row.counters.and_then(|it| it.growth).unwrap_or_default())
                .trim_start_matches('+'),
            words::count(steps),
            words::size(row.room().unwrap_or_default())
        )),
        Some(End::Never) => parts.push("does not grow".to_owned()),
        None => {}
    }
    let silent = snapshot.at - status.updated;
    if silent.max(0.0) > status.seconds_per_step.unwrap_or(0.0).mul_add(5.0, 10.0) {
        parts.push(format!("last report {} ago", words::duration(silent)));
    }
    parts.join("; ")
}

fn foot_line<'a>(view: &View) -> Line<'a> {
    if view.is_typing {
        return Line::raw(format!(
            "only lines with: {}_ Enter applies it, Esc clears it",
            view.filter
        ));
    }
    let order = if view.is_turned { ", turned" } else { "" };
    let mut text = format!("q end  ? keys  s sort: {}{order}", view.sort.title());
    if !view.filter.is_empty() {
        text += &format!("  / with: {}", view.filter);
    }
    if view.only_watched {
        text += "  m watched only";
    }
    if let Some(gpu) = view.only_gpu {
        text += &format!("  GPU {gpu} only");
    }
    Line::styled(text, Modifier::DIM)
}

fn draw_help(view: &View, area: Rect, buffer: &mut Buffer) {
    let row = |(key, what): &(&'static str, &'static str)| {
        Line::from(vec![Span::styled(format!("{key:16}"), Modifier::BOLD), Span::raw(*what)])
    };
    let mut text: Vec<Line<'_>> = KEYS.iter().map(row).collect();
    text.push(Line::raw(""));
    text.extend(WORDS.iter().map(row));
    text.push(Line::raw(""));
    for (symbol, color, what) in [
        ("█", Color::Green, "tensors of watched processes"),
        ("▓", Color::Cyan, "reserved by them and free"),
        ("▒", Color::Yellow, "other processes and the driver"),
        ("░", Color::DarkGray, "free"),
    ] {
        let mark = Span::styled(symbol.repeat(3), view.style(color));
        text.push(Line::from(vec![mark, Span::raw(format!("{:13}{what}", ""))]));
    }
    let height = (lines(&text) + 2).min(area.height);
    let width = 78.min(area.width);
    let [_, middle, _] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(height), Constraint::Fill(1)])
            .areas(area);
    let [_, middle, _] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(width), Constraint::Fill(1)])
            .areas(middle);
    Clear.render(middle, buffer);
    Paragraph::new(text).block(Block::bordered().title(" keys ")).render(middle, buffer);
}

#[cfg(test)]
mod tests;
