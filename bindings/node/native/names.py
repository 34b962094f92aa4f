#!/usr/bin/env python3
"""Where each function of include/ is reached from JavaScript, one a line: its name, a tab, its name here; "-" where a
binding has no use for it, with the reason. Members of structs have their own names in camelCase but for those below,
and counts of other members, which JavaScript's values know themselves. Constants stand in `constants` without RUNNEL_.

    names.py            the list
    names.py --check INCLUDE_FOLDER    also: every function of the headers is in it, and nothing else
"""
import pathlib
import re
import sys

ON_LOOP = "- (the binding delivers events on Node's loop)"
NAMES = {
    "version": "version",
    "engine_new": "new Engine, Engine.open", "engine_free": "Engine.close", "engine_drain": "Engine.drain",
    "engine_fd": ON_LOOP, "engine_dispatch": ON_LOOP, "engine_wait": ON_LOOP, "engine_take": ON_LOOP,
    "uv_attach": "new Engine({transport: 'uv'})", "uv_detach": "Engine.close",
    "model_load": "Engine.loadModel", "model_wait": "Engine.loadModel", "model_free": "Model.close",
    "model_cancel_load": "loadModel({signal})", "model_get_info": "Model.info",
    "model_adapter": "Model.adapters",
    "tokenize": "Model.tokenize", "detokenize": "Model.detokenize", "token_text": "Model.tokenText",
    "apply_template": "Model.applyTemplate",
    "render_template": "renderTemplate", "tokenize_chat": "Model.tokenizeChat", "model_template": "Model.templates",
    "inspect_template": "inspectTemplate", "event_name": "nameOf('event')",
    "model_sampling": "Model.recommendedSampling", "model_samplers": "Model.recommendedSampling",
    "grammar_check": "Model.checkGrammar",
    "sampling_check": "Model.checkSampling", "generate": "Model.stream, Model.generate", "embed": "Model.embed",
    "score": "Model.score", "model_scores": "Model.scores", "model_label": "Model.scores",
    "stream_cancel": "Stream.cancel", "stream_choose": "stream({choose})", "stream_pause": "stream({highWater})",
    "stream_resume": "stream({highWater})", "stream_read": "Stream.next", "stream_next": "Stream.next",
    "session_new": "Model.session", "session_free": "Session.close", "session_fork": "Session.fork",
    "session_export": "Session.export", "session_import": "Model.importSession", "session_read_note": "readSessionNote",
    "engine_get_stats": "Engine.stats", "engine_streams": "Engine.streams", "phase_name": "nameOf('phase')",
    "engine_metrics": "Engine.metrics", "engine_prometheus": "Engine.prometheus", "engine_expert_use": "Engine.experts",
    "engine_measure": "Engine.measure", "engine_device": "Engine.device",
    "file_open": "ModelFile.open", "file_close": "ModelFile.close", "file_get_info": "ModelFile.info",
    "file_metadata": "ModelFile.metadata", "file_metadata_text": "ModelFile.metadata", "file_tensor": "ModelFile.tensor",
    "file_set_architectures": "ModelFile.setArchitectures", "file_kv_bytes_per_token": "ModelFile.kvBytesPerToken",
    "file_template": "ModelFile.templates", "file_sampling": "ModelFile.recommendedSampling",
    "file_samplers": "ModelFile.recommendedSampling", "file_plan": "ModelFile.plan", "architecture": "architectures",
    "cache_ls": "cache.ls", "cache_inspect": "cache.inspect", "cache_verify": "cache.verify", "cache_purge": "cache.purge",
    "eagle_train": "Engine.trainEagle", "training_wait": "Engine.trainEagle", "training_cancel": "trainEagle({signal})",
    "training_free": "Engine.trainEagle",
    "candidates_draw": "candidates.draw", "tokenize_infill": "Model.tokenizeInfill",
    "status_name": "error.code, nameOf('status')", "status_text": "nameOf('statusText')", "rest_name": "nameOf('rest')",
    "rest_text": "nameOf('restText')",
}


PIECES = "- (the stream's pieces)"
INSIDE = "- (inside)"
MEMBERS = {
    "engine_options.delivery": "- (`transport`)", "engine_options.allocator": "- (the library's own)",
    "engine_options.log_user": INSIDE, "engine_options.trace_user": INSIDE,
    "model_options.on_load": "onProgress", "model_options.load_user": INSIDE,
    "adapter.name": "- (`adapters: { name: path }`)", "adapter.path": "- (`adapters: { name: path }`)",
    "adapter.scale": "- (`adapters: { name: { path, scale } }`)",
    "request.chat": "- (`messages` and the options of `runnel_chat`)",
    "request.sampling": "- (the options of `runnel_sampling`)",
    "request.on_event": PIECES, "request.user": INSIDE,
    "sampling.samplers": "- (the options of `runnel_samplers`)", "samplers.choose_user": INSIDE,
    "logit_bias.token": "- (`biases: [[token, bias]]`)", "logit_bias.bias": "- (`biases: [[token, bias]]`)",
    "message.role": "- (`messages: [{ role }]`)", "message.content": "- (`messages: [{ content }]`)",
    "message.more": "- (the other members of a message)",
    "embed_request.on_event": PIECES, "embed_request.user": INSIDE,
    "score_request.on_event": PIECES, "score_request.user": INSIDE,
    "session_file.path": "- (the argument `path`)", "session_file.on_event": PIECES, "session_file.user": INSIDE,
}


def functions(folder):
    text = "\n".join(path.read_text() for path in sorted(folder.glob("runnel*.h")))
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    return set(re.findall(r"RUNNEL_API [^;]*?\brunnel_(\w+)\(", text))


def main():
    for name, here in (NAMES | MEMBERS).items():
        print("runnel_%s\t%s" % (name, here))
    if sys.argv[1:2] != ["--check"]:
        return
    found = {name for name in functions(pathlib.Path(sys.argv[2])) if not name.endswith(("_init", "_default"))}
    for name in sorted(found ^ NAMES.keys()):
        print("runnel_%s: %s" % (name, "has no name here" if name in found else "is no function of include/"),
              file=sys.stderr)
    sys.exit(found != NAMES.keys())


main()
