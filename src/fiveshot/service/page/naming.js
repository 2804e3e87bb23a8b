// Choose the name of a class: likely names first, then all others, or a new one.

import * as api from "./api.js";
import { $, afterwards, make, percent, plural } from "./elements.js";

const MOST = 50; // names shown at once
const MOST_PICTURES = 5;
export const NONE = "none of these"; // not a class: the service's name for photos that show no class
let resolve = () => {};
let likely = [];
let except = "";
let noneToo = false;
let round = 0;

// Returns the chosen name, or null. `pictures` are images of the photos that the name is for.
export function chooseName(title, { candidates = [], not = "", none = false, pictures = [] } = {}) {
  [likely, except, noneToo] = [candidates.filter((one) => one.label !== not), not, none];
  $("naming-title").textContent = title;
  $("naming-name").value = "";
  const more = pictures.length - MOST_PICTURES;
  $("naming-photos").replaceChildren(...pictures.slice(0, MOST_PICTURES), ...(more > 0 ? [make("span", "muted small", `and ${plural(more, "other")}`)] : []));
  $("naming-photos").className = pictures.length > 1 ? "several" : "";
  $("naming-list").replaceChildren();
  $("naming").showModal();
  list();
  return new Promise((settle) => { resolve = settle; });
}

async function list() {
  const mine = ++round;
  const typed = $("naming-name").value.trim().normalize("NFC");
  const wanted = typed.toLowerCase();
  const first = likely.filter((one) => one.label.toLowerCase().includes(wanted));
  const found = await api.classes(typed, 0, MOST).catch(() => ({ classes: [], total: 0 }));
  if (mine !== round) return;
  const named = new Set(first.map((one) => one.label));
  const others = found.classes.filter((one) => one.name !== except && !named.has(one.name));
  const known = [...named, ...others.map((one) => one.name)];
  const options = [
    ...first.map((one) => option(one.label, one.probability === undefined ? "" : percent(one.probability))),
    ...others.map((one) => option(one.name, plural(one.photos, "photo"))),
  ];
  if (typed && typed !== except && wanted !== NONE && !known.includes(typed)) options.push(option(typed, "new class"));
  if (noneToo && NONE.includes(wanted)) options.push(option(NONE, "no class"));
  $("naming-list").replaceChildren(...options);
  // Part of a known name selects that class, also if Enter is pressed before the list appears. A new class is below.
  activate(options[Math.max(known.indexOf(typed), 0)]);
  const more = found.total - found.classes.length;
  $("naming-note").textContent = more > 0 ? `${plural(more, "more class")}: type a part of the name.` : options.length ? "" : "Type the name of a new class.";
}

function option(name, note) {
  const item = make("li", "", make("span", "who", name), make("span", "muted", note));
  item.dataset.name = name;
  item.id = `name-${$("naming-list").children.length}-${Math.random().toString(36).slice(2)}`;
  item.setAttribute("role", "option");
  item.addEventListener("click", () => done(name));
  return item;
}

const active = () => $("naming-list").querySelector("[aria-selected=true]");

function activate(item) {
  active()?.removeAttribute("aria-selected");
  item?.setAttribute("aria-selected", "true");
  item?.scrollIntoView({ block: "nearest" });
  $("naming-name").setAttribute("aria-activedescendant", item?.id || "");
}

function done(name) {
  const settle = resolve;
  resolve = () => {};
  $("naming").close();
  settle(name);
}

export function setUpNaming() {
  $("naming-name").addEventListener("input", afterwards(80, list));
  $("naming-name").addEventListener("keydown", (event) => {
    const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (!step) return;
    event.preventDefault();
    if (active()?.[step]) activate(active()[step]);
  });
  $("naming-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const typed = $("naming-name").value.trim().normalize("NFC");
    const chosen = active()?.dataset.name;
    // If typing is faster than the list, the typed name counts.
    const name = chosen && chosen.toLowerCase().includes(typed.toLowerCase()) ? chosen : typed;
    if (name) done(name);
  });
  $("naming").addEventListener("close", () => { $("naming-photos").replaceChildren(); done(null); });
}
