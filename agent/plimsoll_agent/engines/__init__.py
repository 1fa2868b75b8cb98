"""Looks at serving engines while they start.

    asked      what a search asks of an engine, and what the engine's process is given for it
    servers    a server that is ready is asked to end
    vllm       vLLM's plan of its memory
    sglang     SGLang's
    long_pass  a request to its server, as long as a pass may be
    places     takes all places
"""

from __future__ import annotations
