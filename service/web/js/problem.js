// Every Problem as a person needs it: what happened, where, and what to do next.

import { ProblemError } from "./api.js";
import { button, h } from "./dom.js";
import { fileLink } from "./key.js";

const SHOWN_APART = new Set([
  "type",
  "title",
  "status",
  "detail",
  "instance",
  "compilation",
  "href",
  "repro",
  "retry_after_s",
  "doc",
]);

/** Whose fault it is, and what its reader can do. */
function advice(problem) {
  const { status } = problem;
  if (status === 0) return "Start the server again, or check the address; what you see here stays.";
  if (status === 503 || status === 429)
    return "The server is busy or starting. Wait a moment, then send the same again.";
  if (status === 422)
    return "The model or a pass is at fault. Open the last step that was kept, change the recipe or the model as told above, and compile again.";
  if (status >= 500) return "This is our fault. Take the repro along when you report it: it runs without the server.";
  if (status === 401 || status === 403)
    return "Ask the operator of this server for an API key with the scope that is named.";
  if (status === 404) return "It may have been deleted or have expired. Compile it again.";
  return "Change the request as told above and send it again.";
}

/** A card for an error of any kind; `retry` is called by its button. */
export function problemCard(error, { retry = null, id = null } = {}) {
  const problem = error instanceof ProblemError ? error.problem : error.detail ? error : ours(error);
  const compilation = problem.compilation ?? id;
  const known = Object.entries(problem).filter(
    ([name, value]) => !SHOWN_APART.has(name) && value !== null && value !== "",
  );
  const repro = compilation ? `/compile/${compilation}/repro.zip` : null;
  return h(
    "article",
    { class: "problem", role: "alert" },
    h(
      "h3",
      null,
      h("span", { class: "sign", "aria-hidden": "true" }, "✕"),
      problem.title,
      problem.status ? h("span", { class: "status" }, problem.status) : null,
    ),
    h("p", { class: "detail" }, problem.detail),
    known.length
      ? h(
          "dl",
          null,
          known.map(([name, value]) => [h("dt", null, name.replaceAll("_", " ")), h("dd", null, shown(value))]),
        )
      : null,
    h("p", { class: "next" }, h("b", null, "Next: "), advice(problem)),
    h(
      "p",
      { class: "links" },
      retry ? button("Try again", retry, { class: "primary" }) : null,
      problem.type
        ? h("a", { href: problem.type, target: "_blank", rel: "noopener" }, "What this problem means")
        : null,
      repro ? fileLink(repro, "Repro (zip)", { download: "" }) : null,
      compilation
        ? fileLink(`/compile/${compilation}/report.html`, "Report", { target: "_blank", rel: "noopener" })
        : null,
      problem.instance ? h("small", { class: "muted" }, problem.instance) : null,
    ),
  );
}

/** A member of a problem: texts as they are, lists as lists. */
function shown(value) {
  if (Array.isArray(value)) {
    if (value.every((each) => typeof each !== "object")) return value.join(", ");
    return h(
      "ul",
      null,
      value.map((each) => h("li", null, shown(each))),
    );
  }
  if (typeof value === "object")
    return Object.entries(value)
      .filter(([, each]) => each !== null)
      .map(([name, each]) => `${name}: ${typeof each === "object" ? JSON.stringify(each) : each}`)
      .join(" · ");
  return String(value);
}

function ours(error) {
  console.error(error);
  return { type: null, title: "The page met an error", status: 500, detail: String(error?.message ?? error) };
}
