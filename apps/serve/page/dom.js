// Elements of the page. Text comes in as text nodes alone: nothing here or elsewhere on the page reads markup.

// element("p", {class: "hint", onclick: f, "aria-label": "x"}, "text", node, ...)
export function element(name, properties, ...children) {
  return fill(document.createElement(name), properties, children);
}

export function drawing(name, properties, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), properties, children);
}

function fill(node, properties, children) {
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (key.startsWith("on"))
      node.addEventListener(key.slice(2), value);
    else if (value === true)
      node.setAttribute(key, "");
    else if (value !== false && value != null)
      node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

export function byId(id) {
  return document.getElementById(id);
}

// Copies a text and says so on the button for a moment.
export async function copyFrom(button, text) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Not allowed";
  }
  setTimeout(() => { button.textContent = before; }, 1500);
}
