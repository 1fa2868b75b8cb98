"""Turns experiment trackers and uploads off while a script runs on a phantom.

A run on a phantom is not an experiment. It must not appear on a dashboard, and its weights, which are not trained, must not
reach a hub. The agent uses each package's own offline or disabled mode, so that what a script reads from the package (`run.id`,
`run.url`) is what the package returns in that mode. Reading from the network goes on: a script may download its model.

    wandb, neptune   their mode that does nothing
    comet_ml         experiments are disabled
    clearml, mlflow  offline, with files of their own that lie in the run's private layer
    aim              a remote repository becomes a local one
    huggingface_hub  calls that would change something there return and send nothing

`--offline` does more: it takes the network away.
"""

from __future__ import annotations

import functools
import importlib.machinery
import os
import sys

from plimsoll_agent import patch

TYPE_CHECKING = False  # As typing has it, which is not imported for this.
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    from plimsoll_agent.kinds import Function, Library, Note

ENVIRONMENT = {
    "WANDB_MODE": "disabled",
    "NEPTUNE_MODE": "debug",
    "CLEARML_OFFLINE_MODE": "1",
    "COMET_START_ONLINE": "0",
    # What packages tell their makers of a run, tracked or not.
    "DO_NOT_TRACK": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}
"""For processes that we do not reach otherwise, a launcher's or a program's without this agent."""

CHANGING = ["accept_", "add_", "batch_", "cancel_", "change_", "comment_", "copy_", "create_", "delete_", "disable_", "duplicate_", "edit_", "enable_", "grant_", "hide_", "merge_", "move_", "pause_", "permanently_", "preupload_", "reject_", "rename_", "request_", "rerun_", "restart_", "resume_", "run_job", "run_uv_job", "scale_", "set_", "super_squash", "suspend_", "sync_", "trigger_", "unlike", "update_", "upload_"]
"""How the names of those functions of huggingface_hub begin that change something on the hub."""

_kept_off: list[str] = []
_tell: Any = None


def watch() -> None:
    """From now on the packages stay off, whenever they are imported. Called once, at start-up."""
    os.environ.update(ENVIRONMENT)
    for variable in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"):
        if _is_remote(os.environ.get(variable)):
            os.environ[variable] = _local_mlflow()
            _off("mlflow")
    sys.meta_path.insert(0, _Finder())


def report_to(note: Note) -> None:
    """From now on `note(code, text)` gets each package that is turned off; it gets earlier ones now."""
    global _tell
    _tell = note
    for name in _kept_off:
        _say(name)


def _off(name: str) -> Any:
    if name not in _kept_off:
        _kept_off.append(name)
        if _tell is not None:
            _say(name)


def _say(name: str) -> None:
    _tell("kept-off", "plimsoll turned %s off: it sent nothing" % name)


class _Finder:
    """Finds what would have been found anyway, and changes it once it has been loaded."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        change = CHANGES.get(name)
        if change is None:
            return None
        for finder in sys.meta_path:
            find_spec = getattr(finder, "find_spec", None)
            if finder is self or find_spec is None:
                continue
            spec = find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, change)
                return spec
        return None


class _Loader(importlib.machinery.SourceFileLoader):
    """A module's own loader, with a change behind it."""

    def __init__(self, loader: Any, change: Any) -> None:
        self._loader, self._change = loader, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__.loader = module.__loader__ = self._loader  # type: ignore[union-attr]
        self._loader.exec_module(module)
        try:
            self._change(module)
        except Exception as error:
            # A version that we do not know: without it the script would write outside.
            raise ImportError("plimsoll cannot turn %s off: %r" % (module.__name__, error)) from error


