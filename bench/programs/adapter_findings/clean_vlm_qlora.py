"""A vision-language model in NF4 with its vision tower packed, LoRA in the language part"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import runpy

runpy.run_path(sys.path[0] + "/vl_qwen2.py", run_name="__main__")
