//! Pages as they look, and what keys change.

use expect_test::{Expect, expect};
use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyEvent, KeyModifiers},
};

use super::*;
use crate::{
    commands::top::view::Then,
    gpu::machine::snapshot::{Alarm, Counters, Memory, Person, Process, Status},
};

const AT: f64 = 1_790_000_000.0;

fn device(index: u32, free: u64) -> Device {
    let memory = Some(Memory { total: Bytes::gib(80), free: Bytes::gib(free) });
    let (name, uuid) = ("NVIDIA H100 80GB HBM3".to_owned(), format!("GPU-{index}"));
    Device { index, name, uuid, memory, utilization: Some(98), ..Device::default() }
}

fn process(pid: u32, gpu: usize, held: u64, name: &str) -> Process {
    let person = Person {
        uid: 1000 + pid % 2,
        user: ["anna", "bert"][pid as usize % 2].to_owned(),
        name: name.to_owned(),
    };
    let on = vec![(gpu, Some(Bytes::gib(held)))];
    Process { pid, person: Some(person), on, status: None }
}

fn counters(gpu: u32, allocated: u64, growth: Option<f64>) -> Counters {
    let names = ["other", "parameters", "optimizer"].map(str::to_owned);
    Counters {
        uuid: Some(format!("GPU-{gpu}")),
        allocated: Bytes::gib(allocated),
        reserved: Bytes::gib(allocated + 2),
        peak_allocated: Bytes::gib(allocated + 1),
        peak_reserved: Bytes::gib(allocated + 2),
        inactive_split: Bytes::gib(1),
        largest_free: Some(Bytes::mib(600)),
        retries: 3,
        growth,
        categories: names.map(|it| (it, Bytes::gib(allocated / 4))).into(),
        ..Counters::default()
    }
}

fn status(label: &str, counters: Vec<Counters>) -> Status {
    let label = label.to_owned();
    let (step, seconds_per_step) = (Some(120), Some(0.5));
    Status { label, updated: AT, step, seconds_per_step, counters, ..Status::default() }
}

/// Two GPUs; a training that grows, one that does not, and somebody without plimsoll.
fn snapshot() -> Snapshot {
    let mut grows = process(4711, 0, 42, "python train.py");
    grows.status = Some(status("train.py", vec![counters(0, 36, Some(3e6))]));
    let mut steady = process(4712, 1, 20, "python long.py");
    let alarm = Alarm {
        code: "watch/retries".to_owned(),
        step: Some(118),
        text: "the allocator had to give memory back and ask again".to_owned(),
    };
    steady.status = Some(Status {
        rank: Some(1),
        alarms: vec![alarm],
        expected_peak: Some(Bytes::gib(21)),
        ..status(
            "a-name-that-is-longer-than-there-is-room-for.py",
            vec![counters(1, 16, Some(0.0))],
        )
    });
    Snapshot {
        at: AT,
        host: "node17".to_owned(),
        driver: Some("580.65.06".to_owned()),
        no_gpu: None,
        devices: vec![device(0, 18), device(1, 60)],
        processes: vec![grows, steady, process(815, 0, 20, "python serve.py")],
    }
}

fn page() -> View {
    View { is_page: true, ..View::default() }
}

fn check(snapshot: &Snapshot, view: &View, (width, height): (u16, u16), expected: &Expect) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(snapshot, view, frame.area(), frame.buffer_mut())).unwrap();
    expected.assert_eq(&picture(terminal.backend().buffer()));
}

fn press(view: &mut View, snapshot: &Snapshot, keys: &str) -> Then {
    let mut then = Then::GoOn;
    for it in keys.chars() {
        let code = match it {
            '↓' => KeyCode::Down,
            '↑' => KeyCode::Up,
            '⎋' => KeyCode::Esc,
            '⏎' => KeyCode::Enter,
            '⌫' => KeyCode::Backspace,
            other => KeyCode::Char(other),
        };
        then = view.press(KeyEvent::new(code, KeyModifiers::NONE), snapshot);
    }
    then
}

