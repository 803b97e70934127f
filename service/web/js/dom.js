// Elements without a framework.

/** An element. `props` are attributes, `on…` listeners, `class`, `dataset`; false, null and undefined are left out. */
export function h(tag, props, ...children) {
  const element = document.createElement(tag);
  apply(element, props ?? {});
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

/** The same in SVG's namespace. */
export function s(tag, props, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value != null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

function apply(element, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2).toLowerCase(), value);
    else if (name === "class") element.className = value;
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
}

/** Puts new children in place of the old ones. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(Infinity).filter((child) => child != null && child !== false));
  return element;
}

/** A button; `name` is what screen readers say where the label is only a sign. */
export function button(label, onClick, props = {}) {
  return h(
    "button",
    { type: "button", onClick, "aria-label": props.name, title: props.name, ...props, name: null },
    label,
  );
}

let counter = 0;

/** An id that no other element has. */
export function uniqueId(stem) {
  counter += 1;
  return `${stem}-${counter}`;
}

/** A field with its label. */
export function field(label, control, help) {
  const id = control.id || (control.id = uniqueId("field"));
  const about = help ? h("small", { id: `${id}-help` }, help) : null;
  if (about) control.setAttribute("aria-describedby", about.id);
  return h("div", { class: "field" }, h("label", { for: id }, label), control, about);
}

/** Calls `act` at most once a frame, with the newest arguments. */
export function everyFrame(act) {
  let pending = null;
  return (...values) => {
    if (pending === null)
      requestAnimationFrame(() => {
        const now = pending;
        pending = null;
        act(...now);
      });
    pending = values;
  };
}

/** Copies text and tells so. */
export async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    announce(`Copied ${what}.`);
  } catch {
    announce(`The browser does not let this page copy. Select ${what} and copy it by hand.`);
  }
}

/** Says something in the status line; screen readers speak it. */
export function announce(text) {
  const line = document.getElementById("announcement");
  if (!line) return;
  line.textContent = text;
  clearTimeout(silence);
  silence = setTimeout(() => {
    line.textContent = "";
  }, SAID_FOR_MS);
}

const SAID_FOR_MS = 10_000;
let silence = 0;
