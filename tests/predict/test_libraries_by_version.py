"""One small job of each library that people train with (libraries/), under whatever versions are installed: to a report that says nothing failed.

PLIMSOLL_OTHER_PYTHONS names the interpreters, as for test_torch_versions.py; a job whose library is not there is left out. docs/pytorch-versions.md
has the results.
"""

import shutil
from pathlib import Path

import pytest
from harness import assert_consistent
from test_torch_versions import PYTHONS, assert_nothing_of_ours_failed, has

JOBS = Path(__file__).parent / "libraries"
# What each needs, its arguments, and how many steps it takes.
NEEDS = {
    "accelerate_loop": ("accelerate", (), 4),
    "bitsandbytes_int8": ("bitsandbytes", (), 4),
    "bitsandbytes_nf4": ("bitsandbytes", (), 4),
    "compiled_parts": ("triton", (), 4),
    "deepspeed_zero-1": ("deepspeed", ("1",), 4),
    "deepspeed_zero-2": ("deepspeed", ("2",), 4),
    "deepspeed_zero-3": ("deepspeed", ("3",), 4),
    "detector_evaluation": ("torchvision", (), 3),
    "diffusers_unet": ("diffusers", (), 4),
    "diffusers_vae": ("diffusers", (), 4),
    "fla_linear_attention": ("fla", (), 4),
    "geometric_gdc": ("torch_geometric", (), 4),
    "keras_fit": ("keras", (), 8),
    "liger_llama": ("liger_kernel", (), 4),
    "lightning_module": ("lightning", (), 8),
    "peft_lora": ("peft", (), 4),
    "timesnet": ("torch", (), 4),
    "timm_distillation": ("timm", (), 4),
    "torchao_training": ("torchao", (), 4),
    "torchtitan_debug": ("torchtitan", (), 4),
    "transformers_trainer": ("transformers", (), 4),
    "triton_autotuned": ("triton", (), 4),
    "trl_sft": ("trl", (), 4),
    "ultralytics_yolo": ("ultralytics", (), 1),
}
pytestmark = [pytest.mark.soak, pytest.mark.skipif(not PYTHONS, reason="PLIMSOLL_OTHER_PYTHONS names no other Python")]


@pytest.fixture(params=PYTHONS, ids=lambda it: it.parents[1].name)
def python(request):
    return request.param


def test_every_job_is_named():
    assert {it.split("-")[0] for it in NEEDS} == {it.stem for it in JOBS.glob("[a-z]*.py")}


@pytest.mark.parametrize("job", NEEDS)
def test_runs_to_a_report(plimsoll, python, job):
    needs, arguments, steps = NEEDS[job]
    if not has(python, needs):
        pytest.skip(f"no {needs} there")
    shutil.copytree(JOBS, plimsoll.folder, dirs_exist_ok=True)
    # Alone, DeepSpeed's engine and torchtitan want the environment that their launchers make.
    of_two = ["--world-size", "2"] if needs in ("deepspeed", "torchtitan") else []
    ran = plimsoll.predict(python, plimsoll.folder / f"{job.split('-')[0]}.py", *arguments, options=["--gpu", "h200", "--until-exit", *of_two])
    assert ran.code == 0, ran
    assert steps <= ran.report["steps_seen"], ran
    assert_consistent(ran.report)
    assert_nothing_of_ours_failed(ran)
    assert "mismatches" not in {it["code"] for it in ran.report["notes"]}, ran.report["notes"]
