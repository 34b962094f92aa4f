"""Parameters of OpenAI's as options of Model.stream. What the server refuses is refused: a parameter of the wrong type
is a TypeError, all else is InvalidError."""

import operator
import secrets

from ._runnel import InvalidError
from ._shared import Grammar

_RENAMED = {"max_completion_tokens": "max_tokens", "stop": "stops"}
_WITHOUT_EFFECT = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "verbosity",
                   "prompt_cache_retention", "prediction", "extra_headers", "extra_query"}
_MOST_TOKENS = 2**31 - 1
_MASK = 2**64 - 1
#: the smallest float that is not denormal: a top_p of 0 is the likeliest token alone
_SMALLEST = 2.0**-126
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
#: log-probabilities of other tokens that a request can be given at most
_MOST_TOP = 100
#: longer than what a request can be given
_LONGEST_S = 2**32 / 1000


def _mix(x):
    """The finaliser of MurmurHash3: neighbours become strangers."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        x = (x ^ x >> 33) * factor & _MASK
    return x ^ x >> 33


def seed_of(seed, choice):
    """The seed of a further choice, as the server has it."""
    return _mix(_mix(seed + 0x9E3779B97F4A7C15 & _MASK) + choice & _MASK) if choice else seed


def is_left_out(value):
    """None, and what stands for a parameter that is not given in OpenAI's package: NOT_GIVEN and omit."""
    return value is None or (type(value).__module__.partition(".")[0] == "openai"
                             and type(value).__name__ in ("NotGiven", "Omit"))


def _given(parameters):
    return {name: value for name, value in parameters.items() if not is_left_out(value)}


def given(parameters):
    """Without those that are left out, and with those of extra_body."""
    parameters = _given(parameters)
    body = parameters.pop("extra_body", {})
    if not isinstance(body, dict):
        raise _wrong_type("extra_body", "a dict", body)
    return {**parameters, **_given(body)}


def with_adapter(parameters, usual):
    """The same, with the adapter that the model's name stands for, unless they say another; "": none."""
    parameters = given(parameters)
    adapter = parameters.pop("adapter", usual)
    return parameters if adapter is None or adapter == "" else {**parameters, "adapter": adapter}


def _wrong_type(name, wanted, value):
    return TypeError(f"{name}: {wanted} is wanted, not {type(value)!r}")


def whole(name, value, least=None, most=None):
    """A whole number, within the server's bounds."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _wrong_type(name, "a whole number", value)
    number = operator.index(value)
    if least is not None and not least <= number <= most:
        raise InvalidError(f"{name} is {number}; allowed is {least} to {most}")
    return number


def flag(name, value):
    if not isinstance(value, bool):
        raise _wrong_type(name, "True or False", value)
    return value


def wants_usage(options):
    """Does stream_options ask for the usage?"""
    if is_left_out(options):
        return False
    if not isinstance(options, dict):
        raise _wrong_type("stream_options", "a dict", options)
    return flag("stream_options.include_usage", _given(options).get("include_usage", False))


def take_n(parameters, streams):
    """How many answers each prompt gets."""
    n, best_of = whole("n", parameters.pop("n", 1), 1, 128), parameters.pop("best_of", None)
    if best_of is not None and whole("best_of", best_of, 1, 128) != n:
        raise InvalidError("best_of: it must be n, since the best of more answers are not chosen here")
    if streams and best_of is not None and best_of > 1:
        raise InvalidError("best_of: which answers are the best is known at their end; stream must be False")
    return n


def _token_of(key):
    """The id that a name in logit_bias is, or spells."""
    if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 10:
        key = int(key)
    if isinstance(key, (bool, str)) or not hasattr(key, "__index__") or not 0 <= operator.index(key) <= _MOST_TOKENS:
        raise InvalidError(f"logit_bias: token ids are wanted, not {key!r}")
    return operator.index(key)


def _bias_of(key, value):
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        raise _wrong_type(f"logit_bias[{key!r}]", "a number", value)
    if not -100 <= value <= 100:
        raise InvalidError(f"logit_bias[{key!r}] is {value}; allowed is -100 to 100")
    return value


def _biases(logit_bias):
    if not isinstance(logit_bias, dict):
        raise _wrong_type("logit_bias", "a dict of token ids and biases", logit_bias)
    return {_token_of(key): _bias_of(key, value) for key, value in logit_bias.items()}


def _deadline_ms(timeout):
    """Of seconds, or of httpx' Timeout, whose time for reading counts. None: there is none."""
    seconds = getattr(timeout, "read", timeout)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise _wrong_type("timeout", "a number of seconds", timeout)
    if not seconds >= 0:
        raise InvalidError(f"timeout: seconds from 0 on are wanted, not {seconds!r}")
    return max(1, int(seconds * 1000)) if seconds < _LONGEST_S else None


def _stops(stop):
    """A text, or a list of them: the answer says which of these it was."""
    if isinstance(stop, str):
        return stop
    stops = None if isinstance(stop, (bytes, dict)) or not hasattr(stop, "__iter__") else list(stop)
    if stops is None or not all(isinstance(one, str) for one in stops):
        raise _wrong_type("stop", "a text or a list of texts", stop)
    return stops


