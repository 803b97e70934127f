// What the charts share: scales by powers of ten, axes, marks.

import { s } from "./dom.js";

/** A scale from [low, high] to [from, to] by powers of ten, with its ticks. */
export function powers(low, high, from, to) {
  const [first, last] = [
    Math.floor(Math.log10(low)),
    Math.max(Math.ceil(Math.log10(high)), Math.floor(Math.log10(low)) + 1),
  ];
  const at = (value) => from + ((Math.log10(value) - first) / (last - first)) * (to - from);
  const step = Math.max(1, Math.ceil((last - first) / 8));
  const ticks = [];
  for (let power = first; power <= last; power += step) ticks.push({ value: 10 ** power, power });
  return { at, ticks };
}

export const power = (exponent) =>
  s("tspan", null, "10", s("tspan", { dy: "-4", "font-size": "8" }, String(exponent).replace("-", "−")));

/** A dot for A, a square for B: told apart without colour. */
export function mark(side, x, y, size, props, title) {
  const shape =
    side === "b"
      ? s("rect", { x: x - size, y: y - size, width: 2 * size, height: 2 * size, ...props })
      : s("circle", { cx: x, cy: y, r: size, ...props });
  shape.append(s("title", null, title));
  return shape;
}
