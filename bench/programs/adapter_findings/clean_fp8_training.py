"""float8 training by torchao, all weights"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import runpy

runpy.run_path(str(Path(sys.path[0]) / "torchao_fp8_training.py"), run_name="__main__")
