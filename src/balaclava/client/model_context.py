"""A server of the Model Context Protocol: language models read experiments, and change nothing.

JSON-RPC 2.0 over stdin and stdout, one message a line. The four tools read released values and
guarantees through the client, best with a key of role read. Counts of arrived rewards, which an
admin key would get, are left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TextIO

import balaclava
from balaclava.client.clients import Client
from balaclava.errors import BalaclavaError

PROTOCOL_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")  # newest first
_PARSE, _REQUEST, _METHOD, _INVALID = -32700, -32600, -32601, -32602  # codes of JSON-RPC
_EXPERIMENT = {"experiment": {"type": "string", "description": "Name of the experiment."}}
_STOPPING = {
    "confidence": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
    "smallest_difference": {"type": "number", "exclusiveMinimum": 0},
    "participants": {"type": "integer", "minimum": 1},
}
_INSTRUCTIONS = (
    "Experiments of a service for differentially private decisions. All numbers are released with "
    "noise, or count decisions. Reading them costs no privacy."
)

Tool = Callable[[Client, dict[str, Any]], Any]


def _results(client: Client, arguments: dict[str, Any]) -> Any:
    """Released means with intervals, the winner if there is one, and whether to stop."""
    answer = client.results(**arguments)
    answer.pop("windows", None)
    return answer


def _experiments(client: Client, arguments: dict[str, Any]) -> Any:
    """All experiments: policy, arms, state, number of decisions, guarantee."""
    return {"experiments": client.experiments()}


def _privacy(client: Client, arguments: dict[str, Any]) -> Any:
    """The guarantee of an experiment, whom it protects, and what it does not cover."""
    return client.privacy(**arguments)


def _plan(client: Client, arguments: dict[str, Any]) -> Any:
    """How many decisions it takes to name the best arm, and whether the experiment may stop."""
    return client.plan(**arguments)


TOOLS: dict[str, tuple[Tool, dict[str, Any]]] = {
    "list_experiments": (_experiments, {}),
    "experiment_results": (_results, _EXPERIMENT | _STOPPING),
    "experiment_privacy": (_privacy, _EXPERIMENT),
    "experiment_plan": (_plan, _EXPERIMENT | _STOPPING),
}


class _RpcError(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def serve_stdio(client: Client, lines: Iterable[str], out: TextIO) -> None:
    """Answer messages until the input ends."""
    for line in lines:
        if line.strip() and (answer := _answer(client, line)) is not None:
            print(json.dumps(answer), file=out, flush=True)


def _answer(client: Client, line: str) -> dict[str, Any] | None:
    """The answer to a message; None to a notification."""
    id = None
    try:
        try:
            message = json.loads(line)
        except ValueError:
            raise _RpcError(_PARSE, "the message is not valid JSON") from None
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            raise _RpcError(_REQUEST, "the message is not a JSON-RPC 2.0 request")
        id = message.get("id")
        method, parameters = message.get("method"), message.get("params") or {}
        if "id" not in message or method is None:
            return None  # a notification, or an answer to a request that was never sent
        if not isinstance(parameters, dict):
            raise _RpcError(_INVALID, "params must be an object")
        return {"jsonrpc": "2.0", "id": id, "result": _result(client, method, parameters)}
    except _RpcError as error:
        fault = {"code": error.code, "message": str(error)}
        return {"jsonrpc": "2.0", "id": id, "error": fault}


def _result(client: Client, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        asked = parameters.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in PROTOCOL_VERSIONS else PROTOCOL_VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "balaclava", "version": balaclava.__version__},
            "instructions": _INSTRUCTIONS,
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        return {"tools": [_description(name) for name in TOOLS]}
    if method == "tools/call":
        return _call(client, parameters.get("name"), parameters.get("arguments") or {})
    raise _RpcError(_METHOD, f"unknown method {method!r}")


def _description(name: str) -> dict[str, Any]:
    tool, properties = TOOLS[name]
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    schema |= {"additionalProperties": False}
    if "experiment" in properties:
        schema["required"] = ["experiment"]
    return {
        "name": name,
        "description": tool.__doc__,
        "inputSchema": schema,
        "annotations": {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False},
    }


def _call(client: Client, name: Any, arguments: Any) -> dict[str, Any]:
    """The result of a tool. A failure of the tool is a result too: the model should read it."""
    if name not in TOOLS:
        raise _RpcError(_INVALID, f"unknown tool {name!r}; there are {', '.join(TOOLS)}")
    tool, properties = TOOLS[name]
    if not isinstance(arguments, dict) or not arguments.keys() <= properties.keys():
        raise _RpcError(_INVALID, f"{name} takes {', '.join(properties) or 'no arguments'}")
    if "experiment" in properties and not isinstance(arguments.get("experiment"), str):
        raise _RpcError(_INVALID, f"{name} needs an experiment")
    try:
        document = tool(client, arguments)
    except BalaclavaError as error:
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}
    text = {"type": "text", "text": json.dumps(document)}
    return {"content": [text], "structuredContent": document, "isError": False}
