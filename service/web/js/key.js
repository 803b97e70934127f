// The API key, where the server asks for one: kept for this tab only, sent with every call.

import { announce, h } from "./dom.js";

const NAME = "relaxd-key";

/** The headers that say who calls. */
export function credentials() {
  const key = sessionStorage.getItem(NAME);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** Asks for a key; with the new one the page begins anew. */
export function askForKey(why) {
  const dialog = document.getElementById("key");
  if (dialog.open) return;
  document.getElementById("key-why").textContent = why;
  dialog.showModal();
  document.getElementById("key-value").focus();
}

/** Makes the dialog work. */
export function listenForKey() {
  const value = document.getElementById("key-value");
  const take = () => {
    if (!value.value.trim()) return;
    sessionStorage.setItem(NAME, value.value.trim());
    window.location.reload();
  };
  value.addEventListener("keydown", (event) => {
    if (event.key === "Enter") take();
  });
  document.getElementById("key-save").addEventListener("click", take);
  document.getElementById("key-cancel").addEventListener("click", () => document.getElementById("key").close());
}

/** A link to a file of the server; where it asks for a key, the file is read with it and saved. */
export function fileLink(path, label, props = {}) {
  const open = async (event) => {
    const headers = credentials();
    if (!headers.Authorization) return;
    event.preventDefault();
    const response = await fetch(path, { headers });
    if (!response.ok) {
      announce(`The file cannot be read: ${response.status}.`);
      return;
    }
    const url = URL.createObjectURL(await response.blob());
    h("a", { href: url, download: path.split("/").slice(-2).join("-") }).click();
    URL.revokeObjectURL(url);
  };
  return h("a", { href: path, onClick: open, ...props }, label);
}
