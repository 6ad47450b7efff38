// What the Anthropic TypeScript SDK does through labproxy; prints one JSON object.
//
//   node typescript.mjs CLIENTS
//
// CLIENTS is the folder whose node_modules has the SDK.
import { createRequire } from "node:module";

const { default: Anthropic } = createRequire(`${process.argv[2]}/x.js`)("@anthropic-ai/sdk");

const model = "claude-sonnet-5-5";
const ask = {
  model,
  max_tokens: 1000,
  messages: [{ role: "user", content: "Say hello. [[scenario: think]]" }],
};

const client = new Anthropic();
const plain = await client.messages.create(ask);
const stream = client.messages.stream(ask);
let streamed = "";
stream.on("text", (piece) => {
  streamed += piece;
});
const final = await stream.finalMessage();
const events = [];
for await (const event of await client.messages.create({ ...ask, stream: true })) {
  events.push(event.type);
}
const counted = await client.messages.countTokens({ model, messages: ask.messages });
const models = [];
for await (const one of client.models.list()) {
  models.push(one.id);
}

let refusal;
try {
  await client.messages.create({ ...ask, model: "claude-dream-9" });
} catch (error) {
  refusal = { status: error.status, said: error.message };
}

console.log(
  JSON.stringify({
    plain: plain.content.at(-1).text,
    stop_reason: plain.stop_reason,
    output_tokens: plain.usage.output_tokens,
    streamed,
    streamed_output_tokens: final.usage.output_tokens,
    first_event: events.at(0),
    last_event: events.at(-1),
    counted: counted.input_tokens,
    models,
    model: (await client.models.retrieve(model)).id,
    refusal,
  }),
);
