// The calls that the page makes. Every error is a ProblemError that holds an RFC 9457 problem.

import { askForKey, credentials } from "./key.js";

export class ProblemError extends Error {
  constructor(problem) {
    super(problem.detail);
    this.problem = problem;
  }
}

const UNREACHABLE = {
  type: null,
  title: "The server cannot be reached",
  status: 0,
  detail: "No answer came. Look whether relaxd still runs (`./dev serve`), then try again.",
};

async function call(path, options) {
  let response;
  try {
    response = await fetch(path, { ...options, headers: { ...credentials(), ...options?.headers } });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ProblemError(UNREACHABLE);
  }
  if (response.ok) return response;
  const text = await response.text();
  try {
    const problem = JSON.parse(text);
    if (response.status === 401) askForKey(problem.detail);
    throw new ProblemError(problem);
  } catch (error) {
    if (error instanceof ProblemError) throw error;
    throw new ProblemError({
      type: null,
      title: "An answer that is no problem document",
      status: response.status,
      detail: text.slice(0, 500),
    });
  }
}

export const getJson = async (path, options) => (await call(path, options)).json();

function upload(file, request) {
  const body = new FormData();
  body.append("request", new Blob([JSON.stringify(request)], { type: "application/json" }));
  if (file) body.append("model", file, file.name);
  return body;
}

/** What a model is, before it is compiled. */
export const inspect = (file, options) => getJson("/inspect", { method: "POST", body: upload(file, {}), ...options });

/** Starts a Compilation and answers it as it stands; `file` is null when the request goes on `from` an earlier one. */
export const compile = (file, request) =>
  getJson("/compile", { method: "POST", body: upload(file, request), headers: { Prefer: "respond-async" } });

export const compilation = (id) => getJson(`/compile/${encodeURIComponent(id)}`);
/** Deletes a Compilation, or with `what` what belongs to it. */
export const remove = (id, what = "") => call(`/compile/${encodeURIComponent(id)}${what}`, { method: "DELETE" });

/** Posts a document. */
export const send = (path, body) =>
  getJson(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });

export const infer = (body) => send("/infer", body);

const OF_THE_BUILD = new Set(["vm", "tir", "llvm", "asm"]);

/** Whether the build made it, from the last step; there is one of each. */
export const isResult = (step) => OF_THE_BUILD.has(step.stage);

export function irPath(id, step, form) {
  const which = isResult(step) ? { id, format: form } : { id, step: step.index, format: form };
  return `/ir/${step.stage}?${new URLSearchParams(which)}`;
}

const kept = new Map();

/** The same answer for the same path: the Catalogue does not change while a page is open. */
export function getOnce(path) {
  if (!kept.has(path)) {
    const answer = getJson(path);
    kept.set(path, answer);
    answer.catch(() => kept.delete(path));
  }
  return kept.get(path);
}
