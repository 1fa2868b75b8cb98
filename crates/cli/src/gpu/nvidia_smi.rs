//! `nvidia-smi`, for scripts that run it: on the phantom this very binary stands in its place, by that name, and asks
//! the same library as NVIDIA's does, which is the phantom. A machine without a GPU has none, and the script would
//! stop there; where there is one, it would tell of another card.

use std::{
    env,
    ffi::{OsStr, OsString},
    fmt::Write as _,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::ExitCode,
};

use nvml_wrapper::{Device, Nvml};

use crate::{
    contract,
    output::{Color, Output},
};

/// What it is called by.
const NAME: &str = "nvidia-smi";
const MIB: u64 = 1 << 20;

/// Makes it a program in a folder of the session, and returns that folder; none if this cannot be, and then scripts find
/// the machine's own, or none.
pub(crate) fn put_into(session: &Path) -> Option<PathBuf> {
    let folder = session.join(contract::PROGRAMS);
    fs::create_dir_all(&folder).ok()?;
    let link = folder.join(NAME);
    let is_there = symlink(env::current_exe().ok()?, &link).is_ok() || link.exists();
    is_there.then_some(folder)
}

/// Answers and says how it ended, if that is what this process was started as.
pub(crate) fn answer() -> Option<ExitCode> {
    let mut arguments = env::args_os();
    let program = arguments.next()?;
    if Path::new(&program).file_name() != Some(OsStr::new(NAME)) {
        return None;
    }
    let arguments: Vec<String> =
        arguments.map(OsString::into_string).filter_map(Result::ok).collect();
    let (text, code) =
        match Nvml::init().map_err(|it| it.to_string()).and_then(|it| text(&it, &arguments)) {
            Ok(text) => (text, ExitCode::SUCCESS),
            Err(error) => (format!("{error}\n"), ExitCode::from(9)),
        };
    // Who does not read it is the script's own affair.
    let _ = Output::open(Color::Never).text(&text);
    Some(code)
}

/// What is asked for, in words that NVIDIA's program takes.
#[derive(Debug, Default, PartialEq, Eq)]
struct Question {
    /// The fields of `--query-gpu`.
    fields: Option<Vec<String>>,
    /// Processes, of which a phantom tells none.
    processes: Option<Vec<String>>,
    header: bool,
    units: bool,
    list: bool,
    device: Option<String>,
}

impl Question {
    fn of(arguments: &[String]) -> Question {
        let mut res = Question { header: true, units: true, ..Question::default() };
        let names = |it: &str| it.split(',').map(|it| it.trim().to_owned()).collect();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let (option, value) = match word.split_once('=') {
                Some((option, value)) => (option, value.to_owned()),
                None if matches!(word.as_str(), "-i" | "--id" | "--query-gpu" | "--format") => {
                    (word.as_str(), words.next().cloned().unwrap_or_default())
                }
                None => (word.as_str(), String::new()),
            };
            match option {
                "--query-gpu" => res.fields = Some(names(&value)),
                "--query-compute-apps" => res.processes = Some(names(&value)),
                "--format" => {
                    res.header = !value.contains("noheader");
                    res.units = !value.contains("nounits");
                }
                "-L" | "--list-gpus" => res.list = true,
                "-i" | "--id" => res.device = Some(value),
                _ => {}
            }
        }
        res
    }
}

impl Question {
    /// Whether the answer has the memory of devices.
    fn is_of_memory(&self) -> bool {
        match &self.fields {
            Some(fields) => fields.iter().any(|it| it.starts_with("memory")),
            None => !self.list,
        }
    }
}

