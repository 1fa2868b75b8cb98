//! What a person would write in the switches that their own framework has: arguments of a Trainer, of accelerate, of `generate`.
//! A recipe says which lines change and how, and can tell whether a run had them.

use plimsoll_core::plan::{Numbers, remedies};
use plimsoll_core::{
    plan::Plan,
    recording::{Call, Framework, Setting, Site, SiteKind, Sites, Span, Switches},
};

use super::{
    edit::Edit,
    sites::{Place, Places},
};

/// The names that transformers has for an AdamW with a state in 32 bits.
const ADAMS: [&str; 3] = ["adamw_torch", "adamw_torch_fused", "adamw_hf"];
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
    /// The key-value cache of `generate` is of this kind.
    Cache(&'static str),
    /// A pipeline of diffusers has this switched on.
    Pipeline(&'static str),
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
    edits: Vec<Edit>,
    wants: Vec<(Framework, Vec<(String, Setting)>)>,
}

impl Switch {
    /// The remedy that does the same.
    pub fn remedy(self) -> &'static str {
        match self {
            Switch::Parts(_) => remedies::MICRO_BATCHES,
            Switch::Checkpointing => remedies::CHECKPOINT,
            Switch::HalfPrecision => remedies::AUTOCAST,
            Switch::Adafactor => remedies::ADAFACTOR,
            Switch::AdamIn8Bits | Switch::PagedAdamIn8Bits => remedies::OPTIMIZER_8BIT,
            Switch::FourBits => remedies::QUANTIZATION,
            Switch::Rank(_) => remedies::LORA,
            Switch::Cache(_) | Switch::Pipeline("enable_model_cpu_offload") => {
                remedies::PARAMETER_OFFLOAD
            }
            Switch::Pipeline(_) => remedies::MICRO_BATCHES,
        }
    }

    /// What it does to the numbers.
    pub fn numbers(self) -> Numbers {
        match self {
            // It is less precise, and the same training.
            Switch::FourBits => return Numbers::Precision,
            // Its seams are blended.
            Switch::Pipeline("vae.enable_tiling") => return Numbers::Precision,
            Switch::Pipeline(_) | Switch::Cache(_) => return Numbers::Same,
            _ => (),
        }
        remedies::find(self.remedy()).map_or(Numbers::Same, |it| it.numbers)
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
    /// Every switch that is asked for, in the framework that the program has; none if that has not all of them, or the
    /// places are not certain.
    pub fn of(wanted: &[Switch], places: &Places) -> Option<Recipe> {
        let sites = &places.sites;
        let place = Place { sites, sources: &places.sources };
        let mut res = Recipe::default();
        for switch in wanted {
            res.numbers = res.numbers.max(switch.numbers());
            if let Switch::Cache(kind) = switch {
                res.cache(sites.of(Framework::Generate)?, kind, &place)?;
            } else if let Switch::Pipeline(method) = switch {
                res.pipeline(sites.of(Framework::Pipeline)?, method)?;
            } else if *switch == Switch::FourBits {
                res.four_bits(sites.of(Framework::Loading)?, &place)?;
            } else if let Switch::Rank(n) = switch {
                let it = sites.of(Framework::Adapters)?;
                let rank = whole(divided(it.number("r")?, *n)?)?;
                res.set(Framework::Adapters, it, &place, ("r", rank, Some(*n)))?;
            } else if let Some(it) = sites.of(Framework::Transformers) {
                res.trainer(*switch, it, &place)?;
            } else if let Some(it) = sites.of(Framework::Lightning) {
                res.lightning(*switch, it, &place)?;
            } else if let Some(it) = sites.of(Framework::Accelerate) {
                res.accelerate(*switch, it, &place)?;
            } else {
                res.checkpointing(*switch, &place)?;
            }
        }
        Some(res).filter(|it| !it.lines.is_empty() || !it.words.is_empty())
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

    fn trainer(&mut self, switch: Switch, it: &Switches, place: &Place<'_>) -> Option<()> {
        let (batch, parts) = ("per_device_train_batch_size", "gradient_accumulation_steps");
        match switch {
            Switch::Parts(n) => {
                let (size, before) = (it.number(batch)?, it.number(parts)?);
                let size = divided(size, n)?;
                self.set(Framework::Transformers, it, place, (batch, whole(size)?, Some(n)))?;
                self.set(Framework::Transformers, it, place, (parts, whole(before * n)?, None))
            }
            Switch::Checkpointing if !it.is_on("gradient_checkpointing") => self.set(
                Framework::Transformers,
                it,
                place,
                ("gradient_checkpointing", Setting::Flag(true), None),
            ),
            Switch::HalfPrecision if !it.is_on("bf16") && !it.is_on("fp16") => {
                self.set(Framework::Transformers, it, place, ("bf16", Setting::Flag(true), None))
            }
            Switch::Adafactor => {
                self.set(Framework::Transformers, it, place, ("optim", text("adafactor"), None))
            }
            Switch::AdamIn8Bits | Switch::PagedAdamIn8Bits => {
                let Setting::Text(before) = it.values.get("optim")? else { return None };
                let (name, others): (_, &[&str]) = match switch {
                    Switch::AdamIn8Bits => ("adamw_8bit", &[]),
                    _ => ("paged_adamw_8bit", &["adamw_8bit", "adamw_bnb_8bit"]),
                };
                let may_become =
                    ADAMS.contains(&before.as_str()) || others.contains(&before.as_str());
                may_become.then_some(())?;
                self.set(Framework::Transformers, it, place, ("optim", text(name), None))
            }
            _ => None,
        }
    }

    fn lightning(&mut self, switch: Switch, it: &Switches, place: &Place<'_>) -> Option<()> {
        let name = "accumulate_grad_batches";
        match switch {
            Switch::Parts(n) => {
                let value = it.number(name)? * n;
                self.smaller_batches(n, place)?;
                self.set(Framework::Lightning, it, place, (name, whole(value)?, None))
            }
            Switch::HalfPrecision if it.values.get("precision")? == &text("32-true") => {
                self.set(Framework::Lightning, it, place, ("precision", text("bf16-mixed"), None))
            }
            it => self.checkpointing(it, place),
        }
        .inspect(|()| self.framework = "lightning")
    }

    fn accelerate(&mut self, switch: Switch, it: &Switches, place: &Place<'_>) -> Option<()> {
        let name = "gradient_accumulation_steps";
        match switch {
            // Without `accumulate` each part would be a step of its own.
            Switch::Parts(n) if it.is_on("accumulates") => {
                let value = it.number(name)? * n;
                self.smaller_batches(n, place)?;
                self.set(Framework::Accelerate, it, place, (name, whole(value)?, None))
            }
            Switch::HalfPrecision if it.values.get("mixed_precision")? == &text("no") => {
                self.set(Framework::Accelerate, it, place, ("mixed_precision", text("bf16"), None))
            }
            Switch::Checkpointing => self.checkpointing(switch, place),
            _ => None,
        }
        .inspect(|()| self.framework = "accelerate")
    }

    fn cache(&mut self, it: &Switches, kind: &'static str, place: &Place<'_>) -> Option<()> {
        let is_free =
            it.is_on("use_cache") && *it.values.get("cache_implementation")? == Setting::Nothing;
        is_free.then_some(())?;
        self.set(Framework::Generate, it, place, ("cache_implementation", text(kind), None))?;
        self.framework = "transformers";
        Some(())
    }

    /// A model that transformers loads as it is, and that only adapters train.
    fn four_bits(&mut self, it: &Switches, place: &Place<'_>) -> Option<()> {
        place.sites.of(Framework::Adapters)?;
        let is_off = |name: &str| it.values.get(name) == Some(&Setting::Flag(false));
        let is_free = is_off("load_in_4bit") && is_off("quantized_otherwise");
        let site = it.site.as_ref().filter(|_| is_free)?;
        let call = site.call.as_ref().filter(|it| it.plain)?;
        self.edits.push(added(site, call, place, IN_4_BITS)?);
        self.edits.push(Edit::before(site, "from transformers import BitsAndBytesConfig"));
        self.says(site, &it.name, IN_4_BITS);
        self.framework = name_of(Framework::Loading);
        self.wants(Framework::Loading, ("load_in_4bit".to_owned(), Setting::Flag(true)));
        Some(())
    }

    /// A line behind the one that brings the pipeline to the device, else before the one that calls it.
    fn pipeline(&mut self, it: &Switches, method: &'static str) -> Option<()> {
        let site =
            it.site.as_ref().filter(|_| it.values.get(method) == Some(&Setting::Flag(false)))?;
        let has = format!("{}.{method}()", site.model.as_ref()?);
        let (before, after) = (Edit::before(site, &has), Edit::after(site, &has));
        self.edits.push(if site.kind == SiteKind::To { after } else { before });
        let (file, line) = (site.file.clone(), site.statement.first.0);
        self.lines.push(Line { file, line, has });
        self.framework = "diffusers";
        self.wants(Framework::Pipeline, (method.to_owned(), Setting::Flag(true)));
        Some(())
    }

    fn wants(&mut self, framework: Framework, wanted: (String, Setting)) {
        match self.wants.iter_mut().find(|it| it.0 == framework) {
            Some((_, all)) => all.push(wanted),
            None => self.wants.push((framework, vec![wanted])),
        }
    }

    /// A line behind the one that makes the optimizer: the method that the model's own library has for it.
    fn checkpointing(&mut self, switch: Switch, place: &Place<'_>) -> Option<()> {
        let site =
            place.sites.only(SiteKind::Optimizer).filter(|_| switch == Switch::Checkpointing)?;
        let (model, method) = (site.model.as_ref()?, site.switch.as_ref()?);
        let has = format!("{model}.{method}()");
        self.edits.push(Edit::after(site, &has));
        let (file, line) = (site.file.clone(), site.statement.end.0 + 1);
        self.lines.push(Line { file, line, has });
        self.framework = "transformers";
        Some(())
    }

    /// The loader that training takes its batches from gives smaller ones.
    fn smaller_batches(&mut self, n: u64, place: &Place<'_>) -> Option<()> {
        let it = place.sites.of(Framework::Loader)?;
        let size = divided(it.number("batch_size")?, n)?;
        self.set(Framework::Loader, it, place, ("batch_size", whole(size)?, Some(n)))
    }

    /// One switch more. A value that the script computes is divided there, if it is to be a part of what it was.
    fn set(
        &mut self,
        framework: Framework,
        it: &Switches,
        place: &Place<'_>,
        (name, value, divisor): (&str, Setting, Option<u64>),
    ) -> Option<()> {
        self.framework = name_of(framework);
        self.wants(framework, (name.to_owned(), value.clone()));
        let Some(site) = &it.site else {
            it.from_words.then_some(())?;
            self.words.extend(as_words(name, &value));
            return Some(());
        };
        let call = site.call.as_ref()?;
        let said = said(call, &it.name, name);
        let text = said.and_then(|it| place.text(&site.file, it));
        let is_number = text.is_none_or(|it| it.chars().all(|it| it.is_ascii_digit() || it == '_'));
        let written = match (divisor, text) {
            (Some(n), Some(text)) if !is_number => format!("{} // {n}", as_operand(text)),
            _ => python(&value),
        };
        self.edits.push(match said {
            Some(span) => Edit::instead(&site.file, span, &written),
            None => added(site, call, place, &format!("{name}={written}"))?,
        });
        self.says(site, &it.name, &format!("{name}={written}"));
        Some(())
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
        Framework::Transformers | Framework::Generate | Framework::Loading => "transformers",
        Framework::Adapters => "peft",
        Framework::Lightning => "lightning",
        Framework::Accelerate => "accelerate",
        Framework::Loader => "loader",
        Framework::Pipeline => "diffusers",
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
        check(&[Switch::Parts(3)], &expect!["none"]);
        check(&[Switch::Checkpointing], &expect!["none"]);
        check(&[Switch::Adafactor], &expect!["none"]);
    }

    #[test]
    fn a_run_tells_whether_it_had_them() {
        let places = places("32-true");
        let recipe = Recipe::of(&[Switch::HalfPrecision], &places).unwrap();
        assert!(!recipe.was_in_force(&places.sites, &places.sites));
        assert!(recipe.was_in_force(&places.sites, &self::places("bf16-mixed").sites));
        assert!(!recipe.was_in_force(&places.sites, &self::places("16-mixed").sites));
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
