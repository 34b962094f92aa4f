#!/usr/bin/env python3
"""The text for Prometheus, read by Prometheus' own Python client, against the struct.

    metrics_parse.py TEST_ACTORS_METRICS
"""
import math
import os
import subprocess
import sys

try:
    from prometheus_client.parser import text_string_to_metric_families
except ImportError:
    # Debian's package is seen by Debian's interpreter alone
    if sys.executable != "/usr/bin/python3" and os.path.exists("/usr/bin/python3"):
        os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])
    print("skipped: no prometheus_client (Debian: python3-prometheus-client)")
    sys.exit(77)


def samples_of(families):
    """{(name, labels): value}, and that no sample comes twice and each family is of one piece with help and type."""
    out = {}
    seen = set()
    for family in families:
        assert family.name not in seen, f"{family.name}: not of one piece"
        seen.add(family.name)
        assert family.documentation and family.type in ("counter", "gauge", "histogram"), family.name
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in out, f"{key} comes twice"
            out[key] = sample.value
    return out


def key(name, **labels):
    return f"runnel_{name}", tuple(sorted(labels.items()))


def check_histogram(samples, name, model, count, total, buckets):
    so_far = 0
    for edge, n in buckets:
        so_far += n
        found = [v for (what, labels), v in samples.items()
                 if what == f"runnel_{name}_bucket" and dict(labels)["model_name"] == model
                 and float(dict(labels)["le"]) == edge]
        assert found == [so_far], (name, edge, found, so_far)
    assert buckets[-1][0] == math.inf
    assert samples[key(f"{name}_count", model_name=model)] == count == so_far, name
    assert abs(samples[key(f"{name}_sum", model_name=model)] - total) < 1e-6, name
    edges = sum(what == f"runnel_{name}_bucket" and dict(labels)["model_name"] == model for what, labels in samples)
    assert edges == len(buckets), name


def main():
    text = subprocess.run([sys.argv[1], "--print"], capture_output=True, check=True).stdout.decode("utf-8")
    assert text.endswith("\n")
    body = "".join(line + "\n" for line in text.splitlines() if not line.startswith("# STRUCT"))
    struct = [line.split()[2:] for line in text.splitlines() if line.startswith("# STRUCT")]
    samples = samples_of(text_string_to_metric_families(body))
    strange = bytes.fromhex(struct.pop(0)[1]).decode()
    models = {dict(labels).get("model_name") for _, labels in samples}
    assert models == {None, "model", strange}, models
    compared = 0
    for kind, name, *rest in struct:
        if kind == "count":
            label, value = rest
            labels = {} if label == "-" else dict([label.replace('"', "").split("=")])
            assert samples[key(name, model_name="model", **labels)] == float(value), (name, value)
            assert samples[key(name, model_name=strange, **labels)] == 0, name
        else:
            count, total, *buckets = rest
            buckets = [(float(edge), int(n)) for edge, n in (b.split(":") for b in buckets)]
            check_histogram(samples, name, "model", int(count), float(total), buckets)
            check_histogram(samples, name, strange, 0, 0.0, [(edge, 0) for edge, _ in buckets])
        compared += 1
    assert compared >= 30 and samples[key("generation_tokens_total", model_name="model")] > 0
    assert samples[key("num_requests_running", model_name="model")] > 0
    usage = samples[key("kv_blocks_used", model_name="model")] / samples[key("kv_blocks", model_name="model")]
    assert abs(samples[key("kv_cache_usage_perc", model_name="model")] - usage) < 1e-6 and usage > 0
    print(f"{len(samples)} samples, {compared} compared with the struct")


main()