def _options(parameters):
    """What chats and completions have in common, as options of Model.stream."""
    options = {"temperature": 1, "top_p": 1, "repetition_penalty": 1}
    for name, value in parameters.items():
        if name not in _WITHOUT_EFFECT:
            options[_RENAMED.get(name, name)] = value
    if "stops" in options:
        options["stops"] = _stops(options["stops"])
    options["seed"] = whole("seed", options.get("seed", secrets.randbits(64))) & _MASK
    options["top_p"] = options["top_p"] or _SMALLEST
    if "logit_bias" in options:
        options["biases"] = _biases(options.pop("logit_bias"))
    if "timeout" in options:
        options["deadline_ms"] = _deadline_ms(options.pop("timeout"))
    return options


def _text_of(content, where):
    """Parts of type text become one text."""
    if not isinstance(content, (list, tuple)):
        return content
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("text", "refusal"):
            raise InvalidError(f"{where}: only parts of type text are supported, not {kind!r}")
        texts.append(part.get(kind))
        if not isinstance(texts[-1], str):
            raise InvalidError(f"{where}: a part of type {kind} has a {kind} that is a str, not {type(texts[-1])!r}")
    return "\n".join(texts)


def _plain(value, where):
    """A dict, also of one of the package's objects or OpenAI's."""
    if hasattr(value, "model_dump"):
        value = value.model_dump(exclude_none=True)
    if not isinstance(value, dict):
        raise InvalidError(f"{where}: a dict is wanted, not {type(value)!r}")
    return value


def _call(call, where):
    call = _plain(call, where)
    function = _plain(call.get("function"), f"{where}.function")
    if not isinstance(function.get("name"), str):
        raise InvalidError(f"{where}.function.name: a str is wanted, not {type(function.get('name'))!r}")
    return {**call, "function": function}


def _message(message, where):
    """A message as the template gets it; that of an answer may be given as it is."""
    message = {name: value for name, value in _plain(message, where).items() if value is not None}
    role = message.get("role")
    if role not in _ROLES:
        raise InvalidError(f"{where}.role: one of {', '.join(_ROLES)} is wanted, not {role!r}")
    message["content"] = _text_of(message.get("content"), f"{where}.content")
    if not isinstance(message["content"], str) and (message["content"] is not None or role != "assistant"):
        raise InvalidError(f"{where}.content: a str or a list of parts is wanted, not {type(message['content'])!r}")
    if role == "function":  # the form before tools
        if not isinstance(message.get("name"), str):
            raise InvalidError(f"{where}.name: one of the role function has the function's name")
        message["role"] = "tool"
    if "function_call" in message:
        message["tool_calls"] = [{"id": "call_0", "type": "function", "function": message.pop("function_call")}]
    calls = message.pop("tool_calls", [])
    if not isinstance(calls, (list, tuple)):
        raise InvalidError(f"{where}.tool_calls: a list is wanted, not {type(calls)!r}")
    if calls:
        message["tool_calls"] = [_call(call, f"{where}.tool_calls[{i}]") for i, call in enumerate(calls)]
    return message


def _messages(messages):
    if not isinstance(messages, (list, tuple)):
        raise _wrong_type("messages", "a list of messages", messages)
    if not messages:
        raise InvalidError("messages is empty: at least one is needed")
    return [_message(message, f"messages[{i}]") for i, message in enumerate(messages)]


def _grammar(form, tools, choice):
    if form is not None and not isinstance(form, dict):
        raise _wrong_type("response_format", "a dict", form)
    kind = (form or {}).get("type", "text")
    of = form.get("json_schema") if kind == "json_schema" else form
    if kind == "json_schema" and not isinstance(of, dict):
        raise _wrong_type("response_format: json_schema", "a dict", of)
    if kind in ("json_schema", "json_object") and of.get("schema") is not None:
        return Grammar.json_schema(of["schema"], allow_unenforced=not of.get("strict"))
    if kind == "json_object":
        return Grammar.json_object()
    if kind != "text":
        raise InvalidError(f"response_format: text, json_object and json_schema with a schema are known, not {kind!r}")
    if choice is None:
        return None
    return Grammar("none", allow_unenforced=not any(tool["function"].get("strict") for tool in tools))


def _function(function, where):
    """What a tool says of its function."""
    function = _plain(function, where)
    if not isinstance(function.get("name"), str):
        raise InvalidError(f"{where}.name: a str is wanted, not {type(function.get('name'))!r}")
    if function.get("strict") is not None:
        flag(f"{where}.strict", function["strict"])
    return function


def _tool(tool, where):
    tool = _plain(tool, where)
    if tool.get("type") != "function":
        raise InvalidError(f"{where}.type: 'function' is wanted, not {tool.get('type')!r}")
    return {**tool, "function": _function(tool.get("function"), f"{where}.function")}


