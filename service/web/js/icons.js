// Icons drawn here, so that no font needs to have them.

import { s } from "./dom.js";

const PATHS = {
  search: "M10.5 10.5 14 14M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10z",
  copy: "M5.5 5.5h8v8h-8zM3 10.5H2.5v-8h8V3",
  close: "M4 4l8 8M12 4l-8 8",
  fold: "M3 3h10M5 8l3-2 3 2M3 13h10",
  unfold: "M3 3h10M5 7l3 2 3-2M3 13h10",
  up: "M4 10l4-4 4 4",
  down: "M4 6l4 4 4-4",
  swap: "M3 5.5h9L9.5 3M13 10.5H4L6.5 13",
  gear: "M3 4.5h4M11 4.5h2M3 11.5h2M9 11.5h4M7 2.7v3.6h4V2.7zM5 9.7v3.6h4V9.7z",
  diff: "M8 3v6M5 6h6M5 12.5h6",
  inside: "M3 3.5h10M5.5 6.5h7.5M5.5 9.5h7.5M3 12.5h10",
  fit: "M2.5 6v-3.5H6M10 2.5h3.5V6M13.5 10v3.5H10M6 13.5H2.5V10",
  plus: "M8 3v10M3 8h10",
  minus: "M3 8h10",
};

/** An icon for a button that has a name of its own. */
export const icon = (name) =>
  s("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" }, s("path", { d: PATHS[name] }));
