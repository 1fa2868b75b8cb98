"""LLaVA in NF4 under LoRA"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import runpy

runpy.run_path(str(Path(sys.path[0]) / "vl_llava.py"), run_name="__main__")
