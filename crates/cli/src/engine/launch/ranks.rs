//! Which ranks of a job run here: one of them, as if a launcher had started it among the others, or all
//! that the command's own launcher starts.

use std::{
    ffi::{OsStr, OsString},
    io,
    net::TcpListener,
    path::Path,
};

use anyhow::ensure;

use crate::contract::{self, Setting};

/// The devices of a machine, where the command line does not say: what clusters are built of.
const DEVICES_PER_MACHINE: u32 = 8;
/// Programs and modules that start a process for each rank.
const LAUNCHERS: [&str; 5] =
    ["torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed"];

/// Which ranks run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ranks {
    /// The command runs as one rank of a job of `world`, on a machine of `local` devices.
    One { world: u32, rank: u32, local: u32 },
    /// A launcher in the command starts this one of its ranks; without a launcher, nothing.
    OfLauncher { rank: u32 },
    /// A launcher in the command starts all of them.
    All,
    /// The command starts once for each of them, all on this machine.
    Several { world: u32 },
    /// The command starts once for each of `ranks`, as `one` says of one of them; the others are imagined.
    Few { ranks: Vec<u32>, one: Box<Ranks> },
}

impl Ranks {
    /// What the command line asks for.
    pub(crate) fn new(
        world: Option<u32>,
        rank: Option<u32>,
        all: bool,
        gpus: Option<u32>,
    ) -> anyhow::Result<Ranks> {
        let rank = rank.unwrap_or(0);
        Ok(match world {
            _ if all => Ranks::All,
            None => Ranks::OfLauncher { rank },
            Some(world) => {
                ensure!(
                    rank < world,
                    "there is no --rank {rank} among {world} ranks: they are 0 to {}",
                    world - 1
                );
                let local = gpus.unwrap_or(DEVICES_PER_MACHINE).min(world);
                Ranks::One { world, rank, local }
            }
        })
    }

    /// Another rank of the same job.
    pub(crate) fn with_rank(&self, rank: u32) -> Ranks {
        match self {
            &Ranks::One { world, local, .. } => Ranks::One { world, rank, local },
            Ranks::OfLauncher { .. } => Ranks::OfLauncher { rank },
            several => several.clone(),
        }
    }

    /// These ranks of the same job.
    pub(crate) fn with_ranks(&self, ranks: Vec<u32>) -> Ranks {
        match self {
            Ranks::One { .. } | Ranks::OfLauncher { .. } => {
                Ranks::Few { ranks, one: Box::new(self.clone()) }
            }
            several => several.clone(),
        }
    }

    /// All ranks of the same job, on this machine.
    pub(crate) fn together(&self) -> Ranks {
        match self {
            &Ranks::One { world, .. } => Ranks::Several { world },
            Ranks::OfLauncher { .. } => Ranks::All,
            several => several.clone(),
        }
    }

    /// How many devices this machine has, `gpus` if the command line says so.
    pub(crate) fn devices(&self, gpus: Option<u32>) -> u32 {
        match (gpus, self) {
            (Some(gpus), _) => gpus,
            (None, Ranks::One { local, .. }) => *local,
            (None, Ranks::Several { world }) => *world,
            (None, Ranks::Few { one, .. }) => one.devices(gpus),
            (None, Ranks::OfLauncher { .. } | Ranks::All) => 1,
        }
    }

    /// What each process that the command starts as has in its environment, so that they find each other.
    pub(crate) fn of_each(&self) -> io::Result<Vec<Vec<Setting>>> {
        if let Ranks::Few { ranks, one } = self {
            return Ok(ranks.iter().map(|it| one.with_rank(*it).environment()).collect());
        }
        let &Ranks::Several { world } = self else { return Ok(vec![Vec::new()]) };
        // Free now; that nobody takes it until the first process does is likely and not certain.
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port().to_string();
        let of = |rank: u32| {
            let one = Ranks::One { world, rank, local: world };
            let mut res = one.environment();
            res.retain(|(name, _)| !name.starts_with(contract::OURS) && *name != "MASTER_PORT");
            res.push(("MASTER_PORT", port.clone().into()));
            res
        };
        Ok((0..world).map(of).collect())
    }