fn text(nvml: &Nvml, arguments: &[String]) -> Result<String, String> {
    let question = Question::of(arguments);
    let count = nvml.device_count().map_err(|it| it.to_string())?;
    let mut res = String::new();
    if let Some(fields) =
        question.fields.as_ref().or(question.processes.as_ref()).filter(|_| question.header)
    {
        let header: Vec<String> = fields.iter().map(|it| it.clone() + unit_of(it).1).collect();
        res += &(header.join(", ") + "\n");
    }
    if question.processes.is_some() && question.fields.is_none() {
        return Ok(res);
    }
    let driver = nvml.sys_driver_version().unwrap_or_default();
    if question.fields.is_none() && !question.list {
        let _ = writeln!(
            res,
            "NVIDIA-SMI {driver:<18} Driver Version: {driver:<18} (a phantom of plimsoll)"
        );
    }
    for index in 0..count {
        let device = nvml.device_by_index(index).map_err(|it| it.to_string())?;
        let facts = Facts::of(&device, index, count, &driver, question.is_of_memory());
        let wanted = question.device.as_deref();
        if wanted.is_some_and(|it| !it.split(',').any(|it| it == facts.index || it == facts.uuid)) {
            continue;
        }
        if let Some(fields) = &question.fields {
            let values: Vec<String> =
                fields.iter().map(|it| facts.value(it, question.units)).collect();
            res += &(values.join(", ") + "\n");
        } else if question.list {
            let _ = writeln!(res, "GPU {index}: {} (UUID: {})", facts.name, facts.uuid);
        } else {
            let _ = writeln!(
                res,
                "| {index:>3}  {:<30} | {:>7}MiB / {:>7}MiB | {:>3}% |",
                facts.name, facts.used, facts.total, 0
            );
        }
    }
    Ok(res)
}

/// The unit of a field, behind its values and in the header.
fn unit_of(field: &str) -> (&'static str, &'static str) {
    match field.split('.').next() {
        Some("memory") => (" MiB", " [MiB]"),
        Some("utilization") => (" %", " [%]"),
        _ => ("", ""),
    }
}

/// Of one device.
struct Facts {
    index: String,
    count: u32,
    name: String,
    uuid: String,
    driver: String,
    capability: String,
    /// In MiB.
    total: u64,
    used: u64,
}

impl Facts {
    /// Memory only where it is asked for: the phantom remarks that.
    fn of(device: &Device<'_>, index: u32, count: u32, driver: &str, with_memory: bool) -> Facts {
        let memory = if with_memory { device.memory_info().ok() } else { None };
        let (total, used) = memory.map_or((0, 0), |it| (it.total / MIB, it.used.div_ceil(MIB)));
        let capability = device.cuda_compute_capability();
        Facts {
            index: index.to_string(),
            count,
            name: device.name().unwrap_or_default(),
            uuid: device.uuid().unwrap_or_default(),
            driver: driver.to_owned(),
            capability: capability
                .map_or_else(|_| String::new(), |it| format!("{}.{}", it.major, it.minor)),
            total,
            used,
        }
    }

    fn value(&self, field: &str, units: bool) -> String {
        let value = match field {
            "index" => self.index.clone(),
            "count" => self.count.to_string(),
            "name" | "gpu_name" => self.name.clone(),
            "uuid" | "gpu_uuid" => self.uuid.clone(),
            "driver_version" => self.driver.clone(),
            "compute_cap" => self.capability.clone(),
            "memory.total" => self.total.to_string(),
            "memory.used" => self.used.to_string(),
            "memory.free" => self.total.saturating_sub(self.used).to_string(),
            "utilization.gpu" | "utilization.memory" => "0".to_owned(),
            _ => return "[N/A]".to_owned(),
        };
        if units { value + unit_of(field).0 } else { value }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_in_both_forms() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let asked =
            Question::of(&words("--query-gpu=memory.used,name --format=csv,noheader,nounits -i 1"));
        assert_eq!(asked.fields, Some(words("memory.used name")));
        assert_eq!((asked.header, asked.units, asked.device.as_deref()), (false, false, Some("1")));
        let asked = Question::of(&words("--query-gpu index --format csv"));
        assert_eq!((asked.fields, asked.header, asked.units), (Some(words("index")), true, true));
        assert!(Question::of(&words("-L")).list);
    }

    #[test]
    fn fields_have_their_units() {
        let facts = Facts {
            index: "0".to_owned(),
            count: 1,
            name: "NVIDIA L4".to_owned(),
            uuid: "GPU-1".to_owned(),
            driver: "580.1".to_owned(),
            capability: "8.9".to_owned(),
            total: 23034,
            used: 500,
        };
        let values = ["memory.free", "name", "fan.speed"].map(|it| facts.value(it, true));
        assert_eq!(values, ["22534 MiB", "NVIDIA L4", "[N/A]"]);
        assert_eq!(facts.value("memory.total", false), "23034");
    }
}
