// The passes of TVM that run inside of a step: the server runs the step again to tell them.

import { getJson, irPath } from "../api.js";

const kept = new Map();
const known = new Map();

/** The passes inside of a step, once: [{name, level, changed, wall_ms, text}]. */
export function innerPasses(id, step) {
  const key = `${id}/${step.index}`;
  if (!kept.has(key)) {
    const read = getJson(`${irPath(id, step, "json")}&expand=true`).then(({ inner }) => {
      known.set(key, inner);
      return inner;
    });
    kept.set(key, read);
    read.catch(() => kept.delete(key));
  }
  return kept.get(key);
}

/** The same, where they have been read. */
export const knownPasses = (id, index) => known.get(`${id}/${index}`) ?? null;