    /// What the script's environment has for it: what `torchrun` would have set, and the agent's own
    /// (`agent/plimsoll_agent/ranks/imagined.py`).
    pub(crate) fn environment(&self) -> Vec<Setting> {
        let number = |it: u32| OsString::from(it.to_string());
        match *self {
            Ranks::Few { ref ranks, .. } => {
                let ranks: Vec<_> = ranks.iter().map(u32::to_string).collect();
                vec![(contract::TOGETHER, ranks.join(",").into())]
            }
            Ranks::All | Ranks::Several { .. } => vec![(contract::ALL_RANKS, "1".into())],
            Ranks::OfLauncher { rank } => vec![(contract::RANK, number(rank))],
            Ranks::One { world, rank, local } => vec![
                (contract::WORLD, number(world)),
                (contract::RANK, number(rank)),
                ("RANK", number(rank)),
                ("LOCAL_RANK", number(rank % local)),
                ("GROUP_RANK", number(rank / local)),
                ("WORLD_SIZE", number(world)),
                ("LOCAL_WORLD_SIZE", number(local)),
                ("GROUP_WORLD_SIZE", number(world.div_ceil(local))),
                ("MASTER_ADDR", "127.0.0.1".into()),
                ("MASTER_PORT", "29500".into()),
            ],
        }
    }
}

/// Whether a command starts the ranks itself, with a launcher; what the script is given says nothing of it.
pub(crate) fn has_launcher(command: &[OsString]) -> bool {
    let is_launcher = |word: &OsString| {
        let name = Path::new(word).file_name().and_then(OsStr::to_str).unwrap_or_default();
        LAUNCHERS.contains(&name)
    };
    let is_script = |word: &OsString| Path::new(word).extension().is_some_and(|it| it == "py");
    let script = command.iter().position(is_script).unwrap_or(command.len());
    let module = command.iter().position(|it| it == "-m").map_or(command.len(), |it| it + 2);
    command.iter().take(script.min(module)).any(is_launcher)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launchers_are_known_by_their_names() {
        let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(has_launcher(&words("/opt/bin/torchrun --nproc-per-node 8 train.py")));
        assert!(has_launcher(&words("python -m torch.distributed.run train.py")));
        assert!(has_launcher(&words("python /opt/bin/torchrun --nproc-per-node 8 -m train")));
        assert!(!has_launcher(&words("python train.py")));
        assert!(!has_launcher(&words("python train.py --strategy deepspeed")));
        assert!(!has_launcher(&words("python -m train --strategy deepspeed")));
    }

    #[test]
    fn a_rank_of_a_cluster_sits_on_its_machine() {
        let ranks = Ranks::new(Some(64), Some(13), false, None).unwrap();
        assert_eq!(ranks, Ranks::One { world: 64, rank: 13, local: 8 });
        assert_eq!(ranks.devices(None), 8);
        let environment = ranks.environment();
        let of = |name| environment.iter().find(|it| it.0 == name).and_then(|it| it.1.to_str());
        assert_eq!(of("RANK"), Some("13"));
        assert_eq!(of("LOCAL_RANK"), Some("5"));
        assert_eq!(of("GROUP_RANK"), Some("1"));
        assert_eq!(of("GROUP_WORLD_SIZE"), Some("8"));
    }

    #[test]
    fn each_of_several_is_told_who_it_is_and_where_they_meet() {
        let all = Ranks::Several { world: 3 }.of_each().unwrap();
        let of =
            |rank: usize, name: &str| all[rank].iter().find(|it| it.0 == name).unwrap().1.clone();
        assert_eq!((all.len(), of(2, "RANK"), of(2, "LOCAL_RANK")), (3, "2".into(), "2".into()));
        assert_eq!(of(0, "WORLD_SIZE"), "3");
        assert_eq!(of(0, "MASTER_PORT"), of(2, "MASTER_PORT"));
        assert_eq!(Ranks::All.of_each().unwrap(), [vec![]]);
    }

    #[test]
    fn some_ranks_of_a_job_are_started_as_each_of_them_would_be() {
        let one = Ranks::new(Some(32), None, false, None).unwrap();
        let some = one.with_ranks(vec![0, 8, 24]);
        assert_eq!(some.environment(), [(contract::TOGETHER, "0,8,24".into())]);
        let each = some.of_each().unwrap();
        assert_eq!(each.len(), 3);
        assert_eq!(each[2], one.with_rank(24).environment());
        assert_eq!(some.devices(None), 8);
        let of_launcher = Ranks::OfLauncher { rank: 0 }.with_ranks(vec![0, 2]).of_each().unwrap();
        assert_eq!(of_launcher[1], [(contract::RANK, "2".into())]);
    }

    #[test]
    fn a_machine_has_no_more_devices_than_ranks_need() {
        assert_eq!(Ranks::new(Some(2), None, false, None).unwrap().devices(None), 2);
        assert_eq!(Ranks::new(Some(64), None, false, Some(4)).unwrap().devices(Some(4)), 4);
        assert_eq!(Ranks::new(None, None, false, None).unwrap().devices(None), 1);
    }

    #[test]
    fn a_rank_that_does_not_exist_is_refused() {
        let error = Ranks::new(Some(8), Some(8), false, None).unwrap_err().to_string();
        assert_eq!(error, "there is no --rank 8 among 8 ranks: they are 0 to 7");
    }
}
