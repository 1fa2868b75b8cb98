//! What a person would write in the switches that their own framework has: arguments of a Trainer, of accelerate, of `generate`.
//! A recipe says which lines change and how, and can tell whether a run had them.

use plimsoll_core::plan::{Numbers, remedies};
use plimsoll_core::{
    plan::Plan,
    recording::{Call, Framework, Setting, Site, SiteKind, Sites, Span, Switches},
};

use super::{
    dictionary::{Dialect, Dictionary},
    edit::Edit,
    sites::{Place, Places},
};

/// The names that transformers has for an AdamW with a state in 32 bits.
const ADAMS: [&str; 3] = ["adamw_torch", "adamw_torch_fused", "adamw_hf"];
/// Numbers of DeepSpeed's ZeRO that are elements which the device holds beside the model at once, and how few of them still move as fast as many
/// small ones do not.
const BUCKETS: [(&str, u64); 5] = [
    ("reduce_bucket_size", 50_000_000),
    ("allgather_bucket_size", 50_000_000),
    ("stage3_prefetch_bucket_size", 10_000_000),
    ("stage3_max_live_parameters", 100_000_000),
    ("sub_group_size", 100_000_000),
];
/// Those that only stage 3 reads.
const OF_STAGE_3: [&str; 3] =
    ["stage3_prefetch_bucket_size", "stage3_max_live_parameters", "sub_group_size"];
/// What `from_pretrained` is given for weights of 4 bits.
const IN_4_BITS: &str = "quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type=\"nf4\", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=\"bfloat16\")";

/// What can be asked of a framework.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// Batches in so many parts, and one step for all of them.
    Parts(u64),
    /// Blocks run again in backward.
    Checkpointing,
    /// The forward pass runs in bfloat16.
    HalfPrecision,
    /// The optimizer is Adafactor.
    Adafactor,
    /// The optimizer is bitsandbytes' AdamW with a state of 8 bits.
    AdamIn8Bits,
    /// The same, with its state in memory that the driver moves between host and device.
    PagedAdamIn8Bits,
    /// The frozen weights below adapters are loaded in 4 bits.
    FourBits,
    /// The rank of adapters is one part in so many of what it was.
    Rank(u64),
    /// Only modules of attention have adapters.
    AttentionOnly,
    /// Batches are padded to a multiple of so many tokens.
    PaddedTo(u64),
    /// The samples of a batch have nearly the same length, the longest first.
    GroupedLengths,
    /// PyTorch gives back what it keeps for later after each step.
    EmptyCache,
    /// The key-value cache of `generate` is of this kind.
    Cache(&'static str),
    /// A pipeline of diffusers has this switched on.
    Pipeline(&'static str),
    /// DeepSpeed's buckets and groups are small.
    ZeroBuckets,
    /// DeepSpeed spreads what this stage of ZeRO spreads.
    ZeroStage(u64),
    /// DeepSpeed has the optimizer's state in host memory, and steps there.
    ZeroOptimizerOnHost,
    /// DeepSpeed has weights in host memory until they are needed, which is stage 3 of ZeRO.
    ZeroWeightsOnHost,
}

/// A line of the script, as it would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its file.
    pub file: String,
    /// Its number in the script as it is.
    pub line: u32,
    /// What it has then: `TrainingArguments(per_device_train_batch_size=4)`.
    pub has: String,
}

/// Switches of a script's own framework, as a person would set them.
#[derive(Clone, Debug, Default)]
pub struct Recipe {
    /// Whose they are: `transformers`, `lightning`, `accelerate`.
    pub framework: &'static str,
    /// What changes, line by line.
    pub lines: Vec<Line>,
    /// What is added to the command.
    pub words: Vec<String>,
    /// What it does to the numbers.
    pub numbers: Numbers,
    /// The switches that it sets.
    pub switches: Vec<Switch>,
    edits: Vec<Edit>,
    wants: Vec<(Framework, Vec<(String, Setting)>)>,
}

