//! What a person would write for a remedy, as edits of a Python script. The only Python in this crate: text that is put
//! together here, where the places are known with certainty, and never read or run.

use std::fmt::Write as _;

use plimsoll_core::plan::remedies;
use plimsoll_core::{
    plan::{Plan, Point, Remedy},
    recording::{Averages, Batch, Site, SiteKind, Span},
};

use super::{edit::Edit, sites::Place};

/// The edits of a script that a person would make for `remedy` of `plan`; `averages`: what the model's loss averages over. None where the places are not certain, or where it depends
/// on the script too much.
pub(super) fn edits(
    remedy: &Remedy,
    plan: &Plan,
    averages: Option<Averages>,
    place: &Place<'_>,
) -> Option<Vec<Edit>> {
    match remedy.id {
        remedies::FUSED => fused(place),
        remedies::FOREACH => foreach(place),
        remedies::ADAFACTOR => another_optimizer(place, "Adafactor"),
        remedies::SGD => another_optimizer(place, "SGD"),
        remedies::SET_TO_NONE => set_to_none(place),
        remedies::BUCKET_VIEW => bucket_view(place),
        remedies::NO_GRAD_EVALUATION => no_grad_evaluation(place),
        remedies::AUTOCAST => under_autocast(place, "bfloat16"),
        remedies::AUTOCAST_FP16 => autocast_fp16(place),
        remedies::CHECKPOINT => checkpoint(remedy, place),
        remedies::EMPTY_CACHE => empty_cache(remedy, place),
        remedies::TF32 => tf32(place),
        remedies::ALLOCATOR => allocator(remedy, place),
        remedies::MICRO_BATCHES => micro_batches(remedy, plan, averages?, place),
        _ => None,
    }
}

/// Only these classes know the option; Adagrad's runs on no GPU.
const HAVE_FUSED: [&str; 3] = ["SGD", "Adam", "AdamW"];

fn fused(place: &Place<'_>) -> Option<Vec<Edit>> {
    let site = place.sites.only(SiteKind::Optimizer)?;
    let is_known = site.name.as_ref().is_some_and(|it| HAVE_FUSED.contains(&it.as_str()));
    Some(vec![with_option(site, &["fused", "foreach"], "fused=True").filter(|_| is_known)?])
}

fn foreach(place: &Place<'_>) -> Option<Vec<Edit>> {
    let optimizer = place.sites.only(SiteKind::Optimizer)?;
    let all = std::iter::once(optimizer).chain(place.sites.all(SiteKind::Clip));
    all.map(|it| with_option(it, &["fused", "foreach"], "foreach=False")).collect()
}

/// The optimizer's call with another class of `torch.optim`, with what both understand.
fn another_optimizer(place: &Place<'_>, class: &str) -> Option<Vec<Edit>> {
    let site = place.sites.only(SiteKind::Optimizer)?;
    let call = site.call.as_ref().filter(|it| it.plain)?;
    place.sites.torch(&site.file)?;
    let text = |it: &Span| place.text(&site.file, *it);
    let mut all = vec![text(call.arguments.first()?)?.to_owned()];
    match call.keywords.get("lr").or(call.arguments.get(1)) {
        Some(rate) => all.push(format!("lr={}", text(rate)?)),
        // What Adam and AdamW take without one; others have other ones.
        None if site.name.as_deref().is_some_and(|it| it.starts_with("Adam")) => {
            all.push("lr=1e-3".to_owned())
        }
        None => return None,
    }
    if let Some(decay) = call.keywords.get("weight_decay") {
        all.push(format!("weight_decay={}", text(decay)?));
    }
    let written = format!("torch.optim.{class}({})", all.join(", "));
    Some(vec![Edit::instead(&site.file, call.span, &written)])
}

fn set_to_none(place: &Place<'_>) -> Option<Vec<Edit>> {
    let mut res = Vec::new();
    for site in place.sites.all(SiteKind::ZeroGrad) {
        let call = site.call.as_ref()?;
        // Where nothing is said, it is what PyTorch does.
        if let Some(said) = call.keywords.get("set_to_none").or(call.arguments.first()) {
            res.push(Edit::instead(&site.file, *said, "True"));
        }
    }
    Some(res)
}

fn bucket_view(place: &Place<'_>) -> Option<Vec<Edit>> {
    let option = "gradient_as_bucket_view";
    Some(vec![with_option(
        place.sites.only(SiteKind::Distributed)?,
        &[option],
        "gradient_as_bucket_view=True",
    )?])
}

fn no_grad_evaluation(place: &Place<'_>) -> Option<Vec<Edit>> {
    let under = |site: &Site| {
        place.sites.torch(&site.file)?;
        let lines = (site.statement.first.0, site.statement.end.0);
        Some(Edit::under(&site.file, lines, "with torch.no_grad():"))
    };
    let all: Vec<Edit> = place.sites.all(SiteKind::Evaluation).map(under).collect::<Option<_>>()?;
    (!all.is_empty()).then_some(all)
}

