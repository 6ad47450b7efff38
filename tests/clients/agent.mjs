// What the Claude Agent SDK for TypeScript does with a CLI that runs elsewhere; prints one JSON object.
//
//   node agent.mjs CLIENTS SHIM PROMPT
//
// CLIENTS is the folder whose node_modules has the SDK.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, shim, prompt] = process.argv.slice(2);
const found = createRequire(`${folder}/x.js`).resolve("@anthropic-ai/claude-agent-sdk");
const { query } = await import(pathToFileURL(found).href);

const told = { kinds: [] };
const options = {
  pathToClaudeCodeExecutable: shim,
  allowedTools: ["Bash", "Write"],
  permissionMode: "acceptEdits",
};
for await (const message of query({ prompt, options })) {
  told.kinds.push(message.type);
  if (message.type === "system" && message.subtype === "init") {
    told.cwd = message.cwd;
    told.version = message.claude_code_version;
  }
  if (message.type === "result") {
    told.result = message.result;
    told.is_error = message.is_error;
  }
}
console.log(JSON.stringify(told));
