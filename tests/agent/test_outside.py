"""Trackers and hubs are kept off: packages with the names that people's have, which say how they were called."""

import subprocess
import sys
import textwrap

from harness import ROOT

SAYS = """
def init(project=None, mode="online"):
    return "wandb %s %s" % (project, mode)
def login():
    raise SystemExit("asked for a password")
"""
HUB = """
class RepoUrl(str): pass
class CommitInfo:
    def __init__(self, commit_url, **more): self.commit_url = commit_url
class HfApi:
    endpoint = "https://hub"
    def create_repo(self, repo_id): raise SystemExit("sent")
    def upload_folder(self, *, repo_id, run_as_future=False): raise SystemExit("sent")
    def model_info(self, repo_id): return "read " + repo_id
api = HfApi()
create_repo, upload_folder, model_info = api.create_repo, api.upload_folder, api.model_info
"""
SCRIPT = """
import sys
sys.path[:0] = [AGENT, HERE]
from plimsoll_agent import outside
outside.watch()
outside.report_to(lambda code, text: print(code, text))
import wandb
print(wandb.login(), wandb.init(project="mine", mode="online"))
from huggingface_hub.hf_api import HfApi, create_repo, model_info, upload_folder
print(create_repo("me/model"))
print(upload_folder(repo_id="me/model").commit_url)
print(HfApi().upload_folder(repo_id="me/model", run_as_future=True).result().commit_url)
print(model_info("me/model"))
"""


def test_nothing_is_sent_and_what_reads_goes_on(tmp_path):
    (tmp_path / "wandb.py").write_text(SAYS)
    (tmp_path / "huggingface_hub").mkdir()
    (tmp_path / "huggingface_hub" / "__init__.py").write_text("")
    (tmp_path / "huggingface_hub" / "hf_api.py").write_text(HUB)
    script = "AGENT, HERE = %r, %r\n" % (str(ROOT / "agent"), str(tmp_path)) + SCRIPT
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ran.stdout == textwrap.dedent(
        """\
        kept-off plimsoll turned wandb off: it sent nothing
        True wandb mine disabled
        kept-off plimsoll turned huggingface_hub off: it sent nothing
        https://hub/me/model
        https://hub/me/model/commit/0000000000000000000000000000000000000000
        https://hub/me/model/commit/0000000000000000000000000000000000000000
        read me/model
        """
    ), ran


MLFLOW = {
    "tracking/_tracking_service/utils.py": "def set_tracking_uri(uri): print('tracking', uri.partition('//')[2][-6:])\n",
    "tracking/client.py": "class MlflowClient:\n    def __init__(self, tracking_uri=None, registry_uri=None): print('client', tracking_uri, registry_uri)\n",
    "utils/rest_utils.py": "def http_request(host_creds, endpoint, method, **more): return method + ' ' + endpoint\n",
}
TRACKS = """
import sys
sys.path[:0] = [AGENT, HERE]
from plimsoll_agent import outside
outside.watch()
outside.report_to(lambda code, text: print(code, text))
from mlflow.tracking._tracking_service.utils import set_tracking_uri
from mlflow.tracking.client import MlflowClient
from mlflow.utils.rest_utils import http_request
MlflowClient("file:///here")
set_tracking_uri("file:///here")
set_tracking_uri("https://tracks")
MlflowClient("databricks", registry_uri="sqlite:///here")
print(http_request(None, "/artifacts", "GET"))
try:
    http_request(None, "/runs/create", method="POST")
except ConnectionError as error:
    print(error)
"""


def test_mlflow_keeps_its_runs_here_whatever_address_it_is_given(tmp_path):
    for name, text in MLFLOW.items():
        (tmp_path / "mlflow" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mlflow" / name).write_text(text)
    script = "AGENT, HERE = %r, %r\n" % (str(ROOT / "agent"), str(tmp_path)) + TRACKS
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path)
    runs = f"file://{tmp_path}/mlruns"
    assert ran.stdout.splitlines() == [
        "client file:///here None",
        "tracking /here",
        "kept-off plimsoll turned mlflow off: it sent nothing",
        "tracking mlruns",
        f"client {runs} sqlite:///here",
        "GET /artifacts",
        "plimsoll turned mlflow off: POST /runs/create was not sent",
    ], ran
