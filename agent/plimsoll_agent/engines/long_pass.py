"""A request to a server of SGLang's, as long as a pass may be: users will send such ones."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.request
from typing import Any

_SECONDS = 600.0
"""At most, for its answer."""


def ask(manager: Any) -> int | None:
    """Sends as many tokens as a pass may have: in one request, or in several where one may not be so long. How many were answered; None if none was."""
    args = manager.server_args
    most = int(args.chunked_prefill_size if 0 < args.chunked_prefill_size else args.max_prefill_tokens)
    longest = int(manager.max_req_input_len) - 1
    if longest <= 0:
        return None
    # Each begins with another token: what begins like an earlier one is answered from the cache.
    asked = [[20 + k] + [20] * (min(longest, most - at) - 1) for k, at in enumerate(range(0, most, longest))]
    body = {"input_ids": asked if 1 < len(asked) else asked[0], "sampling_params": {"temperature": 0, "max_new_tokens": 1}}
    url = args.url() + ("/generate" if manager.is_generation else "/encode")
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    if args.api_key:
        request.add_header("Authorization", "Bearer %s" % args.api_key)
    # Its own certificate, on this machine.
    unverified = ssl._create_unverified_context() if url.startswith("https") else None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unverified))
    try:
        with opener.open(request, timeout=_SECONDS) as answer:
            answer.read()
    except (OSError, http.client.HTTPException):
        # Where memory ran out, the engine reports that.
        return None
    return sum(map(len, asked))