impl Switch {
    /// The remedy that does the same; none if only a framework can.
    pub fn remedy(self) -> Option<&'static str> {
        Some(match self {
            Switch::PaddedTo(_) | Switch::GroupedLengths => return None,
            Switch::EmptyCache => remedies::EMPTY_CACHE,
            Switch::Parts(_) => remedies::MICRO_BATCHES,
            Switch::Checkpointing => remedies::CHECKPOINT,
            Switch::HalfPrecision => remedies::AUTOCAST,
            Switch::Adafactor => remedies::ADAFACTOR,
            Switch::AdamIn8Bits | Switch::PagedAdamIn8Bits => remedies::OPTIMIZER_8BIT,
            Switch::FourBits => remedies::QUANTIZATION,
            Switch::Rank(_) | Switch::AttentionOnly => remedies::LORA,
            Switch::Cache(_) | Switch::Pipeline("enable_model_cpu_offload") => {
                remedies::PARAMETER_OFFLOAD
            }
            Switch::Pipeline(_) => remedies::MICRO_BATCHES,
            Switch::ZeroBuckets => remedies::BUCKET_VIEW,
            Switch::ZeroStage(_) => remedies::ZERO1,
            Switch::ZeroOptimizerOnHost => remedies::OPTIMIZER_OFFLOAD,
            Switch::ZeroWeightsOnHost => remedies::PARAMETER_OFFLOAD,
        })
    }

    /// What it does to the numbers.
    pub fn numbers(self) -> Numbers {
        match self {
            // It is less precise, and the same training.
            Switch::FourBits => return Numbers::Precision,
            // Its seams are blended.
            Switch::Pipeline("vae.enable_tiling") => return Numbers::Precision,
            Switch::Pipeline(_) | Switch::Cache(_) => return Numbers::Same,
            // The batch of each device stays what it is.
            Switch::ZeroStage(_) => return Numbers::Same,
            // Dropout draws for what is padded, too.
            Switch::PaddedTo(_) => return Numbers::Statistics,
            Switch::GroupedLengths => return Numbers::Training,
            _ => (),
        }
        self.remedy().and_then(remedies::find).map_or(Numbers::Same, |it| it.numbers)
    }

    /// The library that it needs, if it needs one that a script may be without.
    pub fn library(self) -> Option<&'static str> {
        use Switch::{AdamIn8Bits, FourBits, PagedAdamIn8Bits};
        matches!(self, FourBits | AdamIn8Bits | PagedAdamIn8Bits).then_some("bitsandbytes")
    }

    /// For people, in a few words.
    pub fn shown(self) -> String {
        match self {
            Switch::Parts(n) => format!("{n} parts of the batch"),
            Switch::Checkpointing => "gradient checkpointing".to_owned(),
            Switch::HalfPrecision => "bfloat16".to_owned(),
            Switch::Adafactor => "Adafactor".to_owned(),
            Switch::AdamIn8Bits => "AdamW in 8 bits".to_owned(),
            Switch::PagedAdamIn8Bits => "paged AdamW in 8 bits".to_owned(),
            Switch::FourBits => "frozen weights in 4 bits".to_owned(),
            Switch::Rank(n) => format!("a rank {n} times smaller"),
            Switch::PaddedTo(n) => format!("batches padded to multiples of {n}"),
            Switch::GroupedLengths => "batches of nearly one length".to_owned(),
            Switch::EmptyCache => "empty_cache after each step".to_owned(),
            Switch::AttentionOnly => "adapters in attention only".to_owned(),
            Switch::Cache(kind) => format!("{kind} cache"),
            Switch::Pipeline(method) => method.to_owned(),
            Switch::ZeroBuckets => "smaller buckets of ZeRO".to_owned(),
            Switch::ZeroStage(n) => format!("stage {n} of ZeRO"),
            Switch::ZeroOptimizerOnHost => "ZeRO's optimizer in host memory".to_owned(),
            Switch::ZeroWeightsOnHost => "ZeRO's weights in host memory".to_owned(),
        }
    }

    /// What does what `plan` does, as far as frameworks have it.
    pub fn of(plan: &Plan) -> Vec<Switch> {
        let one = |id: &str, n: Option<u64>| match id {
            remedies::MICRO_BATCHES => Some(Switch::Parts(n?)),
            remedies::CHECKPOINT => Some(Switch::Checkpointing),
            remedies::AUTOCAST => Some(Switch::HalfPrecision),
            remedies::ADAFACTOR => Some(Switch::Adafactor),
            remedies::OPTIMIZER_8BIT => Some(Switch::AdamIn8Bits),
            _ => None,
        };
        plan.remedies.iter().filter_map(|it| one(it.id, it.parts())).collect()
    }
}

impl Recipe {
    /// Of `wanted` all that is not so already; none if that is nothing, the program's framework has not all of them, or the places are not certain.
    pub fn of(wanted: &[Switch], places: &Places) -> Option<Recipe> {
        let place = Place { sites: &places.sites, sources: &places.sources };
        let mut res = Recipe::default();
        for switch in wanted {
            if let Some(it) = res.add(*switch, &place)? {
                res.numbers = res.numbers.max(it.numbers());
                res.switches.push(it);
            }
        }
        Some(res).filter(|it| !it.switches.is_empty())
    }

    /// One switch more: which one it came to, and nothing if that is so already. None if there is no place for it.
    fn add(&mut self, switch: Switch, place: &Place<'_>) -> Option<Option<Switch>> {
        let sites = place.sites;
        let is_new = match switch {
            Switch::Parts(n) => {
                let n = self.parts(n, place)?;
                return Some((1 < n).then_some(Switch::Parts(n)));
            }
            Switch::Cache(kind) => self.cache(sites.of(Framework::Generate)?, kind, place)?,
            Switch::Pipeline(method) => self.pipeline(sites.of(Framework::Pipeline)?, method)?,
            Switch::FourBits => self.four_bits(sites.of(Framework::Loading)?, place)?,
            Switch::Rank(n) => self.rank(n, sites.of(Framework::Adapters)?, place)?,
            Switch::PaddedTo(n) => self.padded_to(n, place)?,
            Switch::GroupedLengths | Switch::EmptyCache => {
                self.trainer(switch, sites.of(Framework::Transformers)?, place)?
            }
            Switch::AttentionOnly => self.attention_only(sites.of(Framework::Adapters)?, place)?,
            Switch::ZeroBuckets
            | Switch::ZeroStage(_)
            | Switch::ZeroOptimizerOnHost
            | Switch::ZeroWeightsOnHost => {
                self.zero(switch, sites.of(Framework::DeepSpeed)?, place)?
            }
            Switch::Checkpointing
            | Switch::HalfPrecision
            | Switch::Adafactor
            | Switch::AdamIn8Bits
            | Switch::PagedAdamIn8Bits => {
                if let Some(it) = sites.of(Framework::Transformers) {
                    self.trainer(switch, it, place)?
                } else if let Some(it) = sites.of(Framework::Lightning) {
                    self.lightning(switch, it, place)?
                } else if let Some(it) = sites.of(Framework::Accelerate) {
                    self.accelerate(switch, it, place)?
                } else {
                    self.checkpointing(switch, place)?
                }
            }
        };
        Some(is_new.then_some(switch))
    }

    /// The files that change, each with the text that it then has; none if two edits are in each other's way.
    pub fn files(&self, places: &Places) -> Option<Vec<(String, String)>> {
        Some(super::edited(&self.edits, &places.sources)?.into_iter().collect())
    }

    /// The same for `patch -p0`, names relative to `folder`.
    pub fn diff(&self, places: &Places, folder: &str) -> String {
        super::diff(&self.edits, &places.sources, folder)
    }

    /// Whether `other` sets all that this sets, to whatever.
    pub(crate) fn has_all_in(&self, other: &Recipe) -> bool {
        let names = |recipe: &Recipe| -> Vec<(Framework, String)> {
            let all = recipe.wants.iter();
            all.flat_map(|(of, all)| all.iter().map(|it| (*of, it.0.clone()))).collect()
        };
        let others = names(other);
        names(self).iter().all(|it| others.contains(it))
    }

