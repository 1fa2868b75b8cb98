"""Whether a JSON of the program is what its schema says. A key that the schema does not have is wrong here, though readers have to pass over it."""

import functools
import json

from harness import ROOT

SCHEMAS = ROOT / "docs" / "schemas"


@functools.cache
def schema(name):
    return json.loads((SCHEMAS / f"{name}.schema.json").read_text())


def closed(it):
    """The schema without room for keys that it does not name."""
    if isinstance(it, list):
        return [closed(each) for each in it]
    if not isinstance(it, dict):
        return it
    it = {key: closed(each) for key, each in it.items()}
    names_keys = "type" in it and isinstance(it.get("properties"), dict) and "additionalProperties" not in it
    return it | {"additionalProperties": False} if names_keys else it


@functools.cache
def validator(name, is_closed=True):
    from jsonschema import Draft202012Validator

    return Draft202012Validator(closed(schema(name)) if is_closed else schema(name))


def assert_described(name, document):
    wrong = [f"{'/'.join(map(str, it.absolute_path))}: {it.message}"[:300] for it in validator(name).iter_errors(document)]
    assert not wrong, (f"docs/schemas/{name}.schema.json", wrong[:5])
