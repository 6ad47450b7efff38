"""What the Anthropic Python SDK does through labproxy; prints one JSON object.

python.py call | refuse | broken
"""

import json
import sys

import anthropic

MODEL = "claude-sonnet-5-5"
ASK = {
    "model": MODEL,
    "max_tokens": 1000,
    "messages": [{"role": "user", "content": "Say hello. [[scenario: think]]"}],
}


def calls(client):
    """Every way of asking that costs, and the two that do not."""
    plain = client.messages.create(**ASK)
    with client.messages.stream(**ASK) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    raw = [event.type for event in client.messages.create(stream=True, **ASK)]
    counted = client.messages.count_tokens(model=MODEL, messages=ASK["messages"])
    return {
        "plain": plain.content[-1].text,
        "stop_reason": plain.stop_reason,
        "output_tokens": plain.usage.output_tokens,
        "streamed": text,
        "streamed_output_tokens": final.usage.output_tokens,
        "first_event": raw[0],
        "last_event": raw[-1],
        "counted": counted.input_tokens,
        "models": [model.id for model in client.models.list()],
        "model": client.models.retrieve(MODEL).id,
    }


def attempt(call):
    """The error that a call ends in, as the SDK's user sees it."""
    try:
        call()
    except anthropic.APIStatusError as error:
        return {"status": error.status_code, "type": type(error).__name__, "said": error.message}
    return {"status": 200}


def refused(client):
    """One call for each kind of refusal."""
    search = [{"type": "web_search_20250305", "name": "web_search"}]
    batch = [{"custom_id": "one", "params": ASK}]
    return {
        "feature": attempt(lambda: client.messages.create(tools=search, **ASK)),
        "model": attempt(lambda: client.messages.create(**{**ASK, "model": "claude-dream-9"})),
        "fast": attempt(lambda: client.messages.create(extra_body={"speed": "fast"}, **ASK)),
        "endpoint": attempt(lambda: client.messages.batches.create(requests=batch)),
        "cap": attempt(lambda: client.messages.create(**{**ASK, "max_tokens": 20000})),
    }


def broken(client):
    """A stream that breaks off; the SDK raises or stops."""
    seen = 0
    ask = {**ASK, "messages": [{"role": "user", "content": "[[scenario: cut]]"}]}
    try:
        for _ in client.messages.create(stream=True, **ask):
            seen += 1
    except Exception as error:
        return {"events": seen, "error": type(error).__name__}
    return {"events": seen, "error": None}


WHAT = {"call": calls, "refuse": refused, "broken": broken}
print(json.dumps(WHAT[sys.argv[1]](anthropic.Anthropic())))
