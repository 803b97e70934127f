// The page: from its address to what is shown, keys, theme.

import { compilation, getJson } from "./api.js";
import { announce, button, copy, fill, h } from "./dom.js";
import { shortId } from "./format.js";
import { fileLink, listenForKey } from "./key.js";
import * as links from "./links.js";
import { usualPanes } from "./panes.js";
import { problemCard } from "./problem.js";
import { openDifference } from "./rail.js";
import { RecipeEditor } from "./recipe.js";
import { start, watch } from "./run.js";
import { Start } from "./start.js";
import { change, isOurs, onChange, parseAddress, shown, state } from "./state.js";
import { Workspace } from "./workspace.js";

const narrow = window.matchMedia("(max-width: 700px)");
const root = document.getElementById("root");
const title = document.getElementById("title");
const editor = new RecipeEditor();
const first = new Start(editor, compileFile);
const workspace = new Workspace(editor);

onChange((names) => {
  if (names.has("a")) showTitle();
  if (state.a) workspace.update(names);
});

async function compileFile(file) {
  fill(first.error);
  first.go.disabled = true;
  try {
    const begun = await start({ file });
    openCompilation(begun, {}, "push");
    watch(begun);
  } catch (error) {
    fill(first.error, problemCard(error, { retry: () => compileFile(file) }));
    first.error.scrollIntoView({ block: "nearest" });
  } finally {
    first.go.disabled = false;
  }
}

function openCompilation(a, wanted, history) {
  fill(root, workspace.element);
  const panes = wanted.panes?.length ? wanted.panes : usualPanes(a, narrow.matches);
  // While it runs, the last pane shows the newest step until something else is chosen.
  if (!wanted.panes?.length && a.state !== "succeeded" && panes.length > 2) panes.at(-1).follows = true;
  links.pin(null, null);
  change(
    {
      a,
      b: wanted.b ?? null,
      panes,
      tab: wanted.tab ?? "ir",
      active: wanted.panes?.length ? wanted.active : panes.findIndex(({ kind }) => kind === "ir"),
      line: wanted.line ?? null,
      fn: wanted.fn ?? null,
      graph: wanted.graph ?? null,
    },
    { history },
  );
  workspace.enter();
}

function openStart() {
  change({ a: null, b: null, line: null, fn: null });
  fill(root, first.element);
  first.show();
}

async function openAddress() {
  const wanted = parseAddress(window.location.hash);
  if (!wanted.c) {
    openStart();
    return;
  }
  if (state.a?.id !== wanted.c)
    fill(
      root,
      h("main", { class: "start" }, h("p", { class: "loading", role: "status" }, "Opening the compilation …")),
    );
  try {
    const [a, b] = await Promise.all([compilation(wanted.c), wanted.b ? compilation(wanted.b) : null]);
    openCompilation(a, { ...wanted, b }, "replace");
    watch(a);
  } catch (error) {
    fill(
      root,
      h(
        "main",
        { class: "start" },
        problemCard(error, { retry: openAddress }),
        button("Start anew", () => {
          window.location.hash = "";
          openStart();
        }),
      ),
    );
  }
}

function showTitle() {
  const { a } = state;
  document.title = a
    ? `${a.model.filename ?? shortId(a.id)} · relaxd`
    : "relaxd: see what a compiler makes of your model";
  fill(
    title,
    a
      ? [
          h("b", null, a.model.filename ?? shortId(a.model.sha256)),
          h(
            "span",
            { class: "muted" },
            ` ${a.recipe.name ?? `${a.recipe.passes.length} passes`} · ${a.toolchain?.cpu ?? ""} · ${shortId(a.id)}`,
          ),
          " ",
          h("span", { class: `badge state-${a.state}` }, a.state),
          h(
            "span",
            { class: "title-links" },
            button("link", () => copy(window.location.href, "the link to this view"), {
              name: "Copy a link to exactly this view",
            }),
            fileLink(`/compile/${a.id}/report.html`, "report", { target: "_blank", rel: "noopener" }),
            fileLink(`/compile/${a.id}/repro.zip`, "repro", { download: "" }),
          ),
        ]
      : null,
  );
}

function theme() {
  const known = ["auto", "light", "dark"];
  const now = () => localStorage.getItem("theme") ?? "auto";
  const toggle = document.getElementById("theme");
  const show = () => {
    document.documentElement.dataset.theme = now();
    toggle.textContent = { auto: "◐", light: "○", dark: "●" }[now()];
    toggle.setAttribute("aria-label", `Colours: ${now()}`);
    toggle.title = `Colours: ${now()}`;
  };
  toggle.addEventListener("click", () => {
    localStorage.setItem("theme", known[(known.indexOf(now()) + 1) % known.length]);
    show();
    announce(`Colours: ${now()}.`);
  });
  show();
}

const KEYS = {
  "?": () => document.getElementById("help").showModal(),
  "/": () => workspace.panes.current?.search?.open(),
  "[": () => step(-1),
  "]": () => step(1),
  d: () => compareWithPrevious(),
  f: () => workspace.panes.current?.foldAll?.(),
  p: () => workspace.panes.add(),
  m: () => workspace.panes.current?.focus(),
  n: () => workspace.panes.current?.next?.(1),
  N: () => workspace.panes.current?.next?.(-1),
  1: () => change({ tab: "ir" }),
  2: () => change({ tab: "graph" }),
  3: () => change({ tab: "profile" }),
  4: () => change({ tab: "accuracy" }),
  5: () => change({ tab: "try" }),
  6: () => change({ tab: "bisect" }),
  Escape: () => {
    links.pin(null, null);
    change({ line: null });
  },
};

function step(by) {
  const pane = state.panes[state.active];
  if (pane?.kind !== "ir") return;
  const all = shown(state.a);
  const next = all[all.findIndex(({ index }) => index === pane.step) + by];
  if (next) workspace.rail.open(next);
}

function compareWithPrevious() {
  const pane = state.panes[state.active];
  if (pane?.kind !== "ir" || !pane.step) return;
  openDifference({
    kind: "diff",
    left: { side: pane.side, step: pane.step - 1 },
    right: { side: pane.side, step: pane.step },
  });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) || !(event.key in KEYS)) return;
  if (!state.a && event.key !== "?") return;
  event.preventDefault();
  KEYS[event.key]();
});
document.getElementById("help-open").addEventListener("click", KEYS["?"]);
document.getElementById("help-close").addEventListener("click", () => document.getElementById("help").close());
document.getElementById("home").addEventListener("click", (event) => {
  event.preventDefault();
  window.history.pushState(null, "", window.location.pathname);
  openStart();
});
window.addEventListener("popstate", openAddress);
window.addEventListener("hashchange", () => {
  if (!isOurs()) openAddress();
});

theme();
listenForKey();
openAddress();
getJson("/healthz").then(
  ({ status, version, limits }) => {
    document.getElementById("server").textContent = `relaxd ${version}${status === "ok" ? "" : ` · ${status}`}`;
    document.getElementById("server").title = `${limits.concurrent_compilations} compilations at once`;
  },
  () => {},
);