#[test]
fn a_page_on_a_small_terminal() {
    check(
        &snapshot(),
        &page(),
        (80, 24),
        &expect![[r#"
            plimsoll top  node17  driver 580.65.06  14:13:20 UTC
            GPU 0    NVIDIA H100 80GB HB… █████████▓▒▒▒▒▒▒░░░░ 62.0G of 80.0G  78% busy  98%
            GPU 1    NVIDIA H100 80GB HB… ████▓░░░░░░░░░░░░░░░ 20.0G of 80.0G  25% busy  98%
             GPU     PID USER       HELD  ALLOC RESERV    STEP  GROWTH  END IN WHAT
               0     815 bert      20.0G      -      -       -       -       - python serve…
               0    4711 bert      42.0G  36.0G  38.0G     120   +2.9M  60 min train.py
               1    4712 anna      20.0G  16.0G  18.0G     120       0  steady ! a-name-tha…









             815 python serve.py of bert ───────────────────────────────────────────────────
            holds 20.0G
            To see what is in this memory, start the script with `plimsoll run`, or call
            `plimsoll.watch()` in it.



            q end  ? keys  s sort: GPU
        "#]],
    );
}

#[test]
fn a_page_on_a_large_terminal() {
    let (snapshot, mut view) = (snapshot(), page());
    press(&mut view, &snapshot, "↓↓");
    check(
        &snapshot,
        &view,
        (160, 18),
        &expect![[r#"
        plimsoll top  node17  driver 580.65.06  14:13:20 UTC
        GPU 0    NVIDIA H100 80GB HBM3 █████████████████████████████████████████████▓▓▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒░░░░░░░░░░░░░░░░░░░░░░ 62.0G of 80.0G  78% busy  98%
        GPU 1    NVIDIA H100 80GB HBM3 ████████████████████▓▓▒▒▒░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 20.0G of 80.0G  25% busy  98%
         GPU     PID USER       HELD  ALLOC RESERV PARAMS  GRADS  OPTIM  OTHER    STEP  GROWTH   ROOM  END IN WHAT
           0     815 bert      20.0G      -      -      -      -      -      -       -       -  18.0G       - python serve.py
           0    4711 bert      42.0G  36.0G  38.0G   9.0G      -   9.0G   9.0G     120   +2.9M  20.0G  60 min train.py
           1    4712 anna      20.0G  16.0G  18.0G   4.0G      -   4.0G   4.0G     120       0  62.0G  steady ! a-name-that-is-longer-than-there-is-room-for.py rank 1



         4712 a-name-that-is-longer-than-there-is-room-for.py of anna ──────────────────────────────────────────────────────────────────────────────────────────────────
        watch/retries at step 118: the allocator had to give memory back and ask again
        holds 20.0G, reserved 18.0G (most 18.0G), allocated 16.0G (most 17.0G)
        parameters 4.0G, optimizer 4.0G, other 4.0G
        free in split blocks 1.0G, the largest piece 600M, 3 retries, 0 out of memory, 21.0G reserved expected
        step 120, 0.50 s each; does not grow

        q end  ? keys  s sort: GPU
    "#]],
    );
}

#[test]
fn a_terminal_with_hardly_any_room() {
    for size in [(1, 1), (3, 2), (20, 5), (39, 3)] {
        let mut terminal = Terminal::new(TestBackend::new(size.0, size.1)).unwrap();
        let view = View { is_help: true, ..page() };
        for view in [&view, &page()] {
            let drawn =
                terminal.draw(|frame| draw(&snapshot(), view, frame.area(), frame.buffer_mut()));
            assert_eq!(drawn.unwrap().area.width, size.0);
        }
    }
    check(
        &snapshot(),
        &page(),
        (40, 8),
        &expect![[r#"
            plimsoll top  node17  driver 580.65.06
               0 ████▒▒░░ 62.0G/80.0G
             GPU     PID   HELD  ALLOC WHAT
               0     815  20.0G      - python serve…
               0    4711  42.0G  36.0G train.py
               1    4712  20.0G  16.0G ! a-name-tha…

            q end  ? keys  s sort: GPU
        "#]],
    );
}

#[test]
fn many_devices_stand_beside_each_other() {
    let mut snapshot = snapshot();
    snapshot.devices = (0..8).map(|it| device(it, 10 * u64::from(it))).collect();
    for it in 0..14 {
        let instance =
            Device { instance: Some(it), name: "MIG 1g.10gb".to_owned(), ..device(7, 3) };
        snapshot.devices.push(Device { uuid: format!("MIG-{it}"), ..instance });
    }
    check(
        &snapshot,
        &page(),
        (80, 15),
        &expect![[r#"
        plimsoll top  node17  driver 580.65.06  14:13:20 UTC
           0 ████▒▒▒▒ 80.0G/80.0G    1 ██▒▒▒▒▒░ 70.0G/80.0G    2 ▒▒▒▒▒▒░░ 60.0G/80.0G
           3 ▒▒▒▒▒░░░ 50.0G/80.0G    4 ▒▒▒▒░░░░ 40.0G/80.0G    5 ▒▒▒░░░░░ 30.0G/80.0G
           6 ▒▒░░░░░░ 20.0G/80.0G    7 ▒░░░░░░░ 10.0G/80.0G and 14 more
         GPU     PID USER       HELD  ALLOC RESERV    STEP  GROWTH  END IN WHAT
           0     815 bert      20.0G      -      -       -       -       - python serve…
           0    4711 bert      42.0G  36.0G  38.0G     120   +2.9M   6 min train.py
           1    4712 anna      20.0G  16.0G  18.0G     120       0  steady ! a-name-tha…






        q end  ? keys  s sort: GPU
    "#]],
    );
}

#[test]
fn what_the_driver_or_the_system_keep_to_themselves() {
    let mut snapshot = snapshot();
    snapshot.devices[1].memory = None;
    snapshot.devices[1].no_processes = Some("the current user does not have permission".to_owned());
    snapshot.processes[2].person = None;
    snapshot.processes[2].on[0].1 = None;
    expect![[r#"
        plimsoll top  node17  driver 580.65.06  14:13:20 UTC
        GPU 0    NVIDIA H100 80GB HBM3 ███████████████████████████▓▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒░░░░░░░░░░░░░ 62.0G of 80.0G  78% busy  98%
        GPU 1    NVIDIA H100 80GB HBM3 the driver does not say how much memory it has
        1 of 3 processes have no name: they run outside this container, or /proc hides other users' processes
        the driver does not list the processes on GPU 1: the current user does not have permission
         GPU     PID USER       HELD  ALLOC RESERV    STEP  GROWTH   ROOM  END IN WHAT
           0     815 -             -      -      -       -       -  18.0G       - -
           0    4711 bert      42.0G  36.0G  38.0G     120   +2.9M  20.0G  60 min train.py
           1    4712 anna      20.0G  16.0G  18.0G     120       0      -  steady ! a-name-that-is-longer-than-there-is-room-fo…
    "#]].assert_eq(&text(&snapshot, &View::default(), 120));
}

#[test]
fn without_a_gpu_the_runs_are_still_shown() {
    let mut snapshot = snapshot();
    snapshot.no_gpu = Some("NVIDIA's driver is not installed".to_owned());
    snapshot.driver = None;
    snapshot.devices.clear();
    snapshot.processes.truncate(1);
    snapshot.processes[0].on.clear();
    expect![[r#"
        plimsoll top  node17  14:13:20 UTC
        no NVIDIA GPU here: NVIDIA's driver is not installed
         GPU     PID USER       HELD  ALLOC RESERV    STEP  GROWTH   ROOM  END IN WHAT
           -    4711 bert          -  36.0G  38.0G     120   +2.9M      -       - train.py
    "#]]
    .assert_eq(&text(&snapshot, &View::default(), 100));
}

#[test]
fn keys_sort_and_filter_and_choose() {
    let snapshot = snapshot();
    let mut view = page();
    let mut shown = |keys: &str| {
        let then = press(&mut view, &snapshot, keys);
        let rows = view.rows(&snapshot);
        let pids: Vec<u32> = rows.iter().map(|it| it.process.pid).collect();
        (pids, view.place(&rows).map(|it| rows[it].process.pid), view.sort, then)
    };
    assert_eq!(shown(""), (vec![815, 4711, 4712], Some(815), Sort::Gpu, Then::GoOn));
    assert_eq!(shown("↓"), (vec![815, 4711, 4712], Some(4711), Sort::Gpu, Then::GoOn));
    assert_eq!(shown("ssss"), (vec![4711, 815, 4712], Some(4711), Sort::Held, Then::GoOn));
    assert_eq!(shown("r"), (vec![815, 4712, 4711], Some(4711), Sort::Held, Then::GoOn));
    assert_eq!(shown("rS"), (vec![4712, 815, 4711], Some(4711), Sort::Name, Then::GoOn));
    assert_eq!(shown("SSSS").2, Sort::End, "the first comes after the last");
    assert_eq!(shown("").0, [4711, 4712, 815], "who ends soonest is first");
    assert_eq!(shown("s/serve").0, [815]);
    assert_eq!(shown("x").0, Vec::<u32>::new());
    assert_eq!(shown("⌫⏎"), (vec![815], Some(815), Sort::Gpu, Then::GoOn));
    assert_eq!(shown("⎋").0, [815, 4711, 4712]);
    assert_eq!(shown("m").0, [4711, 4712]);
    assert_eq!(shown("1").0, [4712]);
    assert_eq!(shown("1").0, [4711, 4712]);
    assert_eq!(shown("⎋").0, [815, 4711, 4712]);
    assert_eq!(shown("↓↓↓↓↓").1, Some(4712));
    assert_eq!(shown("↑↑↑↑↑").1, Some(815));
    assert_eq!((shown(" ").3, shown(" ").3), (Then::GoOn, Then::Look));
    assert_eq!((shown("?").3, shown("⎋").3, shown("⎋").3), (Then::GoOn, Then::GoOn, Then::End));
    assert_eq!(shown("/q").3, Then::GoOn, "typed, not obeyed");
    assert_eq!(shown("⎋q").3, Then::End);
    let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    press(&mut view, &snapshot, "/");
    assert_eq!(view.press(interrupt, &snapshot), Then::End, "also while typing");
}

#[test]
fn the_foot_says_what_is_left_out() {
    let (snapshot, mut view) = (snapshot(), page());
    press(&mut view, &snapshot, "sr/train⏎m0 ");
    check(
        &snapshot,
        &view,
        (80, 10),
        &expect![[r#"
        plimsoll top  node17  driver 580.65.06  14:13:20 UTC  paused: space goes on
        GPU 0    NVIDIA H100 80GB HB… █████████▓▒▒▒▒▒▒░░░░ 62.0G of 80.0G  78% busy  98%
         GPU     PID USER       HELD  ALLOC RESERV    STEP  GROWTH  END IN WHAT
           0    4711 bert      42.0G  36.0G  38.0G     120   +2.9M  60 min train.py





        q end  ? keys  s sort: PID, turned  / with: train  m watched only  GPU 0 only
    "#]],
    );
    press(&mut view, &snapshot, "?");
    check(
        &snapshot,
        &view,
        (80, 28),
        &expect![[r#"
            plimsoll top  node17  driver 580.65.06  14:13:20 UTC  paused: space goes on
            GPU 0    NVIDIA H100 80GB HB… █████████▓▒▒▒▒▒▒░░░░ 62.0G of 80.0G  78% busy  98%
             ┌ keys ──────────────────────────────────────────────────────────────────────┐
             │q, Ctrl-C       end                                                         │
             │up, down, j, k  choose a process; PgUp, PgDn, Home, End move further        │
             │s, S            sort by the next or the previous column                     │
             │r               reverse the order                                           │
             │/               filter by name, command, user or process id                 │
             │m               only watched processes                                      │
             │0 to 9          only this GPU; again: all                                   │
             │Esc             all lines again                                             │
             │space           hold still                                                  │
             │?               these keys                                                  │
             │                                                                            │
             │HELD            GPU memory as the driver reports it, CUDA context included  │
             │ALLOC           memory of its tensors                                       │
             │RESERV          memory that PyTorch's allocator holds from the driver       │
             │GROWTH          growth of ALLOC from step to step                           │
             │ROOM            free on the card, or reserved and not used by the process   │
             │END IN          when free memory is gone, if all on the card go on growing  │
             │                                                                            │─
            h│███             tensors of watched processes                                │
            p│▓▓▓             reserved by them and free                                   │
            f│▒▒▒             other processes and the driver                              │
            s│░░░             free                                                        │8
            s└────────────────────────────────────────────────────────────────────────────┘

            q end  ? keys  s sort: PID, turned  / with: train  m watched only  GPU 0 only
        "#]],
    );
}

#[test]
fn a_large_terminal_shows_how_memory_grew() {
    let (mut snapshot, mut view) = (snapshot(), page());
    press(&mut view, &snapshot, "↓");
    for look in 0..30_u32 {
        snapshot.at = AT + 2.0 * f64::from(look);
        if let Some(status) = &mut snapshot.processes[0].status {
            status.counters[0].allocated = Bytes::gib(30) + Bytes::mib(100 * u64::from(look / 3));
            status.updated = snapshot.at;
        }
        view.history.note(&snapshot);
    }
    check(
        &snapshot,
        &view,
        (120, 18),
        &expect![[r#"
            plimsoll top  node17  driver 580.65.06  14:14:18 UTC
            GPU 0    NVIDIA H100 80GB HBM3 ███████████████████████▓▓▓▓▓▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒░░░░░░░░░░░░░ 62.0G of 80.0G  78% busy  98%
            GPU 1    NVIDIA H100 80GB HBM3 ████████████▓▒▒░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 20.0G of 80.0G  25% busy  98%
             GPU     PID USER       HELD  ALLOC RESERV    STEP  GROWTH   ROOM  END IN WHAT
               0     815 bert      20.0G      -      -       -       -  18.0G       - python serve.py
               0    4711 bert      42.0G  30.9G  38.0G     120   +2.9M  25.1G  75 min train.py
               1    4712 anna      20.0G  16.0G  18.0G     120       0  62.0G  steady ! a-name-that-is-longer-than-there-is-room-fo…



             4711 train.py of bert ─────────────────────────────────────────────────────────────────────────────────────────────────
            holds 42.0G, reserved 38.0G (most 38.0G), allocated 30.9G (most 37.0G)          allocated 30.0G to 30.9G in 58 s
            parameters 9.0G, optimizer 9.0G, other 9.0G                                                             ▄▄▄███
            free in split blocks 1.0G, the largest piece 600M, 3 retries, 0 out of memory                     ▄▄▄█████████
            step 120, 0.50 s each; grows 2.9M a step: free memory (25.1G) is used up in 8991            ▄▄▄███████████████
            steps                                                                                 ▄▄▄█████████████████████
                                                                                            ▄▄▄███████████████████████████
            q end  ? keys  s sort: GPU
        "#]],
    );
    press(&mut view, &snapshot, "↑");
    check(
        &snapshot,
        &view,
        (110, 17),
        &expect![[r#"
            plimsoll top  node17  driver 580.65.06  14:14:18 UTC
            GPU 0    NVIDIA H100 80GB HBM3 ███████████████████▓▓▓▓▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒░░░░░░░░░░░ 62.0G of 80.0G  78% busy  98%
            GPU 1    NVIDIA H100 80GB HBM3 ██████████▓▒░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░ 20.0G of 80.0G  25% busy  98%
             GPU     PID USER       HELD  ALLOC RESERV    STEP  GROWTH   ROOM  END IN WHAT
               0     815 bert      20.0G      -      -       -       -  18.0G       - python serve.py
               0    4711 bert      42.0G  30.9G  38.0G     120   +2.9M  25.1G  75 min train.py
               1    4712 anna      20.0G  16.0G  18.0G     120       0  62.0G  steady ! a-name-that-is-longer-than-there-…


             815 python serve.py of bert ─────────────────────────────────────────────────────────────────────────────────
            holds 20.0G                                                           held 20.0G in 58 s
            To see what is in this memory, start the script with `plimsoll run`,
            or call `plimsoll.watch()` in it.


                                                                                  ▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄
            q end  ? keys  s sort: GPU
        "#]],
    );
    snapshot.processes.remove(0);
    view.history.note(&snapshot);
    assert_eq!(view.history.of(&snapshot.rows()[0]).len(), 31, "the others go on");
}

#[test]
fn names_end_where_their_column_ends() {
    for (text, width, expected) in [
        ("train.py", 10, "train.py  "),
        ("train.py", 8, "train.py"),
        ("train.py", 5, "trai…"),
        ("训练脚本.py", 6, "训练… "),
        ("训练脚本.py", 11, "训练脚本.py"),
        ("x", 0, "…"),
    ] {
        assert_eq!(cut(text, width), expected, "{text} {width}");
    }
}