def _with(function: Function, name: str, **settings: Any) -> Function:
    """`function` with these arguments, in place of the caller's."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        _off(name)
        kwargs.update(settings)
        return function(*args, **kwargs)

    return wrapped


def _wandb(module: Library) -> None:
    patch.put(module, "init", _with(module.init, "wandb", mode="disabled"))
    patch.put(module, "login", lambda *args, **kwargs: _off("wandb") or True)


def _wandb_init(module: Library) -> None:
    # `wandb.init` is this one under another name; integrations import it from here.
    patch.put(module, "init", _with(module.init, "wandb", mode="disabled"))


def _neptune(module: Library) -> None:
    for name in ("init_run", "init_model", "init_model_version", "init_project"):
        if hasattr(module, name):
            patch.put(module, name, _with(getattr(module, name), "neptune", mode="debug"))
    patch.put(module.Run, "__init__", _with(module.Run.__init__, "neptune", mode="debug"))


def _comet(module: Library) -> None:
    patch.put(module, "start", _with(module.start, "comet_ml", online=False))
    for name in ("login", "init"):
        patch.put(module, name, lambda *args, **kwargs: _off("comet_ml"))
    for name in ("Experiment", "ExistingExperiment"):
        kind = getattr(module, name)
        patch.put(kind, "__init__", _with(kind.__init__, "comet_ml", disabled=True))


def _clearml(module: Library) -> None:
    own = module.Task.init.__func__

    @functools.wraps(own)
    def init(cls: Any, *args: Any, **kwargs: Any) -> Any:
        _off("clearml")
        cls.set_offline(True)
        return own(cls, *args, **kwargs)

    patch.put(module.Task, "init", classmethod(init))


def _clearml_updates(module: Library) -> None:
    # It would say of this run which versions it has.
    patch.put(module.CheckPackageUpdates, "check_new_package_available", classmethod(lambda *args, **kwargs: None))


def _mlflow(module: Library) -> None:
    patch.put(module, "set_tracking_uri", _with_local_address(module.set_tracking_uri))


def _mlflow_registry(module: Library) -> None:
    patch.put(module, "set_registry_uri", _with_local_address(module.set_registry_uri))


def _mlflow_client(module: Library) -> None:
    patch.put(module.MlflowClient, "__init__", _with_local_address(module.MlflowClient.__init__))


def _with_local_address(function: Function) -> Function:
    """`function` with a local address wherever the caller gives a remote one."""

    def local(value: Any) -> Any:
        if isinstance(value, str) and _is_remote(value):
            _off("mlflow")
            return _local_mlflow()
        return value

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return function(*map(local, args), **{name: local(value) for name, value in kwargs.items()})

    return wrapped


def _mlflow_requests(module: Library) -> None:
    """All requests to a server: reading ones go through, all others are refused."""
    own = module.http_request

    def http_request(host_creds: Any, endpoint: Any, method: Any, *args: Any, **kwargs: Any) -> Any:
        if method.upper() != "GET":
            _off("mlflow")
            raise ConnectionError("plimsoll turned mlflow off: %s %s was not sent" % (method, endpoint))
        return own(host_creds, endpoint, method, *args, **kwargs)

    patch.put(module, "http_request", http_request)


def _aim(module: Library) -> None:
    own = module.Repo.__init__

    def __init__(self: Any, path: str, *args: Any, **kwargs: Any) -> None:
        if _is_remote(path):
            _off("aim")
            path, kwargs["init"] = os.getcwd(), True
        own(self, path, *args, **kwargs)

    patch.put(module.Repo, "__init__", __init__)


def _is_remote(address: str | None) -> bool:
    scheme, is_there, _ = str(address or "").partition("://")
    return bool(is_there) and scheme not in ("file", "sqlite") or scheme.startswith("databricks")


def _local_mlflow() -> Any:
    """The address that mlflow uses by default: its small form has no database."""
    import importlib.metadata

    try:
        importlib.metadata.version("mlflow")
    except importlib.metadata.PackageNotFoundError:
        return "file://" + os.path.join(os.getcwd(), "mlruns")
    return "sqlite:///" + os.path.join(os.getcwd(), "mlflow.db")


def _hub(module: Library) -> None:
    """Functions of the hub's interface: as methods, and bound to one instance as functions of the module."""
    for name in [it for it in vars(module.HfApi) if any(it.startswith(begin) for begin in CHANGING)]:
        own = getattr(module.HfApi, name)
        if not callable(own):
            continue
        instead = functools.wraps(own)(_answer(module, name))
        patch.put(module.HfApi, name, instead)
        if hasattr(module, name):
            patch.put(module, name, functools.wraps(own)(functools.partial(instead, module.api)))


def _answer(module: Library, name: str) -> Function:
    def answer(self: Any, *args: Any, run_as_future: bool = False, **kwargs: Any) -> Any:
        _off("huggingface_hub")
        repo = kwargs.get("repo_id") or next((it for it in args if isinstance(it, str)), "plimsoll/phantom")
        repo = repo if "/" in repo else "plimsoll/" + repo
        address = "%s/%s" % (self.endpoint, repo)
        if name == "create_repo":
            result = module.RepoUrl(address)
        elif name.startswith(("create_commit", "upload_", "delete_file", "delete_folder")):
            sent_nothing = dict(commit_message="not sent", commit_description="", oid="0" * 40)
            result = module.CommitInfo(commit_url="%s/commit/%s" % (address, "0" * 40), **sent_nothing)
        else:
            result = None
        if not run_as_future:
            return result
        from concurrent.futures import Future

        done: Any = Future()
        done.set_result(result)
        return done

    return answer


CHANGES = {
    "wandb": _wandb,
    "wandb.sdk.wandb_init": _wandb_init,
    "neptune": _neptune,
    "comet_ml": _comet,
    "clearml": _clearml,
    "clearml.utilities.check_updates": _clearml_updates,
    "mlflow.tracking._tracking_service.utils": _mlflow,
    "mlflow.tracking._model_registry.utils": _mlflow_registry,
    "mlflow.tracking.client": _mlflow_client,
    "mlflow.utils.rest_utils": _mlflow_requests,
    "aim.sdk.repo": _aim,
    "huggingface_hub.hf_api": _hub,
}
"""What is changed once a module has been loaded."""
