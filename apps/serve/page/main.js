// The page: what belongs to no part of it alone.
import { models, Refusal } from "./api.js";
import * as chat from "./chat.js";
import { byId, element } from "./dom.js";
import * as live from "./live.js";
import { dropAll, dropConversation, getKey, loadConversations, loadSettings, saveSettings, setKey, titleOf } from "./store.js";

const NUMBERS = [ // field of a request, its label, least, most, step
  ["temperature", "Temperature", 0, 2, 0.1],
  ["top_p", "Top p", 0, 1, 0.05],
  ["top_k", "Top k", 0, 1000, 1],
  ["min_p", "Min p", 0, 1, 0.01],
  ["repetition_penalty", "Repetition penalty", 0.1, 10, 0.05],
  ["max_tokens", "Most tokens", 1, 1000000, 1],
  ["seed", "Seed", 0, 2 ** 53 - 1, 1],
];
const settings = loadSettings();

// ---- Conversations ----

function drawConversations() {
  const now = chat.shown();
  byId("conversations").replaceChildren(...loadConversations().map((conversation) => {
    const title = titleOf(conversation);
    return element("li", {},
      element("button", { type: "button", class: "title", "aria-current": conversation.id === now.id ? "true" : null,
        onclick: () => open(conversation) }, title),
      element("button", { type: "button", class: "plain", "aria-label": "Delete: " + title,
        onclick: () => drop(conversation) }, "×"));
  }));
}

// The one that is shown may be written to: it is not read again from what is kept.
function open(conversation) {
  if (conversation === null || conversation.id !== chat.shown().id)
    chat.open(conversation);
  drawConversations();
  showSide(false);
  showView("chat");
  byId("input").focus();
}

function drop(conversation) {
  dropConversation(conversation.id);
  chat.forget(conversation.id);
  if (conversation.id === chat.shown().id)
    chat.open(null);
  drawConversations();
}

function showSide(visible) {
  document.body.classList.toggle("side", visible);
  byId("menu").setAttribute("aria-expanded", String(visible));
}

function showView(name) {
  byId("chat").hidden = name !== "chat";
  live.show(name === "live");
  byId("show-chat").setAttribute("aria-pressed", String(name === "chat"));
  byId("show-live").setAttribute("aria-pressed", String(name === "live"));
}

// ---- Settings ----

function keepSetting(name, value) {
  if (value === "")
    delete settings[name];
  else
    settings[name] = value;
  saveSettings(settings);
}

function drawSettings() {
  byId("system").value = typeof settings.system === "string" ? settings.system : "";
  byId("system").addEventListener("input", () => keepSetting("system", byId("system").value));
  for (const [name, label, min, max, step] of NUMBERS) {
    const input = element("input", { type: "number", id: "set-" + name, min, max, step, inputmode: "decimal" });
    input.value = settings[name] ?? "";
    input.addEventListener("input", () => keepSetting(name, input.validity.badInput || input.value === "" ? "" : Number(input.value)));
    byId("numbers").append(element("label", {}, label, " ", input));
  }
  byId("key").value = getKey();
  byId("key").addEventListener("change", () => {
    setKey(byId("key").value.trim());
    loadModels();
  });
}

// What each request has beside its messages.
function body() {
  const fields = {};
  for (const [name] of NUMBERS)
    if (typeof settings[name] === "number")
      fields[name] = settings[name];
  if (byId("model").value)
    fields.model = byId("model").value;
  return { ...fields, system: typeof settings.system === "string" ? settings.system : "" };
}

function askKey() {
  byId("key-row").hidden = false;
  if (!byId("settings").open)
    byId("settings").showModal();
  byId("key").focus();
}

async function loadModels() {
  try {
    const names = await models(), chosen = byId("model").value || settings.model;
    byId("model").replaceChildren(...names.map((name) => element("option", { value: name, selected: name === chosen }, name)));
    byId("status").textContent = "";
  } catch (error) {
    if (error instanceof Refusal && error.status === 401)
      askKey();
    else
      byId("status").textContent = "The server cannot be reached: " + error.message;
  }
}

// ---- The whole ----

function start() {
  chat.start({ body, changed: drawConversations, refused: (error) => error.status === 401 && askKey() });
  drawSettings();
  chat.open(loadConversations()[0] ?? null);
  drawConversations();
  byId("new").addEventListener("click", () => open(null));
  byId("menu").addEventListener("click", () => showSide(!document.body.classList.contains("side")));
  byId("show-chat").addEventListener("click", () => showView("chat"));
  byId("show-live").addEventListener("click", () => showView("live"));
  byId("show-settings").addEventListener("click", () => byId("settings").showModal());
  byId("model").addEventListener("change", () => keepSetting("model", byId("model").value));
  byId("forget").addEventListener("click", () => {
    if (!confirm("Delete all conversations of this browser?"))
      return;
    dropAll();
    chat.forget(null);
    chat.open(null);
    drawConversations();
  });
  loadModels();
  byId("input").focus();
}

start();
