//! What to ask a scheduler for, as lines to paste.

use crate::{cards::Card, prediction::Prediction, units::Bytes};

/// What runs jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduler {
    /// Lines of a batch script.
    Slurm,
    /// A part of a pod.
    Kubernetes,
    /// A part of a task.
    Skypilot,
    /// Options of a remote function.
    Ray,
}

/// What CUDA itself takes of the host in each process that uses a GPU, which a phantom does not see.
const OF_CUDA: Bytes = Bytes::gib(2);

/// What is asked for, beside memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Cards of the prediction's kind.
    pub cards: u32,
    /// All ranks of the job on it ran, so that what they take of the host together was seen; else it was seen of one of them.
    pub all_ranks: bool,
}

/// The lines; none where the script does not fit, so no amount of this card's memory is known to be safe.
pub fn request(scheduler: Scheduler, prediction: &Prediction, machine: Machine) -> Option<String> {
    let safe = prediction.safe().filter(|it| *it <= prediction.card.total)?;
    let card = &prediction.card;
    let host = prediction.host.unwrap_or_default();
    let count = machine.cards.max(1);
    let ranks = prediction.world.unwrap_or(1).clamp(1, count);
    let machines = prediction.world.unwrap_or(1).div_ceil(count);
    let times = |it: Bytes, n: u32| Bytes(it.0.saturating_mul(u64::from(n)));
    let not_seen = if machine.all_ranks { 1 } else { ranks };
    let memory = gib(times(host.peak, not_seen) + times(OF_CUDA, ranks));
    let shared = gib(times(host.shared, not_seen));
    let of_each = if ranks == 1 {
        String::new()
    } else if machine.all_ranks {
        format!(" in each of {ranks} ranks")
    } else {
        format!(", for each of {ranks} ranks")
    };
    let mut about = format!(
        "# {safe} of each GPU to be safe ({}, {}).\n# Host memory: {} seen on the phantom, {} of it shared between processes, \
         and {OF_CUDA} for CUDA itself{of_each}.\n",
        card.id, card.total, host.peak, host.shared
    );
    if 1 < machines && matches!(scheduler, Scheduler::Kubernetes | Scheduler::Ray) {
        about += &format!("# The job has {machines} machines: this is one of them.\n");
    }
    let (nodes, num_nodes) = match machines {
        ..=1 => (String::new(), String::new()),
        n => (format!("#SBATCH --nodes={n}\n"), format!("num_nodes: {n}\n")),
    };
    let (whole, profile) = split(card);
    let lines = match scheduler {
        Scheduler::Slurm => {
            let kind = short(whole);
            let kind = profile.map_or_else(|| kind.clone(), |it| format!("{kind}_{it}"));
            format!(
                "{about}# The name of a GPU is your cluster's own: `sinfo -o %G` lists them.\n{nodes}\
                 #SBATCH --gres=gpu:{kind}:{count}\n#SBATCH --mem={memory}G\n"
            )
        }
        Scheduler::Kubernetes => {
            let resource = profile.map_or_else(|| "gpu".to_owned(), |it| format!("mig-{it}"));
            let product = card.name.split(" MIG ").next().unwrap_or_default().replace(' ', "-");
            let shm = if host.shared == Bytes::ZERO {
                String::new()
            } else {
                format!(
                    "# /dev/shm: mount this at /dev/shm, as the default is 64 MiB\nvolumes:\n  - name: shm\n    emptyDir: \
                     {{medium: Memory, sizeLimit: {shared}Gi}}\n"
                )
            };
            format!(
                "{about}nodeSelector:\n  nvidia.com/gpu.product: {product}\nresources:\n  limits:\n    nvidia.com/{resource}: \
                 {count}\n    memory: {memory}Gi\n{shm}"
            )
        }
        Scheduler::Skypilot => {
            format!(
                "{about}{num_nodes}resources:\n  accelerators: {}:{count}\n  memory: {memory}+\n",
                in_capitals(whole, "GB")
            )
        }
        Scheduler::Ray => {
            let bytes = Bytes::gib(memory).0;
            format!(
                "{about}@ray.remote(num_gpus={count}, accelerator_type=\"{}\", memory={bytes})\n",
                in_capitals(whole, "G")
            )
        }
    };
    Some(lines)
}

/// In whole GiB, upwards.
fn gib(it: Bytes) -> u64 {
    it.0.div_ceil(Bytes::gib(1).0).max(1)
}

/// The card, and the profile of a slice of it.
fn split(card: &Card) -> (&str, Option<&str>) {
    match card.id.split_once('/') {
        Some((whole, profile)) if profile.contains("g.") => (whole, Some(profile)),
        Some((whole, _)) => (whole, None),
        None => (&card.id, None),
    }
}

/// `a100` for `a100-80g`.
fn short(id: &str) -> String {
    let is_size = |it: &str| it.strip_suffix('g').is_some_and(|it| it.parse::<u32>().is_ok());
    id.split('-').filter(|it| !is_size(it)).collect::<Vec<_>>().join("-")
}

/// `A100-80GB` for `a100-80g`, as the sizes that a name tells apart are written.
fn in_capitals(id: &str, unit: &str) -> String {
    let has_size = matches!(id, "a100-80g" | "v100-32g") || (unit == "G" && id == "a100-40g");
    let name = short(id).to_ascii_uppercase();
    let size = id.rsplit('-').next().and_then(|it| it.strip_suffix('g')).unwrap_or_default();
    if has_size { format!("{name}-{size}{unit}") } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_called_as_schedulers_call_them() {
        assert_eq!(short("a100-80g"), "a100");
        assert_eq!(short("rtx-pro-6000"), "rtx-pro-6000");
        assert_eq!(in_capitals("a100-80g", "GB"), "A100-80GB");
        assert_eq!(in_capitals("a100-40g", "GB"), "A100");
        assert_eq!(in_capitals("a100-40g", "G"), "A100-40G");
        assert_eq!(in_capitals("h100-80g", "GB"), "H100");
        assert_eq!(in_capitals("rtx4090", "GB"), "RTX4090");
        assert_eq!(gib(Bytes::mib(1500)), 2);
        assert_eq!(gib(Bytes::ZERO), 1);
    }
}
