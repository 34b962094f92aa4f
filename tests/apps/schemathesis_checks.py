"""What test_serve_schemathesis.py asks of answers beside schemathesis's own checks. It is loaded by schemathesis."""
import json
import re

import schemathesis

# Why a body that a schema allows may be refused with 400: what no schema says.
SAID = re.compile("|".join((
    r"^((response_format|text\.format|output_config\.format)[a-z_.]*\.schema|response_format|format|guided_\w+|grammar|"
    r"json_schema|structured_outputs\.\w+|tools|functions): (?!type is missing|the types are|strict must)",
    r"has said already what the answer may be",  # that there is one, and that it can be parsed
    r"there is no sampler|both draw the token", r"is not in the vocabulary of|the vocabulary has",
    r"way to call tools$",  # of the model
    r"^tool_choice(:| asks|[.\w]* names none)", r"needs logprobs", r"echo together with", r"best_of",
    r"choices are asked for",  # of two
    r"half the context$", r"never fit", r"tokens, \d+ fit$",  # the length in tokens
    r"^prompt is too long: ", r"available context size",
    r"\d bytes",  # a length in bytes, not in characters
    r"must be above 0$", r"^stop has \d+ strings",  # those of llama.cpp's that are empty do not count
    r"must be a string or an array of token ids",
    r"more than the model's", r"at most \d+ run at once$",  # of the model and of the server
    r"^function_call|^messages\[\d+\]\.name is missing$",  # a function of the request; answers of functions have a name
    r"prompt must be a text where there is a suffix", r"the (prompt|text) is empty|has no message$",  # nothing to say
    r"stays$",  # /models/unload
    r"^lora: there is no adapter|^lora and adapter|^scales are set at the start",  # of the server
    r"^rank_fields is more",  # of Cohere's
    r"suffix is not supported|does not go with a (raw|suffix)|templates of clients",  # of Ollama's
    r"does not go with add_generation|no text that could go on|does not write the last",  # continue_final_message
)))
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens", "n_predict")


@schemathesis.hook
def before_call(_, case, __):
    """An answer that goes on behind a full context ends by its length alone: it gets one. A deadline may pass, and 504
    is then no fault of the server's: there is none."""
    body = case.body
    if isinstance(body, dict) and type(body.get("deadline_ms")) is int and 0 < body["deadline_ms"] < 1 << 32:
        case.body = body = {**body, "deadline_ms": 0}
    if case.meta is not None and case.meta.generation.mode.is_positive and isinstance(body, dict):
        if isinstance(body.get("context_keep"), int):
            case.body = {**body, **dict.fromkeys(LIMITS, 4)}


@schemathesis.check
def refused_for_a_reason(_, response, case):
    """In place of positive_data_acceptance, which knows no reasons."""
    if case.meta is None or not case.meta.generation.mode.is_positive or response.status_code != 400:
        return
    error = json.loads(response.content)["error"]
    message = error if isinstance(error, str) else error["message"]
    if not SAID.search(message):
        raise AssertionError(f"what the schema allows was refused: {message}")