    /// Whether the switches are as this wants them in a run whose places are `after`, and everything else is as it was.
    pub fn was_in_force(&self, before: &Sites, after: &Sites) -> bool {
        let set = |framework| self.wants.iter().find(|it| it.0 == framework);
        let of = |sites: &Sites, framework| -> Vec<Switches> {
            sites.switches.iter().filter(|it| it.framework == framework).cloned().collect()
        };
        before.switches.iter().map(|it| it.framework).all(|framework| {
            let (before, after) = (of(before, framework), of(after, framework));
            let wanted: &[_] = set(framework).map_or(&[], |it| &it.1);
            before.len() == after.len()
                && before.iter().zip(&after).all(|(before, after)| after.is(before, wanted))
        })
    }

    /// The batch in so many equal parts, or in fewer where it has no so many; in how many.
    fn parts(&mut self, n: u64, place: &Place<'_>) -> Option<u64> {
        let sites = place.sites;
        let (framework, batch, parts) = if sites.of(Framework::Transformers).is_some() {
            let batch = (Framework::Transformers, "per_device_train_batch_size");
            (Framework::Transformers, batch, "gradient_accumulation_steps")
        } else if sites.of(Framework::Lightning).is_some() {
            (Framework::Lightning, (Framework::Loader, "batch_size"), "accumulate_grad_batches")
        } else {
            // Without `accumulate` each part would be a step of its own.
            sites.of(Framework::Accelerate).filter(|it| it.is_on("accumulates"))?;
            (
                Framework::Accelerate,
                (Framework::Loader, "batch_size"),
                "gradient_accumulation_steps",
            )
        };
        let (it, of_batch) = (sites.of(framework)?, sites.of(batch.0)?);
        let (before, size) = (it.number(parts)?, of_batch.number(batch.1)?);
        let n = (1..=n.min(size)).rev().find(|it| size.is_multiple_of(*it))?;
        if 1 < n {
            self.set(batch.0, of_batch, place, (batch.1, whole(size / n)?, Some(n)))?;
            self.set(framework, it, place, (parts, whole(before * n)?, None))?;
        }
        Some(n)
    }

    // Each of these says whether there was something to do.

    fn rank(&mut self, n: u64, it: &Switches, place: &Place<'_>) -> Option<bool> {
        let Some(rank) = divided(it.number("r")?, n) else { return Some(false) };
        self.set(Framework::Adapters, it, place, ("r", whole(rank)?, Some(n)))
    }

    /// By the collator that the script makes, else by the arguments of a Trainer that makes its own.
    fn padded_to(&mut self, n: u64, place: &Place<'_>) -> Option<bool> {
        let name = "pad_to_multiple_of";
        let framework = match place.sites.of(Framework::Collator) {
            Some(_) => Framework::Collator,
            None => Framework::Transformers,
        };
        let it = place.sites.of(framework)?;
        if *it.values.get(name)? != Setting::Nothing {
            return Some(false);
        }
        self.set(framework, it, place, (name, whole(n)?, None))
    }

    fn attention_only(&mut self, it: &Switches, place: &Place<'_>) -> Option<bool> {
        let of = |name: &str| match it.values.get(name)? {
            Setting::Text(names) => Some(names).filter(|it| !it.is_empty()),
            _ => None,
        };
        let (all, attention) = (of("targets")?, of("attention")?);
        if all == attention {
            return Some(false);
        }
        let names: Vec<String> = attention.split(", ").map(|it| format!("\"{it}\"")).collect();
        let names = format!("[{}]", names.join(", "));
        self.wants(Framework::Adapters, ("targets".to_owned(), text(attention)));
        self.framework = name_of(Framework::Adapters);
        self.write(it, it.site.as_ref()?, place, ("target_modules", &names, None))
    }

    fn trainer(&mut self, switch: Switch, it: &Switches, place: &Place<'_>) -> Option<bool> {
        let (name, value) = match switch {
            Switch::Checkpointing => ("gradient_checkpointing", Setting::Flag(true)),
            Switch::HalfPrecision if it.is_on("fp16") => return Some(false),
            Switch::HalfPrecision => ("bf16", Setting::Flag(true)),
            Switch::Adafactor => ("optim", text("adafactor")),
            Switch::EmptyCache => match it.values.get("torch_empty_cache_steps")? {
                Setting::Nothing => ("torch_empty_cache_steps", Setting::Whole(1)),
                _ => return Some(false),
            },
            // As a version calls it.
            Switch::GroupedLengths => match it.values.get("train_sampling_strategy") {
                Some(it) if *it != text("random") => return Some(false),
                Some(_) => ("train_sampling_strategy", text("group_by_length")),
                None => {
                    it.values.get("group_by_length")?;
                    ("group_by_length", Setting::Flag(true))
                }
            },
            Switch::AdamIn8Bits | Switch::PagedAdamIn8Bits => {
                let Setting::Text(before) = it.values.get("optim")? else { return None };
                let (name, of_8_bits) = ("paged_adamw_8bit", ["adamw_8bit", "adamw_bnb_8bit"]);
                let is_small = of_8_bits.contains(&before.as_str());
                let is_paged = switch == Switch::PagedAdamIn8Bits;
                if before == name || is_small && !is_paged {
                    return Some(false);
                }
                (is_small || ADAMS.contains(&before.as_str())).then_some(())?;
                ("optim", text(if is_paged { name } else { of_8_bits[0] }))
            }
            _ => return None,
        };
        if it.values.get(name) == Some(&value) {
            return Some(false);
        }
        self.set(Framework::Transformers, it, place, (name, value, None))
    }

    fn lightning(&mut self, switch: Switch, it: &Switches, place: &Place<'_>) -> Option<bool> {
        let is_new = match switch {
            Switch::HalfPrecision if it.values.get("precision")? != &text("32-true") => false,
            Switch::HalfPrecision => {
                let precision = ("precision", text("bf16-mixed"), None);
                self.set(Framework::Lightning, it, place, precision)?
            }
            it => self.checkpointing(it, place)?,
        };
        self.framework = "lightning";
        Some(is_new)
    }

    fn accelerate(&mut self, switch: Switch, it: &Switches, place: &Place<'_>) -> Option<bool> {
        let is_new = match switch {
            Switch::HalfPrecision if it.values.get("mixed_precision")? != &text("no") => false,
            Switch::HalfPrecision => {
                let precision = ("mixed_precision", text("bf16"), None);
                self.set(Framework::Accelerate, it, place, precision)?
            }
            it => self.checkpointing(it, place)?,
        };
        self.framework = "accelerate";
        Some(is_new)
    }