/// The lines from the call of the model to the loss, for each backward, under autocast.
fn under_autocast(place: &Place<'_>, dtype: &str) -> Option<Vec<Edit>> {
    let head = format!("with torch.autocast(\"cuda\", dtype=torch.{dtype}):");
    let under = |site: &Site| {
        place.sites.torch(&site.file)?;
        Some(Edit::under(&site.file, site.forward?, &head))
    };
    let all: Vec<Edit> = place.sites.all(SiteKind::Backward).map(under).collect::<Option<_>>()?;
    (!all.is_empty()).then_some(all)
}

fn autocast_fp16(place: &Place<'_>) -> Option<Vec<Edit>> {
    let (optimizer, step) =
        (place.sites.only(SiteKind::Optimizer)?, place.sites.only(SiteKind::Step)?);
    let backward = place.sites.only(SiteKind::Backward)?;
    // The scaler is made beside the optimizer and has to be seen where it is used.
    let is_seen = |site: &Site| {
        site.file == optimizer.file
            && (optimizer.function == 0 || site.function == optimizer.function)
    };
    let (call, stepped) = (backward.call.as_ref()?, step.call.as_ref()?);
    let (loss, stepping) = (call.owner?, stepped.owner?);
    if !is_seen(step)
        || !is_seen(backward)
        || !stepped.arguments.is_empty()
        || !call.arguments.is_empty()
    {
        return None;
    }
    let file = &step.file;
    let name = place.text(file, stepping)?;
    let mut res = under_autocast(place, "float16")?;
    res.push(Edit::after(optimizer, "scaler = torch.amp.GradScaler(\"cuda\")"));
    res.push(Edit::insert(file, loss.first, "scaler.scale("));
    res.push(Edit::insert(file, loss.end, ")"));
    for clip in place.sites.all(SiteKind::Clip).filter(|it| is_seen(it)) {
        res.push(Edit::before(clip, &format!("scaler.unscale_({name})")));
    }
    res.push(Edit::instead(file, stepped.span, &format!("scaler.step({name})")));
    res.push(Edit::after(step, "scaler.update()"));
    Some(res)
}

fn checkpoint(remedy: &Remedy, place: &Place<'_>) -> Option<Vec<Edit>> {
    let site = place.sites.only(SiteKind::Optimizer)?;
    let model = site.model.as_ref().filter(|_| !site.blocks.is_empty())?;
    let beside = site.beside.iter().map(|it| (&it.model, &it.blocks, it.cache));
    let mut text = String::new();
    for (model, blocks, cache) in [(model, &site.blocks, site.cache)].into_iter().chain(beside) {
        let names: Vec<&str> = match remedy.blocks() {
            // The plan has the same blocks of each model, as far as it has them.
            Some(all) => {
                let named = |it: &u64| blocks.get(usize::try_from(*it).ok()?).map(String::as_str);
                all.iter().filter_map(named).collect()
            }
            None => blocks.iter().map(String::as_str).collect(),
        };
        if names.is_empty() {
            continue;
        }
        if cache {
            writeln!(text, "{model}.config.use_cache = False").ok()?;
        }
        let (values, name) = written(&names);
        write!(
            text,
            "# these run again in backward instead of keeping their activations\n\
             for checkpointed in {values}:\n\
             \x20   checkpointed = {model}.get_submodule({name})\n\
             \x20   checkpointed.forward = functools.partial(\n\
             \x20       torch.utils.checkpoint.checkpoint, checkpointed.forward, use_reentrant=False\n\
             \x20   )\n"
        )
        .ok()?;
    }
    // At the top of the file: a name that is imported inside a function is another one there.
    let imports = "import functools\n\nimport torch.utils.checkpoint";
    let torch = place.sites.torch(&site.file)?;
    Some(vec![Edit::after_line(&site.file, torch, imports), Edit::after(site, &text)])
}

/// What a loop over these modules goes through, and how each is named then: `[0, 2]` and `f"h.{checkpointed}"`.
fn written(names: &[&str]) -> (String, String) {
    let numbered: Option<Vec<(&str, u64)>> = names
        .iter()
        .map(|name| {
            let (list, number) = name.rsplit_once('.').unwrap_or(("", name));
            Some((list, number.parse().ok()?))
        })
        .collect();
    match numbered.as_deref() {
        Some([(list, first), rest @ ..]) if rest.iter().all(|it| it.0 == *list) => {
            let all: Vec<u64> = std::iter::once(*first).chain(rest.iter().map(|it| it.1)).collect();
            let is_range = all.iter().zip(*first..).all(|(a, b)| *a == b);
            let values = match (is_range, first) {
                (true, 0) => format!("range({})", all.len()),
                (true, first) => format!("range({first}, {})", first + all.len() as u64),
                (false, _) => format!("{all:?}"),
            };
            let prefix = if list.is_empty() { String::new() } else { format!("{list}.") };
            (values, format!("f\"{prefix}{{checkpointed}}\""))
        }
        _ => (format!("{names:?}"), "checkpointed".to_owned()),
    }
}

