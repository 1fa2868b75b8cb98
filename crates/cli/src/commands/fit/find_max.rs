//! The largest value of a number in the command that fits.

use std::time::Instant;

use plimsoll_fit::{
    search::{self, FoundValue, Range, Rules, largest::Tried},
    views::largest::{self as view, FindMax},
};

use super::{Template, driver::Driver, in_file::InFile};
use crate::{
    exit::Exit,
    files::requested_file::RequestedFile,
    options::{cli::FitArgs, shown_command},
    output::{Output, say},
};

pub(super) fn run(
    args: &FitArgs,
    range: Range,
    template: &Template,
    rules: Rules,
    out: &mut Output,
) -> anyhow::Result<Exit> {
    let name = range.name.clone();
    let in_file = (!template.has(&name)).then(|| InFile::find(&name, args)).transpose()?;
    if let Some(place) = in_file.as_ref().filter(|_| !args.quiet) {
        say(&place.to_string());
    }
    let json = args.json.as_deref().map(RequestedFile::open).transpose()?;
    let started = Instant::now();
    let words = |value: Option<u64>| match value {
        Some(value) => template.with(&name, value),
        None => template.words(),
    };
    let mut driver = Driver::new(args, &rules.card, &words)?.in_file(in_file.as_ref());
    let (card, what, limit) = (rules.card.name.clone(), rules.what(), rules.most());
    let card_id = rules.card.id.clone();
    let begin = || search::largest_value(rules.clone(), range.clone(), args.by_remedies);
    let result = driver.drive(&rules, begin)?;
    let seconds = started.elapsed().as_secs_f64();
    let reached = driver.reached();
    let smallest = result.runs.iter().map(|it| it.value).min();
    let plan_line = smallest
        .filter(|_| in_file.is_none())
        .map(|it| shown_command::find_plan(args, &template.with(&name, it)));
    let check_line = result.found.filter(|_| in_file.is_none()).and_then(|it| {
        let gpu = args.gpu.as_deref().unwrap_or(&card_id);
        shown_command::check(args, gpu, None, &template.with(&name, it))
    });
    let found = FindMax {
        name: name.clone(),
        card,
        what,
        limit,
        result,
        plan_line,
        check_line,
        seconds,
        reached,
    };
    if let Some(sink) = json {
        let to_stdout = sink.is_stdout();
        sink.json(&view::json(&found), out)?;
        if to_stdout {
            return Ok(exit(&found.result));
        }
    }
    if !args.quiet {
        out.report(&view::text(&found), args.full, &[])?;
    }
    Ok(exit(&found.result))
}

fn exit(found: &FoundValue) -> Exit {
    let too_much = found.runs.iter().any(|it| it.tried == Tried::TooMuch);
    match found.found {
        Some(_) if found.depends() || found.so_far().is_some() => Exit::CouldNotTell,
        Some(_) => Exit::Fits,
        None if too_much && !found.interrupted => Exit::DoesNotFit,
        None => Exit::CouldNotTell,
    }
}
