// The live view: /metrics, read once a second while it is looked at, and what has changed in between as lines.
import { get } from "./api.js";
import { byId } from "./dom.js";
import { Plot } from "./plot.js";

const EVERY_MS = 1000, ROOM = 120;

// ---- Prometheus' text ----

// {name: [{labels, value}, ...]}
export function parse(text) {
  const all = {};
  for (const line of text.split("\n")) {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!match)
      continue;
    const labels = {};
    for (const [, key, value] of (match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g))
      labels[key] = value;
    (all[match[1]] ??= []).push({ labels, value: Number(match[3]) });
  }
  return all;
}

// Of all models together, of those rows that have the label's value.
function sum(all, name, label, value) {
  return (all["runnel_" + name] ?? []).filter((row) => !label || row.labels[label] === value)
    .reduce((total, row) => total + row.value, 0);
}

// The q-quantile of what a histogram has counted between two readings, within a bucket by a line; null: nothing.
function quantile(before, now, name, q) {
  const count = new Map();
  for (const [all, sign] of [[now, 1], [before, -1]])
    for (const { labels, value } of all["runnel_" + name + "_bucket"] ?? []) {
      const edge = labels.le === "+Inf" ? Infinity : Number(labels.le);
      count.set(edge, (count.get(edge) ?? 0) + sign * value);
    }
  const edges = [...count.keys()].sort((a, b) => a - b), total = count.get(Infinity) ?? 0;
  let below = 0, floor = 0;
  for (const edge of edges) {
    if (total > 0 && count.get(edge) >= q * total)
      return edge === Infinity ? floor : floor + (edge - floor) * (q * total - below) / (count.get(edge) - below);
    below = count.get(edge);
    floor = edge;
  }
  return null;
}

// ---- The plots ----

const plots = [
  { plot: new Plot("Streams", "", ["running", "waiting"], 4),
    of: ({ now }) => [sum(now, "num_requests_running"), sum(now, "num_requests_waiting")] },
  { plot: new Plot("Speed", "tokens/s", ["answers", "prompts"], 10),
    of: ({ rate }) => [rate("generation_tokens_total"), rate("prompt_tokens_total")] },
  { plot: new Plot("Prompts from the cache", "% of their tokens", ["hot", "warm", "cold", "shared"], 100),
    of: ({ rate }) => {
      const tiers = ["warm", "cold", "shared"].map((tier) => rate("cache_tier_hits_total", "tier", tier));
      const asked = rate("prefix_cache_queries_total"), hits = rate("prefix_cache_hits_total");
      const hot = Math.max(0, hits - tiers.reduce((a, b) => a + b, 0));
      return [hot, ...tiers].map((x) => (asked > 0 ? (100 * x) / asked : null));
    } },
  { plot: new Plot("Accepted drafts", "% of guesses", ["accepted"], 100),
    of: ({ rate }) => {
      const guessed = rate("spec_decode_num_draft_tokens_total");
      return [guessed > 0 ? (100 * rate("spec_decode_num_accepted_tokens_total")) / guessed : null];
    } },
  { plot: new Plot("Step", "ms", ["median", "99 of 100"]),
    of: ({ before, now }) => [0.5, 0.99].map((q) => ms(quantile(before, now, "step_seconds", q))) },
  { plot: new Plot("Between tokens", "ms", ["median", "99 of 100"]),
    of: ({ before, now }) => [0.5, 0.99].map((q) => ms(quantile(before, now, "inter_token_latency_seconds", q))) },
  { plot: new Plot("Key-value cache in use", "%", ["used"], 100),
    of: ({ now }) => [100 * sum(now, "kv_blocks_used") / Math.max(1, sum(now, "kv_blocks"))] },
];

function ms(seconds) {
  return seconds === null ? null : seconds * 1000;
}

const rows = plots.map(() => []);
let before = null, beforeMs = 0, timer = 0;

function take(now) {
  const at = performance.now(), seconds = (at - beforeMs) / 1000;
  if (before !== null) {
    const rate = (name, label, value) => Math.max(0, sum(now, name, label, value) - sum(before, name, label, value)) / seconds;
    plots.forEach(({ plot, of }, i) => {
      rows[i].push(of({ before, now, rate }));
      if (rows[i].length > ROOM)
        rows[i].shift();
      plot.draw(rows[i], ROOM);
    });
  }
  before = now;
  beforeMs = at;
}

async function tick() {
  let pause = EVERY_MS;
  if (document.visibilityState === "visible") {
    try {
      const now = parse(await (await get("metrics")).text());
      take(now);
      const tokens = sum(now, "generation_tokens_total"), requests = sum(now, "requests_total");
      byId("live-status").textContent = `${tokens} tokens in ${requests} requests since the start.`;
    } catch (error) {
      byId("live-status").textContent = "No figures: " + error.message;
      before = null;
      pause = 5 * EVERY_MS;
    }
  }
  if (timer !== 0)
    timer = setTimeout(tick, pause);
}

export function show(visible) {
  byId("live").hidden = !visible;
  if (visible && byId("plots").childElementCount === 0) {
    byId("plots").append(...plots.map(({ plot }) => plot.node));
    plots.forEach(({ plot }, i) => plot.draw(rows[i], ROOM));
  }
  clearTimeout(timer);
  timer = visible ? setTimeout(tick, 0) : 0;
}
