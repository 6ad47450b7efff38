#!/usr/bin/env python3
"""An agent that works on another machine, and whose own tools are audits.

The CLI runs on HOST, through the shim of a labproxy session, on a copy of WORKSPACE. The tools that it is
offered run here: each call pulls the agent's work and lets a program look at a proven copy of it, in a
sandbox. What the agent says of its work is never believed.

    python harness.py --host gpu1 --workspace . --cap 2 'Make the tests pass, then submit.'

What the tools run is in labproxy.toml beside this file, or in the file of --audits: [audit.tool.NAME].

It needs `labproxy` on PATH, ANTHROPIC_API_KEY (or --credential) for it, and `pip install claude-agent-sdk`.
"""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    TextBlock,
    create_sdk_mcp_server,
    tool,
)


class Session:
    """A labproxy session whose shim starts CLIs on the host; its work is here when it has ended."""

    def __init__(self, arguments):
        self.folder = tempfile.TemporaryDirectory(prefix="harness-")
        # Outside of the workspace: what an agent can change must not be run here.
        self.shim = Path(self.folder.name) / "claude"
        self.command = ["labproxy", "session", "start", "--host", arguments.host]
        self.command += ["--workspace", arguments.workspace, "--cap", arguments.cap]
        self.command += ["--shim", str(self.shim)]
        for name in ["upstream", "credential", "receipt"]:
            if value := getattr(arguments, name):
                self.command += [f"--{name}", value]

    def __enter__(self):
        # A session of its own: Ctrl-C goes to the harness, which ends the agent before the session.
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        # The line with the shim's path comes when the CLI is on the host and can be started.
        if not self.process.stdout.readline():
            sys.exit(self.process.wait())
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.communicate()
        self.folder.cleanup()


class Audits:
    """Runs tools on proven copies of the agent's work."""

    def __init__(self, workspace, config):
        self.workspace = workspace
        self.config = config
        self.submitted = None

    async def run(self, name):
        """One audit by the tool of that name. Returns its exit status and what it printed."""
        process = await asyncio.create_subprocess_exec(
            "labproxy",
            *["--config", self.config, "audit", "run", name],
            cwd=self.workspace,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return process.returncode, output.decode(errors="replace")

    async def last(self):
        """The record of the newest audit."""
        process = await asyncio.create_subprocess_exec(
            *["labproxy", "audit", "list", "--json"], cwd=self.workspace, stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
        return json.loads(output)["audits"][-1]

    def server(self):
        """The tools that the agent may call."""

        @tool("run_tests", "Runs the tests on what is in your working directory now.", {})
        async def run_tests(_arguments):
            return told(*await self.run("tests"))

        @tool("list_files", "Lists the files that a reviewer of your work sees.", {})
        async def list_files(_arguments):
            return told(*await self.run("files"))

        @tool("submit", "Hands your work in. It counts only if the tests pass.", {})
        async def submit(_arguments):
            # It pulls, tests and stamps, and the stamp is pushed: the work that counts says so itself.
            status, output = await self.run("submit")
            if status == 0:
                self.submitted = await self.last()
                output += "\nSubmitted."
            return told(status, output)

        return create_sdk_mcp_server("lab", "1.0.0", [run_tests, list_files, submit])


def told(status, output):
    """What the agent is told of an audit."""
    text = f"{output.rstrip()}\n(exit status {status})"
    return {"content": [{"type": "text", "text": text}], "is_error": status != 0}


async def work(session, audits, prompts):
    """Has the agent work through the prompts. Returns whether all turns went well."""
    options = ClaudeAgentOptions(
        cli_path=str(session.shim),
        cwd=audits.workspace,
        # The SDK's own limit of one line is 1 MiB, which a large tool result passes.
        max_buffer_size=64 * 1024 * 1024,
        mcp_servers={"lab": audits.server()},
        allowed_tools=["Bash", "Edit", "Write", *(f"mcp__lab__{name}" for name in TOOLS)],
        permission_mode="acceptEdits",
    )
    well = True
    async with ClaudeSDKClient(options=options) as client:
        for prompt in prompts:
            await client.query(prompt)
            async for message in client.receive_response():
                if isinstance(message, AssistantMessage):
                    for block in message.content:
                        if isinstance(block, TextBlock):
                            print(block.text)
                elif isinstance(message, ResultMessage):
                    well = well and not message.is_error
    return well


TOOLS = ["run_tests", "list_files", "submit"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--host", required=True, help="where the agent works: a name that ssh knows")
    parser.add_argument("--workspace", default=".", help="the directory that it works on")
    parser.add_argument("--cap", default="2", help="what it may spend, in dollars")
    audits = Path(__file__).resolve().parent / "labproxy.toml"
    parser.add_argument("--audits", default=str(audits), help="the file that says what the tools run")
    parser.add_argument("--upstream", help="another address of the provider")
    parser.add_argument("--credential", help="where the real key is: env:NAME or file:PATH")
    parser.add_argument("--receipt", help="where the receipt goes, as JSON")
    parser.add_argument("prompts", nargs="+", metavar="PROMPT", help="one turn each")
    arguments = parser.parse_args()
    arguments.workspace = str(Path(arguments.workspace).resolve())

    audits = Audits(arguments.workspace, str(Path(arguments.audits).resolve()))
    with Session(arguments) as session:
        well = asyncio.run(work(session, audits, arguments.prompts))
    if audits.submitted is None:
        print("nothing was submitted", file=sys.stderr)
        return 1
    # The tree with the stamp; without one when the same work had it already.
    tree = audits.submitted.get("tree", audits.submitted["generation"]["tree"])
    print(f"submitted: audit {audits.submitted['number']}, tree {tree}")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main())
