// The edge between two panes: dragged, or moved with the arrow keys.

import { h } from "./dom.js";

const STEP = 0.08;
const LEAST = 0.15;

/** An edge at the left of `pane` that shares the room of `pane` and the one before it anew. */
export function splitter(pane) {
  const edge = h("div", {
    class: "splitter",
    role: "separator",
    tabindex: 0,
    "aria-orientation": "vertical",
    "aria-label": "Edge to the pane before",
    "aria-valuenow": 50,
    "aria-valuemin": 100 * LEAST,
    "aria-valuemax": 100 * (1 - LEAST),
  });
  const share = (wanted) => {
    const before = pane.previousElementSibling;
    if (!before) return;
    const part = Math.max(LEAST, Math.min(1 - LEAST, wanted));
    const room = grow(before) + grow(pane);
    before.style.flexGrow = room * part;
    pane.style.flexGrow = room * (1 - part);
    edge.setAttribute("aria-valuenow", Math.round(100 * part));
  };
  const now = () => {
    const [one, other] = [pane.previousElementSibling, pane].map((each) => each.getBoundingClientRect().width);
    return one / (one + other);
  };
  edge.addEventListener("pointerdown", (event) => {
    event.preventDefault();
    edge.setPointerCapture(event.pointerId);
    const start = pane.previousElementSibling.getBoundingClientRect().left;
    const end = pane.getBoundingClientRect().right;
    const move = ({ clientX }) => share((clientX - start) / (end - start));
    edge.addEventListener("pointermove", move);
    edge.addEventListener("pointerup", () => edge.removeEventListener("pointermove", move), { once: true });
  });
  edge.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -STEP, ArrowRight: STEP }[event.key];
    if (!by) return;
    event.preventDefault();
    share(now() + by);
  });
  return edge;
}

const grow = (pane) => Number(getComputedStyle(pane).flexGrow);