def _each(name, make, values):
    if not isinstance(values, (list, tuple)):
        raise _wrong_type(name, "a list", values)
    return [make(value, f"{name}[{i}]") for i, value in enumerate(values)]


def _functions(options):
    """`functions` and `function_call`, the form before tools, as tools of which one is called at most. True: the answer
    has that form, too."""
    functions, call = options.pop("functions", None), options.pop("function_call", None)
    if call is not None:
        if isinstance(call, str) and call not in ("auto", "none"):
            raise InvalidError("function_call must be 'auto', 'none' or name a function")
        options["tool_choice"] = call if isinstance(call, str) else {"function": call}
    if functions is None:
        return False
    options["tools"] = [{"type": "function", "function": function}
                        for function in _each("functions", _function, functions)]
    options["parallel_tool_calls"] = False
    return True


def chat_options(messages, parameters):
    options = _options(parameters)
    for name in ("max_tokens", "max_completion_tokens"):  # where both are given, the second counts
        if parameters.get(name, -1) != -1:  # -1 as an option of Model.stream: no limit
            options["max_tokens"] = whole(name, parameters[name], 1, _MOST_TOKENS)
    options["in_old_form"] = _functions(options)
    tools, choice = _each("tools", _tool, options.pop("tools", [])), options.pop("tool_choice", None)
    if isinstance(choice, dict):
        choice = choice.get("function")
        choice = choice.get("name") if isinstance(choice, dict) else choice
        if not isinstance(choice, str):
            raise InvalidError("tool_choice must be 'none', 'auto', 'required' or name a function")
    if choice == "none" or not tools:
        if choice not in (None, "auto", "none"):
            raise InvalidError("tool_choice asks for a call, and there are no tools")
        tools = choice = None
    options.update(messages=_messages(messages), tools=tools, tool_choice=choice,
                   single_call=not flag("parallel_tool_calls", options.pop("parallel_tool_calls", True)))
    options.setdefault("grammar", _grammar(options.pop("response_format", None), tools, choice))
    variables = options.pop("chat_template_kwargs", {})
    if not isinstance(variables, dict):
        raise _wrong_type("chat_template_kwargs", "a dict", variables)
    variables = dict(variables)
    if "reasoning_effort" in options:
        variables.setdefault("reasoning_effort", options.pop("reasoning_effort"))
    if variables:
        options.setdefault("variables", variables)
    n_top = whole("top_logprobs", options.pop("top_logprobs", 0), 0, _MOST_TOP)
    if flag("logprobs", options.pop("logprobs", False)):
        options.update(want_logprobs=True, n_top=n_top)
    elif n_top > 0:
        raise InvalidError("top_logprobs needs logprobs to be true")
    return options


def _is_row(value):
    """A text or a list, also an array that is no number by itself."""
    try:
        len(value)
    except TypeError:
        return False
    return hasattr(value, "__getitem__")


def _prompt(name, one):
    if isinstance(one, str):
        return {"prompt": one}
    if isinstance(one, (bytes, dict)) or not _is_row(one):
        raise _wrong_type(name, "a text, a list of token ids or a list of these", one)
    return {"tokens": one}


def prompts(name, input):
    """A text, several, ids or arrays of ids: options of each."""
    _prompt(name, input)
    if len(input) == 0 and not isinstance(input, str):
        raise InvalidError(f"{name} is empty: at least one is needed")
    if isinstance(input, str) or not _is_row(input[0]):
        input = [input]
    return [_prompt(name, one) for one in input]


def embedding_options(parameters):
    """What embeddings have besides their inputs, as options of Model.embed, and the form of their numbers."""
    options = {name: value for name, value in parameters.items() if name not in _WITHOUT_EFFECT}
    form = options.pop("encoding_format", "float")
    if form not in ("float", "base64"):
        raise InvalidError(f"encoding_format: float or base64 is wanted, not {form!r}")
    if "dimensions" in options:
        options["dimensions"] = whole("dimensions", options["dimensions"], 1, _MOST_TOKENS)
    if "normalize" in options:  # the server's name
        options["raw"] = not flag("normalize", options.pop("normalize"))
    if "timeout" in options:
        options["deadline_ms"] = _deadline_ms(options.pop("timeout"))
    return options, form


def completion_options(parameters):
    options = {"max_tokens": 16, **_options(parameters)}
    if options["max_tokens"] != -1 or isinstance(options["max_tokens"], bool):  # -1: an option of Model.stream
        options["max_tokens"] = whole("max_tokens", options["max_tokens"], 0, _MOST_TOKENS)
    options.setdefault("grammar", _grammar(options.pop("response_format", None), (), None))
    if "logprobs" in options:
        n_top = whole("logprobs", options.pop("logprobs"), 0, _MOST_TOP)
        options.update(want_logprobs=True, n_top=n_top, want_logits=bool(options.get("echo")))
    return options


def needed(parameters, name):
    """Takes the parameter out of these."""
    if name not in parameters:
        raise TypeError(f"{name} is missing")
    return parameters.pop(name)