    /// Values of the configuration's `zero_optimization`.
    fn zero(&mut self, switch: Switch, it: &Switches, place: &Place<'_>) -> Option<bool> {
        let stage = it.number("stage")?;
        let is_third =
            stage == 3 || self.wanted(Framework::DeepSpeed, "stage") == Some(&Setting::Whole(3));
        let wanted: Vec<(&str, Setting)> = match switch {
            Switch::ZeroBuckets => {
                let is_read = |name: &str| is_third || !OF_STAGE_3.contains(&name);
                let is_large = |(name, most): &&(&str, u64)| {
                    is_read(name) && it.number(name).is_some_and(|n| *most < n)
                };
                let large = BUCKETS.iter().filter(is_large);
                large.filter_map(|(name, most)| Some((*name, whole(*most)?))).collect()
            }
            // Among one process there is nothing to spread.
            Switch::ZeroStage(n) if stage < n && 1 < it.number("world")? => {
                vec![("stage", whole(n)?)]
            }
            Switch::ZeroOptimizerOnHost if it.values.get("offload_optimizer")? == &text("none") => {
                (0 < stage).then(|| vec![("offload_optimizer", text("cpu"))])?
            }
            Switch::ZeroWeightsOnHost if it.values.get("offload_param")? == &text("none") => {
                let third = (!is_third).then_some(("stage", Setting::Whole(3)));
                third.into_iter().chain([("offload_param", text("cpu"))]).collect()
            }
            _ => Vec::new(),
        };
        let site = it.site.as_ref()?;
        let source = place.sources.get(&site.file)?;
        let (dialect, begin) = match site.file.ends_with(".py") {
            true => (Dialect::Python, place.byte(&site.file, site.statement.first)?),
            false => (Dialect::Json, 0),
        };
        let all = Dictionary::read(source, begin, dialect)?;
        let zero = all.inner("zero_optimization")?;
        let is_new = !wanted.is_empty();
        for (name, value) in wanted {
            let written = match &value {
                Setting::Text(device) => {
                    format!("{{\"device\": \"{device}\", \"pin_memory\": {}}}", dialect.yes())
                }
                value => python(value),
            };
            self.edits.push(zero.set(&site.file, name, &written));
            let (file, line) = (site.file.clone(), zero.line_of(name));
            self.lines.push(Line { file, line, has: format!("\"{name}\": {written}") });
            self.wants(Framework::DeepSpeed, (name.to_owned(), value));
        }
        self.framework = name_of(Framework::DeepSpeed);
        Some(is_new)
    }

    /// What a switch is to come to, if that was said.
    fn wanted(&self, framework: Framework, name: &str) -> Option<&Setting> {
        let mut all = self.wants.iter().filter(|it| it.0 == framework).flat_map(|it| &it.1);
        all.find(|it| it.0 == name).map(|it| &it.1)
    }

    fn cache(&mut self, it: &Switches, kind: &'static str, place: &Place<'_>) -> Option<bool> {
        if !it.is_on("use_cache") || *it.values.get("cache_implementation")? != Setting::Nothing {
            return Some(false);
        }
        self.set(Framework::Generate, it, place, ("cache_implementation", text(kind), None))
    }

    /// A model that transformers loads as it is, and that only adapters train.
    fn four_bits(&mut self, it: &Switches, place: &Place<'_>) -> Option<bool> {
        place.sites.of(Framework::Adapters)?;
        if it.is_on("load_in_4bit") || it.is_on("quantized_otherwise") {
            return Some(false);
        }
        let site = it.site.as_ref()?;
        let call = site.call.as_ref().filter(|it| it.plain)?;
        self.edits.push(added(site, call, place, IN_4_BITS)?);
        self.edits.push(Edit::before(site, "from transformers import BitsAndBytesConfig"));
        self.says(site, &it.name, IN_4_BITS);
        self.framework = name_of(Framework::Loading);
        self.wants(Framework::Loading, ("load_in_4bit".to_owned(), Setting::Flag(true)));
        Some(true)
    }

    /// A line behind the one that brings the pipeline to the device, else before the one that calls it.
    fn pipeline(&mut self, it: &Switches, method: &'static str) -> Option<bool> {
        if it.is_on(method) {
            return Some(false);
        }
        let site = it.site.as_ref()?;
        let has = format!("{}.{method}()", site.model.as_ref()?);
        let (before, after) = (Edit::before(site, &has), Edit::after(site, &has));
        self.edits.push(if site.kind == SiteKind::To { after } else { before });
        let (file, line) = (site.file.clone(), site.statement.first.0);
        self.lines.push(Line { file, line, has });
        self.framework = "diffusers";
        self.wants(Framework::Pipeline, (method.to_owned(), Setting::Flag(true)));
        Some(true)
    }

    fn wants(&mut self, framework: Framework, wanted: (String, Setting)) {
        match self.wants.iter_mut().find(|it| it.0 == framework) {
            Some((_, all)) => all.push(wanted),
            None => self.wants.push((framework, vec![wanted])),
        }
    }

    /// A line behind the one that makes the optimizer: the method that the model's own library has for it.
    fn checkpointing(&mut self, switch: Switch, place: &Place<'_>) -> Option<bool> {
        let site =
            place.sites.only(SiteKind::Optimizer).filter(|_| switch == Switch::Checkpointing)?;
        // It does already, or cannot.
        let Some((model, method)) = site.model.as_ref().zip(site.switch.as_ref()) else {
            return Some(false);
        };
        let has = format!("{model}.{method}()");
        self.edits.push(Edit::after(site, &has));
        let (file, line) = (site.file.clone(), site.statement.end.0 + 1);
        self.lines.push(Line { file, line, has });
        self.framework = "transformers";
        Some(true)
    }

    /// One switch more. A value that the script computes is divided there, if it is to be a part of what it was.
    fn set(
        &mut self,
        framework: Framework,
        it: &Switches,
        place: &Place<'_>,
        (name, value, divisor): (&str, Setting, Option<u64>),
    ) -> Option<bool> {
        self.framework = name_of(framework);
        self.wants(framework, (name.to_owned(), value.clone()));
        let Some(site) = &it.site else {
            it.from_words.then_some(())?;
            self.words.extend(as_words(name, &value));
            return Some(true);
        };
        self.write(it, site, place, (name, &python(&value), divisor))
    }

