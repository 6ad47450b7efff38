"""What the Claude Agent SDK for Python does with a CLI that runs elsewhere; prints one JSON object.

agent.py SHIM turn PROMPT | header VALUE | close
"""

import asyncio
import json
import sys

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    SystemMessage,
    create_sdk_mcp_server,
    query,
    tool,
)

SHIM, WHAT, *REST = sys.argv[1:]


def options(**more):
    return ClaudeAgentOptions(
        cli_path=SHIM,
        max_buffer_size=64 * 1024 * 1024,
        allowed_tools=["Bash", "Write", "mcp__here__where"],
        permission_mode="acceptEdits",
        **more,
    )


CALLED = []


@tool("where", "Tells where the SDK runs", {})
async def where(_arguments):
    CALLED.append(True)
    return {"content": [{"type": "text", "text": "beside the SDK"}]}


async def turn(prompt):
    """One turn with tools; a server of the SDK's own process is offered too."""
    servers = {"here": create_sdk_mcp_server("here", "1.0.0", [where])}
    told = {"kinds": [], "servers": None, "result": None}
    async for message in query(prompt=prompt, options=options(mcp_servers=servers)):
        told["kinds"].append(type(message).__name__)
        if isinstance(message, SystemMessage) and message.subtype == "init":
            told["cwd"] = message.data["cwd"]
            told["version"] = message.data["claude_code_version"]
            told["servers"] = message.data["mcp_servers"]
        if isinstance(message, ResultMessage):
            told["result"] = message.result
            told["is_error"] = message.is_error
    told["called"] = len(CALLED)
    return told


async def header(value):
    """A server whose header holds a secret."""
    servers = {"far": {"type": "http", "url": "http://127.0.0.1:9/", "headers": {"x": value}}}
    try:
        async for _ in query(prompt="Say hello.", options=options(mcp_servers=servers)):
            pass
    except Exception as error:  # The SDK has several kinds; all are told.
        return {"error": type(error).__name__, "said": str(error)}
    return {"error": None}


async def close():
    """Ends a client in the middle of a turn, as a harness does that has seen enough."""
    client = ClaudeSDKClient(options=options())
    await client.connect()
    await client.query("Please. [[scenario: bash sleep 600]]")
    async for message in client.receive_messages():
        if type(message).__name__ == "AssistantMessage":
            break
    await client.disconnect()
    return {"closed": True}


async def main():
    if WHAT == "turn":
        return await turn(REST[0])
    if WHAT == "header":
        return await header(REST[0])
    return await close()


print(json.dumps(asyncio.run(main())))
