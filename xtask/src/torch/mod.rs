//! Looks at a release of PyTorch: what its libraries want that has no answer yet, which layouts and names changed. Nothing of
//! it is run, but cuDNN is asked to describe a device.

mod cudnn;
mod headers;
mod libraries;
mod place;
mod release;
mod table;
mod wheels;

use std::{collections::BTreeSet, fs, path::PathBuf, time::Instant};

use anyhow::{Context as _, bail};

use place::root;
use release::Release;
use wheels::Wheels;

pub(crate) fn run(words: &[&str]) -> anyhow::Result<()> {
    let (mut version, mut python, mut scratch) = (None, "python3", None);
    let mut words = words.iter();
    while let Some(&word) = words.next() {
        match word {
            "--python" => python = words.next().context("--python wants a Python")?,
            "--scratch" => scratch = Some(words.next().context("--scratch wants a folder")?),
            it if it.starts_with('-') => bail!("there is no option {it}; see `cargo xtask`"),
            it => version = Some(it),
        }
    }
    if let Some(version) = version {
        let own;
        let folder = match scratch {
            Some(folder) => {
                fs::create_dir_all(folder).with_context(|| format!("cannot make {folder}"))?;
                PathBuf::from(folder)
            }
            None => {
                own = tempfile::tempdir().context("cannot make a scratch folder")?;
                own.path().to_owned()
            }
        };
        look_at(version, &Wheels { folder, python: python.to_owned() })?;
    }
    table::write()
}

/// What one look found, for people.
#[derive(Default)]
struct Findings {
    /// What has to be done before that release runs well.
    to_do: Vec<String>,
}

impl Findings {
    fn add(&mut self, what: &str, names: impl IntoIterator<Item = String>) {
        let names: Vec<String> = names.into_iter().collect();
        if !names.is_empty() {
            self.to_do.push(format!("{what}\n      {}", names.join("\n      ")));
        }
    }
}

fn look_at(version: &str, wheels: &Wheels) -> anyhow::Result<()> {
    let start = Instant::now();
    let say = |text: &str| println!("{:4.0} s  {text}", start.elapsed().as_secs_f64());
    let mut found = Findings::default();

    let exact =
        if version.matches('.').count() < 2 { format!("{version}.*") } else { version.to_owned() };
    let torch = wheels.fetch("torch", &exact)?;
    say(&format!("downloaded {}", torch.name()));
    let its = Release::of(&torch)?;
    say(&format!(
        "torch {} for CUDA {}, cuDNN {}, NCCL {}",
        its.wheel, its.cuda, its.cudnn, its.nccl
    ));
    let before = release::before(&its.release)?;

    let answers = libraries::Answers::read()?;
    let mut wanted = BTreeSet::new();
    let mut defined = BTreeSet::new();
    let mut kernels = BTreeSet::new();
    for name in
        torch.names().into_iter().filter(|it| it.starts_with("torch/lib/") && it.ends_with(".so"))
    {
        let bytes = torch.read(&name)?;
        libraries::symbols(&bytes, &mut wanted, &mut defined).with_context(|| name.clone())?;
        if name.ends_with("/libc10_cuda.so") {
            wanted.extend(libraries::looked_up(&bytes, libraries::BY_TORCH));
        }
        if name.ends_with("/libtorch_cuda.so") {
            kernels = libraries::kernels(&bytes)?;
        }
    }
    let wanted: BTreeSet<&String> = wanted.difference(&defined).collect();
    say(&format!(
        "it asks CUDA for {} functions, and registers {} kernels",
        wanted.len(),
        kernels.len()
    ));
    let missing = wanted.iter().filter(|it| !answers.has(it)).map(|it| (*it).clone());
    found.add(
        "functions without an answer: give each one in crates/phantom/entry_points.txt (what it does is in CUDA's documentation)",
        missing,
    );
    let (fragments, examples) = libraries::names_that_are_gone(&kernels)?;
    found.add(
        "fragments of crates/values/src/names.rs that no kernel's name has: find the kernel's new name, or nothing follows it",
        fragments.iter().cloned(),
    );
    let gone = examples.len();
    if gone != 0 {
        say(&format!(
            "{gone} of the names of crates/values/tests/kernels-2.11.txt are not among them"
        ));
    }

    let runtime = wheels.fetch(&its.runtime_wheel(), &its.runtime)?;
    let now = headers::Headers::of(&runtime)?;
    let changes = match &before {
        Some(it) if it.runtime == its.runtime => {
            say(&format!("the same CUDA runtime as {}", it.release));
            Vec::new()
        }
        Some(it) => {
            let then = headers::Headers::of(&wheels.fetch(&it.runtime_wheel(), &it.runtime)?)?;
            say(&format!(
                "headers compared with those of {} (runtime {} and {})",
                it.release, it.runtime, its.runtime
            ));
            headers::changes(&then, &now, &answers)
        }
        None => Vec::new(),
    };
    found.add("declarations that changed since the release before; look at who fills them in (crates/phantom/src/border/runtime)", changes);

    let dnn = wheels.fetch(&its.cudnn_wheel(), &its.cudnn)?;
    say(&format!("downloaded {}", dnn.name()));
    let mut asked = BTreeSet::new();
    for name in ["libcudnn_graph.so.9", "libcudnn_engines_runtime_compiled.so.9"] {
        let bytes = dnn.read(&format!("nvidia/cudnn/lib/{name}"))?;
        asked.extend(libraries::looked_up(&bytes, libraries::OF_THE_DRIVER));
    }
    found.add(
        "functions of the driver that cuDNN looks up and that are not in the table: NVRTC's linker would crash",
        asked.into_iter().filter(|it| !answers.has(it)),
    );
    let layout = cudnn::layout(wheels, &dnn)?;
    match &layout {
        Some(it) if cudnn::is_known(it)? => {
            say(&format!("cuDNN lays a device out as is known: {it}"))
        }
        Some(it) => found.add(
            "cuDNN lays a device out in a new way: `LAYOUTS` in crates/phantom/src/border/dnn.rs",
            [it.clone()],
        ),
        None => say("this cuDNN describes no device without a GPU (before 9.10)"),
    }

    let path = its.write(fragments, gone, layout)?;
    say(&format!("wrote {}", path.strip_prefix(root()).unwrap_or(&path).display()));
    println!();
    for it in &found.to_do {
        println!("to do: {it}");
    }
    if found.to_do.is_empty() {
        println!("nothing has changed that the phantom would have to know");
    }
    println!("then: try it, and write down with which Python (CONTRIBUTING.md, \"A new PyTorch\")");
    Ok(())
}