    /// The call gets this option, or another value of it.
    fn write(
        &mut self,
        it: &Switches,
        site: &Site,
        place: &Place<'_>,
        (name, value, divisor): (&str, &str, Option<u64>),
    ) -> Option<bool> {
        let call = site.call.as_ref()?;
        let said = said(call, &it.name, name);
        let text = said.and_then(|it| place.text(&site.file, it));
        let is_number = text.is_none_or(|it| it.chars().all(|it| it.is_ascii_digit() || it == '_'));
        let written = match (divisor, text) {
            (Some(n), Some(text)) if !is_number => format!("{} // {n}", as_operand(text)),
            _ => value.to_owned(),
        };
        self.edits.push(match said {
            Some(span) => Edit::instead(&site.file, span, &written),
            None => added(site, call, place, &format!("{name}={written}"))?,
        });
        self.says(site, &it.name, &format!("{name}={written}"));
        Some(true)
    }

    /// For people: what a line has then.
    fn says(&mut self, site: &Site, call: &str, option: &str) {
        let (file, line) = (site.file.clone(), site.call.as_ref().map_or(0, |it| it.span.first.0));
        let same = |it: &&mut Line| (&it.file, it.line) == (&file, line) && it.has.ends_with(')');
        if let Some(it) = self.lines.iter_mut().find(same) {
            it.has.truncate(it.has.len() - 1);
            it.has += &format!(", {option})");
            return;
        }
        self.lines.push(Line { file, line, has: format!("{call}({option})") });
    }
}

/// A part of a batch; none where the parts would differ.
fn divided(size: u64, n: u64) -> Option<u64> {
    size.is_multiple_of(n).then_some(size / n).filter(|it| 0 < *it)
}

/// Where the call says this option.
fn said(call: &Call, callee: &str, name: &str) -> Option<Span> {
    // `DataLoader(data, 32)`.
    let by_place = (callee == "DataLoader" && name == "batch_size").then(|| call.arguments.get(1));
    call.keywords.get(name).or(by_place.flatten()).copied()
}

/// The call with an option more, on a line of its own where its last one has that.
fn added(site: &Site, call: &Call, place: &Place<'_>, option: &str) -> Option<Edit> {
    Some(match call.end {
        Some(end) if call.span.first.0 < end.0 && end.0 < call.span.end.0 => {
            let indent = place.indent(&site.file, end.0)?;
            Edit::insert(&site.file, end, &format!(",\n{indent}{option}"))
        }
        Some(end) => Edit::insert(&site.file, end, &format!(", {option}")),
        None => {
            let (line, column) = call.span.end;
            Edit::insert(&site.file, (line, column.checked_sub(1)?), option)
        }
    })
}

/// As HfArgumentParser reads it.
fn as_words(name: &str, value: &Setting) -> Vec<String> {
    let value = match value {
        Setting::Text(it) => it.clone(),
        it => python(it),
    };
    vec![format!("--{name}"), value]
}

/// As Python has it.
fn python(value: &Setting) -> String {
    match value {
        Setting::Flag(true) => "True".to_owned(),
        Setting::Flag(false) => "False".to_owned(),
        Setting::Nothing => "None".to_owned(),
        Setting::Whole(n) => n.to_string(),
        Setting::Text(it) => format!("\"{it}\""),
        Setting::Other(it) => it.clone(),
    }
}

fn whole(n: u64) -> Option<Setting> {
    i64::try_from(n).ok().map(Setting::Whole)
}

fn text(it: &str) -> Setting {
    Setting::Text(it.to_owned())
}

/// Whose it is, for people.
fn name_of(framework: Framework) -> &'static str {
    match framework {
        Framework::Transformers
        | Framework::Generate
        | Framework::Loading
        | Framework::Collator => "transformers",
        Framework::Adapters => "peft",
        Framework::Lightning => "lightning",
        Framework::Accelerate => "accelerate",
        Framework::Loader => "loader",
        Framework::Pipeline => "diffusers",
        Framework::DeepSpeed => "deepspeed",
    }
}