fn empty_cache(remedy: &Remedy, place: &Place<'_>) -> Option<Vec<Edit>> {
    let site = match remedy.after()? {
        Point::Step => place.sites.only(SiteKind::Step)?,
        Point::Backward => place.sites.only(SiteKind::Backward)?,
        Point::Evaluation | Point::Forward => return None,
    };
    place.sites.torch(&site.file)?;
    Some(vec![Edit::after(site, "torch.cuda.empty_cache()")])
}

fn tf32(place: &Place<'_>) -> Option<Vec<Edit>> {
    let file = &place.sites.only(SiteKind::Optimizer)?.file;
    let line = "torch.set_float32_matmul_precision(\"high\")";
    Some(vec![Edit::after_line(file, place.sites.torch(file)?, line)])
}

/// Where one line makes the loss of a batch, and the next goes back through it. The loss is afterwards what it was: that of the whole batch.
fn micro_batches(
    remedy: &Remedy,
    plan: &Plan,
    averages: Averages,
    place: &Place<'_>,
) -> Option<Vec<Edit>> {
    // It wants the same lines; and processes that share a batch would exchange gradients after each part.
    if plan.remedies.iter().any(|it| it.id == remedies::EMPTY_CACHE)
        || place.sites.has(SiteKind::Distributed)
    {
        return None;
    }
    let parts = remedy.parts()?;
    let (site, _) = (place.sites.only(SiteKind::Backward)?, place.sites.only(SiteKind::Step)?);
    let Batch { name, at, loss } = site.batch.as_ref()?;
    let (first, last) = site.forward?;
    let file = &site.file;
    place.sites.torch(file)?;
    if last + 1 != site.statement.first.0 || place.indent(file, first)?.contains('\t') {
        return None;
    }
    // Names that no script has.
    let names = [
        "part_of_batch",
        "start_of_part",
        "share_of_part",
        "rows_of_part",
        "n_rows_of_batch",
        "all_of_batch",
        "loss_of_parts",
    ];
    if names.iter().any(|it| place.sources.get(file).is_none_or(|text| text.contains(it))) {
        return None;
    }
    let (counted, what) = match averages {
        Averages::ShiftedLabels => ("({of}[\"labels\"][:, 1:] != -100).sum()", "labels that count"),
        Averages::Labels => ("({of}[\"labels\"] != -100).sum()", "labels that count"),
        Averages::Samples => ("len(next(iter({of}.values())))", "samples"),
    };
    let counted = |of: &str| counted.replace("{of}", of);
    let before = format!(
        "# the batch in parts (gradient accumulation), each weighted by its {what}\n\
         all_of_batch, n_rows_of_batch, loss_of_parts = {}, len(next(iter({name}.values()))), 0\n\
         rows_of_part = -(-n_rows_of_batch // {parts})",
        counted(name)
    );
    let in_the_loop = format!(
        "    part_of_batch = {{key: it[start_of_part : start_of_part + rows_of_part] for key, it in {name}.items()}}\n\
         \x20   share_of_part = {} / all_of_batch\n\
         \x20   if share_of_part == 0:\n\
         \x20       continue",
        counted("part_of_batch")
    );
    let head = "for start_of_part in range(0, n_rows_of_batch, rows_of_part):";
    let after = format!("loss_of_parts = loss_of_parts + {loss}.detach()\n{loss} = loss_of_parts");
    Some(vec![
        Edit::before_line(file, first, &before),
        Edit::under(file, (first, site.statement.end.0), head),
        Edit::before_line(file, first, &in_the_loop),
        Edit::instead(file, *at, "part_of_batch"),
        Edit::before(site, &format!("    {loss} = {loss} * share_of_part")),
        Edit::after(site, &after),
    ])
}

/// Before torch is imported, in the only file that has places: another one may have used CUDA before.
fn allocator(remedy: &Remedy, place: &Place<'_>) -> Option<Vec<Edit>> {
    let mut files = place.sources.keys();
    let (file, None) = (files.next()?, files.next()) else { return None };
    let settings = remedy.settings()?;
    let text = format!("import os\n\nos.environ[\"PYTORCH_CUDA_ALLOC_CONF\"] = {settings:?}");
    Some(vec![Edit::before_line(file, place.sites.torch(file)?, &text)])
}

/// A call with one option more, unless it says one of `instead_of` already.
fn with_option(site: &Site, instead_of: &[&str], option: &str) -> Option<Edit> {
    let call = site.call.as_ref().filter(|it| it.plain)?;
    let is_said = instead_of.iter().any(|it| call.keywords.contains_key(*it));
    (!is_said).then_some(Edit::insert(&site.file, call.end?, &format!(", {option}")))
}
