//! The GPU of this machine, found without CUDA: what NVIDIA's driver says of it, which is the card that somebody most likely means.

use std::{fs, path::Path};

use plimsoll_core::{
    cards::{self, Card},
    units::Bytes,
};

use crate::{
    files::bounded_file,
    gpu::devices::{self, Gpu},
};

/// Where the driver lists its devices, a folder each, by their places on the bus.
const DRIVERS_LIST: &str = "/proc/driver/nvidia/gpus";
/// Where there is a GPU under Windows, whose driver has no such list.
const UNDER_WINDOWS: &str = "/dev/dxg";

/// What this machine has.
#[derive(Clone, Debug)]
pub(crate) enum Here {
    /// No GPU of NVIDIA's.
    Nothing,
    /// One that the catalogue does not have; its name.
    Unknown(String),
    /// This card, and how it was chosen, as a sentence.
    Card(&'static Card, String),
}

/// Looks.
pub(crate) fn look() -> Here {
    let gpus = if Path::new(DRIVERS_LIST).is_dir() || Path::new(UNDER_WINDOWS).exists() {
        // A container may see fewer than the driver lists.
        devices::all().unwrap_or_else(|_| listed(Path::new(DRIVERS_LIST)))
    } else {
        Vec::new()
    };
    of(&gpus, std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref())
}

/// Which of these GPUs is meant, and which card of the catalogue it is.
fn of(gpus: &[Gpu], visible: Option<&str>) -> Here {
    let named = visible.and_then(|it| it.split(',').next()).map(str::trim);
    let by_variable = named.and_then(|name| match name.parse::<usize>() {
        Ok(number) => gpus.get(number),
        Err(_) if name.starts_with("GPU-") => gpus.iter().find(|gpu| gpu.uuid.starts_with(name)),
        Err(_) => None,
    });
    let Some(gpu) = by_variable.or(gpus.first()) else { return Here::Nothing };
    let Some(card) = card(gpu) else { return Here::Unknown(gpu.name.clone()) };
    let which = if gpus.iter().all(|it| it.name == gpu.name) {
        "this machine's GPU is this card"
    } else if by_variable.is_some() {
        "CUDA_VISIBLE_DEVICES names this one of the machine's GPUs"
    } else {
        "the first of this machine's GPUs is this card"
    };
    Here::Card(card, format!("no --gpu was given, and {which} ({})", gpu.name))
}

/// The card of the catalogue that this is: of its name, and of its memory if there are several of that name.
fn card(gpu: &Gpu) -> Option<&'static Card> {
    /// NVML counts what the driver keeps for itself, a few hundred MiB: 9 of 100 on the smallest.
    const LIKE: f64 = 0.1;
    let is_like = |card: &&Card| {
        gpu.total.is_none_or(|total| {
            let (a, b) = (total.0.max(card.total.0), total.0.min(card.total.0));
            Bytes(a - b).share_of(Bytes(a)) < LIKE
        })
    };
    cards::catalogue().iter().filter(|it| it.name == gpu.name).find(is_like)
}

/// The GPUs of the driver's list, by their places on the bus, as `nvidia-smi` counts them.
fn listed(list: &Path) -> Vec<Gpu> {
    let Ok(entries) = fs::read_dir(list) else { return Vec::new() };
    let mut folders: Vec<_> = entries.flatten().map(|it| it.path()).collect();
    folders.sort();
    let texts = folders.iter().filter_map(|folder| {
        bounded_file::text(&folder.join("information"), bounded_file::WRITTEN_BY_HAND).ok()
    });
    texts.filter_map(|it| gpu(&it)).collect()
}

/// One entry of that list: `Model: \t\t NVIDIA H200` and other lines.
fn gpu(text: &str) -> Option<Gpu> {
    let value = |key: &str| {
        let line = text.lines().find_map(|it| it.strip_prefix(key))?;
        Some(line.trim_start_matches(':').trim().to_owned())
    };
    let uuid = value("GPU UUID").unwrap_or_default();
    Some(Gpu { name: value("Model")?, uuid, total: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, uuid: &str) -> Gpu {
        Gpu { name: name.to_owned(), uuid: uuid.to_owned(), total: None }
    }

    fn told(gpus: &[Gpu], visible: Option<&str>) -> (String, String) {
        match of(gpus, visible) {
            Here::Card(card, how) => (card.id.clone(), how),
            other => (format!("{other:?}"), String::new()),
        }
    }

    #[test]
    fn the_drivers_list_is_read_in_the_order_of_the_bus() {
        let folder = tempfile::tempdir().unwrap();
        // As driver 580 wrote it for an H200.
        let text = |model: &str, bus: &str| {
            format!(
                "Model: \t\t {model}\nIRQ:   \t\t 41\nGPU UUID: \t GPU-c6d97475-611e-2433-c597-8ff441c891b5\n\
                 Video BIOS: \t 96.00.a5.00.1a\nBus Location: \t {bus}\nDevice Minor: \t 0\n"
            )
        };
        for (bus, model) in [("0000:41:00.0", "NVIDIA L4"), ("0000:06:00.0", "NVIDIA H200")] {
            let gpu = folder.path().join(bus);
            fs::create_dir(&gpu).unwrap();
            fs::write(gpu.join("information"), text(model, bus)).unwrap();
        }
        fs::create_dir(folder.path().join("0000:99:00.0")).unwrap();
        let uuid = "GPU-c6d97475-611e-2433-c597-8ff441c891b5";
        assert_eq!(listed(folder.path()), [named("NVIDIA H200", uuid), named("NVIDIA L4", uuid)]);
        assert_eq!(listed(&folder.path().join("none")), []);
    }

    #[test]
    fn the_card_is_the_one_that_the_variable_or_the_first_place_names() {
        let one = [named("NVIDIA GeForce RTX 3060", "GPU-1")];
        let (card, how) = told(&one, None);
        assert_eq!(card, "rtx3060-12g");
        assert_eq!(
            how,
            "no --gpu was given, and this machine's GPU is this card (NVIDIA GeForce RTX 3060)"
        );
        let two = [named("NVIDIA L4", "GPU-1a"), named("NVIDIA H200", "GPU-2b")];
        assert_eq!(told(&two, None).0, "l4");
        assert!(told(&two, None).1.contains("the first of this machine's GPUs is this card"));
        for visible in ["1", "1,0", "GPU-2b", "GPU-2"] {
            let (card, how) = told(&two, Some(visible));
            assert_eq!(card, "h200", "{visible}");
            assert!(
                how.contains(
                    "CUDA_VISIBLE_DEVICES names this one of the machine's GPUs (NVIDIA H200)"
                ),
                "{how}"
            );
        }
        for visible in ["", "-1", "7"] {
            assert_eq!(told(&two, Some(visible)).0, "l4", "{visible}");
        }
        assert!(matches!(of(&[], None), Here::Nothing));
    }

    #[test]
    fn a_gpu_of_the_same_name_and_other_memory_is_another_card() {
        let ti = |gib| Gpu {
            total: Some(Bytes::gib(gib)),
            ..named("NVIDIA GeForce RTX 4060 Ti", "GPU-1")
        };
        assert_eq!(told(&[ti(16)], None).0, "rtx4060ti-16g");
        assert_eq!(told(&[ti(8)], None).0, "rtx4060ti-8g");
        assert!(matches!(of(&[ti(12)], None), Here::Unknown(_)));
        assert!(matches!(of(&[named("NVIDIA GeForce GT 1030", "GPU-1")], None), Here::Unknown(_)));
    }
}
