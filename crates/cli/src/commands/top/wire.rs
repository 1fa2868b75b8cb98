//! The machine as JSON, described by docs/schemas/top.schema.json.

use serde_json::{Value, json};

use crate::gpu::machine::snapshot::{Device, End, Process, Row, Snapshot};

pub(super) fn document(snapshot: &Snapshot) -> String {
    let rows = snapshot.rows();
    let processes = snapshot.processes.iter().map(|owner| {
        let rows: Vec<&Row<'_>> =
            rows.iter().filter(|row| std::ptr::eq(row.process, owner)).collect();
        process(owner, &rows)
    });
    let document = json!({
        "version": 1,
        "at": snapshot.at,
        "host": snapshot.host,
        "driver": snapshot.driver,
        "no_gpu": snapshot.no_gpu,
        "devices": snapshot.devices.iter().map(device).collect::<Vec<_>>(),
        "processes": processes.collect::<Vec<_>>(),
        "notes": snapshot.notes(),
    });
    format!("{document:#}\n")
}

fn device(it: &Device) -> Value {
    json!({
        "index": it.index,
        "instance": it.instance,
        "name": it.name,
        "uuid": it.uuid,
        "total_bytes": it.memory.map(|it| it.total.0),
        "used_bytes": it.memory.map(|it| it.used().0),
        "free_bytes": it.memory.map(|it| it.free.0),
        "utilization_percent": it.utilization,
        "no_processes": it.no_processes,
    })
}

fn process(it: &Process, rows: &[&Row<'_>]) -> Value {
    let person = it.person.as_ref();
    let watched = it.status.as_ref().map(|status| {
        let alarm = |it: &crate::gpu::machine::snapshot::Alarm| json!({ "code": it.code, "step": it.step, "text": it.text });
        json!({
            "label": status.label,
            "command": status.command,
            "rank": status.rank,
            "updated": status.updated,
            "step": status.step,
            "seconds_per_step": status.seconds_per_step,
            "expected_peak_bytes": status.expected_peak.map(|it| it.0),
            "alarms": status.alarms.iter().map(alarm).collect::<Vec<_>>(),
        })
    });
    json!({
        "pid": it.pid,
        "user": person.map(|it| &it.user),
        "uid": person.map(|it| it.uid),
        "name": person.map(|it| &it.name),
        "watched": watched,
        "devices": rows.iter().map(|it| on_device(it)).collect::<Vec<_>>(),
    })
}

fn on_device(it: &Row<'_>) -> Value {
    let counters = it.counters.map(|counter| {
        json!({
            "index": counter.index,
            "total_bytes": counter.total.0,
            "allocated_bytes": counter.allocated.0,
            "reserved_bytes": counter.reserved.0,
            "active_bytes": counter.active.0,
            "inactive_split_bytes": counter.inactive_split.0,
            "peak_allocated_bytes": counter.peak_allocated.0,
            "peak_reserved_bytes": counter.peak_reserved.0,
            "retries": counter.retries,
            "ooms": counter.ooms,
            "largest_free_bytes": counter.largest_free.map(|it| it.0),
            "growth_per_step_bytes": counter.growth,
            "categories_bytes": counter.categories.iter().map(|(name, it)| (name.clone(), json!(it.0))).collect::<serde_json::Map<_, _>>(),
        })
    });
    let (steps, seconds) = match it.end() {
        Some(End::In { steps, seconds }) => (Some(steps), seconds),
        Some(End::Never) | None => (None, None),
    };
    json!({
        "gpu": it.device.map(|it| it.index),
        "instance": it.device.and_then(|it| it.instance),
        "uuid": it.device.map(|it| &it.uuid),
        "held_bytes": it.held.map(|it| it.0),
        "allocator": counters,
        "room_bytes": it.room().map(|it| it.0),
        "steps_to_end": steps,
        "seconds_to_end": seconds,
    })
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use plimsoll_core::units::Bytes;

    use super::*;
    use crate::gpu::machine::snapshot::{Counters, Memory, Person, Status};

    #[test]
    fn a_process_that_is_watched_and_one_that_is_not() {
        let memory = Some(Memory { total: Bytes(100), free: Bytes(30) });
        let (name, uuid) = ("NVIDIA L4".to_owned(), "GPU-1".to_owned());
        let counters = Counters {
            uuid: Some(uuid.clone()),
            allocated: Bytes(20),
            reserved: Bytes(25),
            growth: Some(5.0),
            categories: [("parameters".to_owned(), Bytes(20))].into(),
            ..Counters::default()
        };
        let status =
            Status { label: "train.py".to_owned(), counters: vec![counters], ..Status::default() };
        let person =
            Person { uid: 1000, user: "anna".to_owned(), name: "python serve.py".to_owned() };
        let snapshot = Snapshot {
            at: 1.5,
            host: "node17".to_owned(),
            devices: vec![Device { name, uuid, memory, ..Device::default() }],
            processes: vec![
                Process { pid: 7, status: Some(status), ..Process::default() },
                Process {
                    pid: 8,
                    person: Some(person),
                    on: vec![(0, Some(Bytes(40)))],
                    status: None,
                },
            ],
            ..Snapshot::default()
        };
        // In which order an object has its names depends on what else is built.
        let mut shown: serde_json::Value = serde_json::from_str(&document(&snapshot)).unwrap();
        shown.sort_all_objects();
        expect![[r#"
            {
              "at": 1.5,
              "devices": [
                {
                  "free_bytes": 30,
                  "index": 0,
                  "instance": null,
                  "name": "NVIDIA L4",
                  "no_processes": null,
                  "total_bytes": 100,
                  "used_bytes": 70,
                  "utilization_percent": null,
                  "uuid": "GPU-1"
                }
              ],
              "driver": null,
              "host": "node17",
              "no_gpu": null,
              "notes": [
                "1 of 2 processes have no name: they run outside this container, or /proc hides other users' processes"
              ],
              "processes": [
                {
                  "devices": [
                    {
                      "allocator": {
                        "active_bytes": 0,
                        "allocated_bytes": 20,
                        "categories_bytes": {
                          "parameters": 20
                        },
                        "growth_per_step_bytes": 5.0,
                        "inactive_split_bytes": 0,
                        "index": 0,
                        "largest_free_bytes": null,
                        "ooms": 0,
                        "peak_allocated_bytes": 0,
                        "peak_reserved_bytes": 0,
                        "reserved_bytes": 25,
                        "retries": 0,
                        "total_bytes": 0
                      },
                      "gpu": 0,
                      "held_bytes": null,
                      "instance": null,
                      "room_bytes": 35,
                      "seconds_to_end": null,
                      "steps_to_end": 7.0,
                      "uuid": "GPU-1"
                    }
                  ],
                  "name": null,
                  "pid": 7,
                  "uid": null,
                  "user": null,
                  "watched": {
                    "alarms": [],
                    "command": [],
                    "expected_peak_bytes": null,
                    "label": "train.py",
                    "rank": null,
                    "seconds_per_step": null,
                    "step": null,
                    "updated": 0.0
                  }
                },
                {
                  "devices": [
                    {
                      "allocator": null,
                      "gpu": 0,
                      "held_bytes": 40,
                      "instance": null,
                      "room_bytes": 30,
                      "seconds_to_end": null,
                      "steps_to_end": null,
                      "uuid": "GPU-1"
                    }
                  ],
                  "name": "python serve.py",
                  "pid": 8,
                  "uid": 1000,
                  "user": "anna",
                  "watched": null
                }
              ],
              "version": 1
            }
        "#]]
        .assert_eq(&format!("{shown:#}\n"));
    }
}
