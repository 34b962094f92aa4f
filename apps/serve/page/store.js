// What the browser keeps: conversations and settings (localStorage), the key until the tab is closed (sessionStorage).
// Each tab writes only what it has changed, so that two tabs do not undo each other.
const CONVERSATIONS = "runnel.conversations", SETTINGS = "runnel.settings", KEY = "runnel.key";

function read(name, usual) {
  try {
    return JSON.parse(localStorage.getItem(name)) ?? usual;
  } catch {
    return usual;
  }
}

// Where the browser has no more room, the oldest conversations go.
function write(name, value) {
  for (;;) {
    try {
      localStorage.setItem(name, JSON.stringify(value));
      return true;
    } catch {
      if (!Array.isArray(value) || value.length < 2)
        return false;
      value = value.slice(0, -1);
    }
  }
}

function isMessage(m) {
  return m !== null && typeof m === "object" && ["user", "assistant"].includes(m.role) && typeof m.text === "string";
}

function isConversation(c) {
  return c !== null && typeof c === "object" && typeof c.id === "string" && Array.isArray(c.messages) &&
    c.messages.every(isMessage);
}

// Newest first.
export function loadConversations() {
  const list = read(CONVERSATIONS, []);
  return Array.isArray(list) ? list.filter(isConversation) : [];
}

export function newConversation() {
  const id = Array.from(crypto.getRandomValues(new Uint8Array(12)), (x) => x.toString(16).padStart(2, "0")).join("");
  return { id, changed: Date.now(), messages: [] };
}

// False: the browser does not keep it.
export function saveConversation(conversation) {
  const others = loadConversations().filter((c) => c.id !== conversation.id);
  conversation.changed = Date.now();
  return write(CONVERSATIONS, [conversation, ...others]);
}

export function dropConversation(id) {
  write(CONVERSATIONS, loadConversations().filter((c) => c.id !== id));
}

export function dropAll() {
  localStorage.removeItem(CONVERSATIONS);
}

export function titleOf(conversation) {
  const first = conversation.messages.find((m) => m.role === "user");
  return first ? first.text.trim().split("\n")[0].slice(0, 60) || "(empty)" : "New conversation";
}

export function loadSettings() {
  const settings = read(SETTINGS, {});
  return settings !== null && typeof settings === "object" ? settings : {};
}

export function saveSettings(settings) {
  write(SETTINGS, settings);
}

export function getKey() {
  return sessionStorage.getItem(KEY) ?? "";
}

export function setKey(key) {
  sessionStorage.setItem(KEY, key);
}
