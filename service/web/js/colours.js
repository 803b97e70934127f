// The colours of the style sheet for what is drawn on a canvas: as the present theme has them.

let probe = null;
let known = new Map();

/** The value of a custom property as a colour that a canvas understands. */
export function colour(name) {
  if (!known.has(name)) {
    if (!probe) {
      probe = document.createElement("span");
      probe.hidden = true;
      document.body.append(probe);
    }
    probe.style.color = `var(${name})`;
    known.set(name, getComputedStyle(probe).color);
  }
  return known.get(name);
}

/** Calls `act` whenever the theme changes. */
export function onTheme(act) {
  listeners.add(act);
}

const listeners = new Set();

function forget() {
  known = new Map();
  for (const act of listeners) act();
}

window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", forget);
new MutationObserver(forget).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