/// What a division can stand behind.
fn as_operand(text: &str) -> String {
    let is_name = text.chars().all(|it| it.is_alphanumeric() || "_.".contains(it));
    if is_name { text.to_owned() } else { format!("({text})") }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use serde_json::{Value, json};

    use super::*;
    use crate::change::{Sources, sites_of};

    const LOOP: &str = "\
loader = DataLoader(data, args.batch + 2)
trainer = Trainer(
    max_epochs=2,
)
";

    fn site(what: &str, statement: [u32; 4], end: [u32; 2], batch: Option<[u32; 4]>) -> Value {
        let arguments = batch.map(|it| json!([[1, 20, 1, 24], it])).unwrap_or(json!([]));
        let call = json!({ "span": statement, "callee": statement, "owner": null, "arguments": arguments,
            "keywords": {}, "end": end, "plain": true });
        json!({ "what": what, "file": "/me/train.py", "statement": statement, "function": 0, "call": call })
    }

    fn places(precision: &str) -> Places {
        let loader = site("DataLoader", [1, 9, 1, 41], [1, 40], Some([1, 26, 1, 40]));
        let trainer = site("Trainer", [2, 10, 4, 1], [3, 16], None);
        let switches = json!([
            { "what": "loader", "name": "DataLoader", "values": { "batch_size": 32 }, "rest": "", "from_words": false, "site": loader },
            { "what": "lightning", "name": "Trainer", "values": { "accumulate_grad_batches": 3, "precision": precision },
              "rest": "", "from_words": false, "site": trainer },
        ]);
        let sites =
            sites_of(&json!({ "kind": "sites", "sites": [], "files": {}, "switches": switches }));
        let sources = Sources::from([("/me/train.py".to_owned(), LOOP.to_owned())]);
        Places { sites, sources }
    }

    fn check(wanted: &[Switch], expected: &Expect) {
        let places = places("32-true");
        let shown =
            Recipe::of(wanted, &places).map_or("none".to_owned(), |it| it.diff(&places, "/me"));
        expected.assert_eq(&shown);
    }

    #[test]
    fn a_trainer_gets_the_8_bit_form_of_the_adam_that_it_has() {
        let recipe_of = |switch: Switch, optim: &str| {
            let arguments = site("TrainingArguments", [2, 10, 4, 1], [3, 16], None);
            let switches = json!([
                { "what": "transformers", "name": "TrainingArguments", "values": { "optim": optim }, "rest": "", "from_words": false, "site": arguments },
            ]);
            let sites = sites_of(
                &json!({ "kind": "sites", "sites": [], "files": {}, "switches": switches }),
            );
            let sources = Sources::from([("/me/train.py".to_owned(), LOOP.to_owned())]);
            Recipe::of(&[switch], &Places { sites, sources })
        };
        let recipe = |optim: &str| recipe_of(Switch::AdamIn8Bits, optim);
        let found = recipe("adamw_torch_fused").unwrap();
        assert_eq!(found.lines[0].has, "TrainingArguments(optim=\"adamw_8bit\")");
        assert_eq!(found.numbers, Numbers::Precision);
        assert!(recipe("paged_adamw_8bit").is_none(), "it has that already");
        let paged = |optim: &str| recipe_of(Switch::PagedAdamIn8Bits, optim);
        assert_eq!(
            paged("adamw_8bit").unwrap().lines[0].has,
            "TrainingArguments(optim=\"paged_adamw_8bit\")"
        );
        assert!(paged("paged_adamw_8bit").is_none(), "it has that already");
        assert!(recipe("sgd").is_none(), "it has no such state");
    }

    const ADAPTERS: &str = "\
model = AutoModel.from_pretrained(
    path,
    device_map={\"\": 0},
)
config = LoraConfig(r=args.rank)
";

    /// A model that is loaded in the first line, with adapters of rank 64 if `rank` is one.
    fn adapters(is_in_4_bits: bool, rank: Option<u64>) -> Places {
        let mut load = site("from_pretrained", [1, 8, 4, 1], [3, 23], None);
        load["call"]["keywords"] = json!({ "device_map": [3, 15, 3, 22] });
        load["call"]["end"] = json!([3, 22]);
        let mut lora = site("LoraConfig", [5, 9, 5, 32], [5, 31], None);
        lora["call"]["keywords"] = json!({ "r": [5, 22, 5, 31] });
        let loading = json!({ "what": "loading", "name": "from_pretrained", "values": { "load_in_4bit": is_in_4_bits, "quantized_otherwise": false },
            "rest": "", "from_words": false, "site": load });
        let rank = rank.map(|it| {
            json!({ "what": "adapters", "name": "LoraConfig", "values": { "r": it }, "rest": "", "from_words": false, "site": lora })
        });
        let switches: Vec<Value> = std::iter::once(loading).chain(rank).collect();
        let sites =
            sites_of(&json!({ "kind": "sites", "sites": [], "files": {}, "switches": switches }));
        let sources = Sources::from([("/me/train.py".to_owned(), ADAPTERS.to_owned())]);
        Places { sites, sources }
    }

    #[test]
    fn what_adapters_stand_on_is_loaded_in_4_bits_and_their_rank_is_a_part() {
        let places = adapters(false, Some(64));
        let recipe = Recipe::of(&[Switch::FourBits, Switch::Rank(4)], &places).unwrap();
        expect![[r#"
            --- train.py
            +++ train.py
            @@ -1,5 +1,7 @@
            +from transformers import BitsAndBytesConfig
             model = AutoModel.from_pretrained(
                 path,
                 device_map={"": 0},
            +    quantization_config=BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype="bfloat16"),
             )
            -config = LoraConfig(r=args.rank)
            +config = LoraConfig(r=args.rank // 4)
        "#]].assert_eq(&recipe.diff(&places, "/me"));
        assert_eq!(recipe.numbers, Numbers::Training);
        assert!(recipe.was_in_force(&places.sites, &adapters(true, Some(16)).sites));
        assert!(!recipe.was_in_force(&places.sites, &adapters(true, Some(64)).sites));
        let four_bits = [Switch::FourBits];
        assert!(Recipe::of(&four_bits, &adapters(true, Some(64))).is_none(), "it is already");
        assert!(Recipe::of(&four_bits, &adapters(false, None)).is_none(), "all of it is trained");
        assert!(Recipe::of(&[Switch::Rank(4)], &adapters(false, Some(2))).is_none());
    }

    #[test]
    fn adapters_stay_where_attention_is() {
        let with = |targets: &str, attention: &str| {
            let mut places = adapters(false, Some(64));
            let lora =
                places.sites.switches.iter_mut().find(|it| it.framework == Framework::Adapters);
            let values = &mut lora.unwrap().values;
            values.insert("targets".to_owned(), text(targets));
            values.insert("attention".to_owned(), text(attention));
            places
        };
        let of = |places: &Places| Recipe::of(&[Switch::AttentionOnly], places);
        let places = with("down_proj, q_proj, v_proj", "q_proj, v_proj");
        let recipe = of(&places).unwrap();
        let line = "LoraConfig(target_modules=[\"q_proj\", \"v_proj\"])";
        assert_eq!(recipe.lines[0].has, line);
        assert_eq!((recipe.framework, recipe.numbers), ("peft", Numbers::Training));
        let after = with("q_proj, v_proj", "q_proj, v_proj");
        assert!(recipe.was_in_force(
            &with("down_proj, q_proj, v_proj", "q_proj, v_proj").sites,
            &after.sites
        ));
        assert!(of(&after).is_none(), "they are there already");
        assert!(of(&with("down_proj", "")).is_none());
    }

    #[test]
    fn a_number_that_is_computed_is_divided_where_it_stands() {
        check(
            &[Switch::Parts(4), Switch::HalfPrecision],
            &expect![[r#"
                --- train.py
                +++ train.py
                @@ -1,4 +1,6 @@
                -loader = DataLoader(data, args.batch + 2)
                +loader = DataLoader(data, (args.batch + 2) // 4)
                 trainer = Trainer(
                     max_epochs=2,
                +    accumulate_grad_batches=12,
                +    precision="bf16-mixed",
                 )
            "#]],
        );
    }

    #[test]
    fn parts_are_equal_and_what_a_framework_does_not_have_is_not_said() {
        let parts = |n| Recipe::of(&[Switch::Parts(n)], &places("32-true")).map(|it| it.switches);
        assert_eq!(parts(8), Some(vec![Switch::Parts(8)]));
        assert_eq!(parts(7), Some(vec![Switch::Parts(4)]));
        assert_eq!(parts(64), Some(vec![Switch::Parts(32)]), "a sample each");
        check(&[Switch::Checkpointing], &expect!["none"]);
        check(&[Switch::Adafactor], &expect!["none"]);
    }

    /// The arguments of a Trainer, beside a model that is loaded and its adapters.
    fn fine_tuning(batch: u64, checkpointing: bool, optim: &str) -> Places {
        let mut res = adapters(false, Some(64));
        let arguments = site("TrainingArguments", [5, 9, 5, 32], [5, 31], None);
        let values = json!({ "per_device_train_batch_size": batch, "gradient_accumulation_steps": 1,
            "gradient_checkpointing": checkpointing, "bf16": true, "fp16": false, "optim": optim });
        let switches = json!([{ "what": "transformers", "name": "TrainingArguments", "values": values, "rest": "", "from_words": false, "site": arguments }]);
        let more =
            sites_of(&json!({ "kind": "sites", "sites": [], "files": {}, "switches": switches }));
        res.sites.switches.extend(more.switches);
        res
    }

    #[test]
    fn what_a_script_has_already_takes_nothing_else_out_of_a_combination() {
        use Switch::{Checkpointing, FourBits, PagedAdamIn8Bits, Parts};
        let wanted = [FourBits, Parts(8), Checkpointing, PagedAdamIn8Bits];
        let of = |places: &Places| Recipe::of(&wanted, places).unwrap().switches;
        let none = fine_tuning(8, false, "adamw_torch");
        assert_eq!(of(&none), wanted);
        let checkpoints = fine_tuning(8, true, "adamw_torch");
        assert_eq!(of(&checkpoints), [FourBits, Parts(8), PagedAdamIn8Bits]);
        for batch in [2, 4] {
            let it = of(&fine_tuning(batch, false, "adamw_torch"));
            assert_eq!(it, [FourBits, Parts(batch), Checkpointing, PagedAdamIn8Bits]);
        }
        let one_sample = fine_tuning(1, true, "paged_adamw_8bit");
        assert_eq!(of(&one_sample), [FourBits]);
        let recipe = Recipe::of(&wanted, &one_sample).unwrap();
        assert_eq!(recipe.lines.len(), 1, "{:?}", recipe.lines);
        assert!(Recipe::of(&wanted[1..], &one_sample).is_none(), "nothing is left to do");
    }

    #[test]
    fn a_run_tells_whether_it_had_them() {
        let places = places("32-true");
        let recipe = Recipe::of(&[Switch::HalfPrecision], &places).unwrap();
        assert!(!recipe.was_in_force(&places.sites, &places.sites));
        assert!(recipe.was_in_force(&places.sites, &self::places("bf16-mixed").sites));
        assert!(!recipe.was_in_force(&places.sites, &self::places("16-mixed").sites));
    }

    #[test]
    fn lengths_are_padded_or_grouped_as_the_version_calls_it() {
        let of = |what: &str, values: Value, switch: Switch| {
            let site = site("Called", [2, 10, 4, 1], [3, 16], None);
            let switches = json!([{ "what": what, "name": "Called", "values": values, "rest": "", "from_words": false, "site": site }]);
            let sites = sites_of(
                &json!({ "kind": "sites", "sites": [], "files": {}, "switches": switches }),
            );
            let sources = Sources::from([("/me/train.py".to_owned(), LOOP.to_owned())]);
            let recipe = Recipe::of(&[switch], &Places { sites, sources })?;
            assert_eq!(recipe.framework, "transformers");
            Some(recipe.lines[0].has.clone())
        };
        let said = |it: &str| Some(format!("Called({it})"));
        let trainer = |values, switch| of("transformers", values, switch);
        let strategy = |it: &str| json!({ "train_sampling_strategy": it });
        let grouped = Switch::GroupedLengths;
        let now = "train_sampling_strategy=\"group_by_length\"";
        assert_eq!(trainer(strategy("random"), grouped), said(now));
        assert_eq!(trainer(strategy("sequential"), grouped), None, "an order that is meant");
        let before = trainer(json!({ "group_by_length": false }), grouped);
        assert_eq!(before, said("group_by_length=True"));
        assert_eq!(trainer(json!({ "group_by_length": true }), grouped), None);
        let padded = Switch::PaddedTo(64);
        let none = json!({ "pad_to_multiple_of": null });
        for what in ["collator", "transformers"] {
            assert_eq!(of(what, none.clone(), padded), said("pad_to_multiple_of=64"));
        }
        assert_eq!(of("collator", json!({ "pad_to_multiple_of": 8 }), padded), None);
        assert_eq!(trainer(json!({}), padded), None);
        let emptied = trainer(json!({ "torch_empty_cache_steps": null }), Switch::EmptyCache);
        assert_eq!(emptied, said("torch_empty_cache_steps=1"));
    }

    const ZERO: &str = "\
{
  \"train_batch_size\": \"auto\",
  \"zero_optimization\": {
    \"stage\": 2,
    \"reduce_bucket_size\": 5e8,
    \"offload_optimizer\": {\"device\": \"none\"}
  }
}
";

    /// A configuration of DeepSpeed, in a file or in the script.
    fn deepspeed(file: &str, text: &str, world: u64, changed: &[(&str, Value)]) -> Places {
        let begin = text.find('{').unwrap();
        let mut values = json!({ "stage": 2, "reduce_bucket_size": 500_000_000, "allgather_bucket_size": 1_000_000,
            "stage3_prefetch_bucket_size": 50_000_000, "stage3_max_live_parameters": 1_000_000_000,
            "sub_group_size": 1_000_000_000, "offload_optimizer": "none", "offload_param": "none", "world": world });
        for (name, value) in changed {
            values[*name] = value.clone();
        }
        let site = json!({ "what": "config", "file": file, "statement": [1, begin, 1, begin], "function": 0 });
        let switches = json!([{ "what": "deepspeed", "name": "ds.json", "values": values, "rest": "", "from_words": false, "site": site }]);
        let sites =
            sites_of(&json!({ "kind": "sites", "sites": [], "files": {}, "switches": switches }));
        Places { sites, sources: Sources::from([(file.to_owned(), text.to_owned())]) }
    }

    #[test]
    fn a_configuration_of_deepspeed_gets_other_values() {
        let places = deepspeed("/me/ds.json", ZERO, 1, &[]);
        let recipe = Recipe::of(&[Switch::ZeroBuckets, Switch::ZeroOptimizerOnHost], &places);
        let recipe = recipe.unwrap();
        expect![[r#"
            --- ds.json
            +++ ds.json
            @@ -2,7 +2,7 @@
               "train_batch_size": "auto",
               "zero_optimization": {
                 "stage": 2,
            -    "reduce_bucket_size": 5e8,
            -    "offload_optimizer": {"device": "none"}
            +    "reduce_bucket_size": 50000000,
            +    "offload_optimizer": {"device": "cpu", "pin_memory": true}
               }
             }
        "#]]
        .assert_eq(&recipe.diff(&places, "/me"));
        assert_eq!((recipe.framework, recipe.numbers), ("deepspeed", Numbers::Same));
        let small = ("reduce_bucket_size", json!(50_000_000));
        let both = [small.clone(), ("offload_optimizer", json!("cpu"))];
        assert!(
            recipe.was_in_force(&places.sites, &deepspeed("/me/ds.json", ZERO, 1, &both).sites)
        );
        assert!(
            !recipe.was_in_force(&places.sites, &deepspeed("/me/ds.json", ZERO, 1, &[small]).sites)
        );
    }

    #[test]
    fn weights_in_host_memory_are_stage_3_which_has_buckets_of_its_own() {
        let script = "config = {'zero_optimization': {'stage': 2, 'overlap_comm': False}}\n";
        let places = deepspeed("/me/train.py", script, 1, &[]);
        let wanted = [Switch::ZeroWeightsOnHost, Switch::ZeroBuckets];
        let lines: Vec<String> =
            Recipe::of(&wanted, &places).unwrap().lines.into_iter().map(|it| it.has).collect();
        expect![[r#"
            "stage": 3
            "offload_param": {"device": "cpu", "pin_memory": True}
            "reduce_bucket_size": 50000000
            "stage3_prefetch_bucket_size": 10000000
            "stage3_max_live_parameters": 100000000
            "sub_group_size": 100000000"#]]
        .assert_eq(&lines.join("\n"));
        // Among one process there is nothing to spread.
        assert!(Recipe::of(&[Switch::ZeroStage(3)], &places).is_none());
        let of_two = deepspeed("/me/train.py", script, 2, &[]);
        assert!(Recipe::of(&[Switch::ZeroStage(3)], &of_two).is_some());
        assert!(Recipe::of(&[Switch::ZeroStage(2)], &of_two).is_none(), "it is that already");
        let without = deepspeed("/me/train.py", "config = {'zero_optimization': zero()}\n", 2, &[]);
        assert!(Recipe::of(&[Switch::ZeroStage(3)], &without).is_none());
    }

    const PICTURES: &str = "\
pipe = Pipeline(unet, vae)
self.pipe = pipe.to(\"cuda\")
images = self.pipe(prompts).images
";

    /// A pipeline that `to` brings to the device in the second line, or that is called in the third one without that.
    fn pictures(what: &str, is_sliced: bool) -> Places {
        let line = if what == "to" { 2 } else { 3 };
        let mut site = site(what, [line, 0, line, 20], [line, 20], None);
        site["model"] = json!("self.pipe");
        let values = json!({ "vae.enable_slicing": is_sliced, "vae.enable_tiling": false,
            "enable_attention_slicing": false, "enable_model_cpu_offload": false });
        let switches = json!([{ "what": "pipeline", "name": "to", "values": values, "rest": "", "from_words": false, "site": site }]);
        let sites =
            sites_of(&json!({ "kind": "sites", "sites": [], "files": {}, "switches": switches }));
        let sources = Sources::from([("/me/train.py".to_owned(), PICTURES.to_owned())]);
        Places { sites, sources }
    }

    #[test]
    fn a_pipeline_is_told_behind_the_line_that_brings_it_to_the_device() {
        let places = pictures("to", false);
        let both = ["vae.enable_slicing", "enable_model_cpu_offload"].map(Switch::Pipeline);
        let recipe = Recipe::of(&both, &places).unwrap();
        expect![[r#"
            --- train.py
            +++ train.py
            @@ -1,3 +1,5 @@
             pipe = Pipeline(unet, vae)
             self.pipe = pipe.to("cuda")
            +self.pipe.vae.enable_slicing()
            +self.pipe.enable_model_cpu_offload()
             images = self.pipe(prompts).images
        "#]]
        .assert_eq(&recipe.diff(&places, "/me"));
        assert_eq!((recipe.framework, recipe.numbers), ("diffusers", Numbers::Same));
        assert!(!recipe.was_in_force(&places.sites, &pictures("to", true).sites), "one of two");
    }

    #[test]
    fn a_pipeline_that_nobody_moves_is_told_before_the_line_that_calls_it() {
        let places = pictures("pipeline", false);
        let recipe = Recipe::of(&[Switch::Pipeline("vae.enable_tiling")], &places).unwrap();
        expect![[r#"
            --- train.py
            +++ train.py
            @@ -1,3 +1,4 @@
             pipe = Pipeline(unet, vae)
             self.pipe = pipe.to("cuda")
            +self.pipe.vae.enable_tiling()
             images = self.pipe(prompts).images
        "#]]
        .assert_eq(&recipe.diff(&places, "/me"));
        assert_eq!(recipe.numbers, Numbers::Precision, "its seams are blended");
    }

    #[test]
    fn what_a_pipeline_has_already_is_not_said() {
        let slices = [Switch::Pipeline("vae.enable_slicing")];
        assert!(Recipe::of(&slices, &pictures("to", true)).is_none());
        let recipe = Recipe::of(&slices, &pictures("to", false)).unwrap();
        assert!(recipe.was_in_force(&pictures("to", false).sites, &pictures("to", true).sites));
    }
}
