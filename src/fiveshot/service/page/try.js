// Try: what photos show, as rows that can be sifted, taken along as CSV, and put right.

import * as api from "./api.js";
import { $, button, inSlices, make, percent, plural } from "./elements.js";
import { complain } from "./notices.js";
import { model } from "./model.js";
import { enlarge, ofFile, showFile } from "./pictures.js";
import { Sending } from "./sending.js";

const PART = 8; // photos of a request: few, so that answers come soon
const LEAST = 0.01; // a candidate below it is not worth a line
const MOST_LINES = 3;
const MOST_CHIPS = 12;
const UNKNOWN = "\0unknown"; // no class can be called so
const UNUSABLE = "\0unusable";
let answers = []; // {key, photo, found, error, item}
let shown = null; // the kind of answer that is shown; null is all
let sending = null;
let keys = 0;

export function take(found) {
  if (!model.classes) return complain("The model knows no class yet. Teach it one first.", $("try-messages"));
  sending.add(found.map(({ file }) => file));
}

const kindOf = (one) => (one.error ? UNUSABLE : one.found.unknown ? UNKNOWN : one.found.label);
const kindText = (kind) => ({ [UNKNOWN]: "Unknown", [UNUSABLE]: "Not usable" })[kind] || kind;

function addAnswers(some) {
  const made = some.map(({ photo, value, error }) => {
    const one = { key: String(keys++), photo, found: value, error };
    one.item = row(one);
    one.item.hidden = shown !== null && kindOf(one) !== shown;
    return one;
  });
  answers.push(...made);
  $("answers").append(...made.map((one) => one.item));
  summarize();
}

function row(one) {
  const item = make("li", "answer");
  item.dataset.key = one.key;
  fill(one, item);
  return item;
}

function fill(one, item = one.item) {
  const open = button(ofFile(one.photo), "open", () => enlargeOne(one), `Enlarge ${one.photo.name}`);
  const text = make("div", "grow", make("p", "file muted small", one.photo.name), ...(one.error ? [make("p", "error", one.error.message)] : answerLines(one.found)));
  item.replaceChildren(open, text);
}

function answerLines(found) {
  const best = found.candidates[0];
  if (found.unknown) {
    const near = found.candidates.filter((one) => one.probability >= LEAST).slice(0, MOST_LINES).map((one) => one.label);
    return [make("p", "label unknown", "Unknown"), make("p", "small", `Unlike every class it knows. Nearest: ${near.join(", ")}.`)];
  }
  const head = make("p", "label", found.label, " ", make("span", "share", percent(best.probability)));
  const others = found.candidates.slice(1).filter((one) => one.probability >= LEAST).slice(0, MOST_LINES - 1);
  if (!others.length) return [head];
  return [head, track(best.probability), make("ul", "candidates", ...others.map(bar))];
}

function track(share) {
  const fillUp = make("span", "fill");
  fillUp.style.width = `${100 * share}%`;
  return make("span", "track", fillUp);
}

function bar({ label, probability }) {
  return make("li", "", make("span", "who", label), make("span", "share", percent(probability)), track(probability));
}

function enlargeOne(one) {
  const visible = answers.filter((other) => !other.item.hidden);
  const pictures = visible.map((other) => ({
    show: showFile(other.photo), title: other.photo.name,
    note: other.error ? "not usable" : `${kindText(kindOf(other))}${other.found.unknown ? "" : `, ${percent(other.found.candidates[0].probability)}`}`,
  }));
  enlarge(pictures, visible.indexOf(one));
}

function summarize() {
  const counts = new Map();
  for (const one of answers) counts.set(kindOf(one), (counts.get(kindOf(one)) || 0) + 1);
  const kinds = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
  const special = kinds.filter((kind) => [UNKNOWN, UNUSABLE].includes(kind));
  const ordinary = kinds.filter((kind) => !special.includes(kind));
  const listed = [...special, ...ordinary.slice(0, MOST_CHIPS)];
  if (shown !== null && !listed.includes(shown)) listed.push(shown);
  $("try-summary").hidden = !answers.length;
  $("try-count").textContent = `${plural(answers.length, "photo")}, ${plural(ordinary.length, "class")}${ordinary.length > MOST_CHIPS ? `, the ${MOST_CHIPS} most frequent here` : ""}`;
  const all = chip("All", answers.length, null);
  $("try-kinds").replaceChildren(all, ...listed.map((kind) => chip(kindText(kind), counts.get(kind) || 0, kind)));
}

function chip(text, count, kind) {
  const made = button(make("span", "who", text), "chip", () => sift(kind));
  made.append(make("span", "muted", count.toLocaleString("en")));
  made.setAttribute("aria-pressed", String(shown === kind));
  return made;
}

function sift(kind) {
  shown = kind;
  inSlices(answers, (one) => { one.item.hidden = kind !== null && kindOf(one) !== kind; }, () => shown === kind);
  summarize();
  $("try-kinds").querySelector("[aria-pressed=true]")?.focus();
}

function order() {
  const doubtful = $("try-order").value === "doubtful";
  const sureness = (one) => (one.error ? -1 : one.found.unknown ? 0 : one.found.candidates[0].probability);
  const sorted = [...answers].sort((a, b) => (doubtful ? sureness(a) - sureness(b) : 0) || Number(a.key) - Number(b.key));
  answers = sorted;
  $("answers").append(...sorted.map((one) => one.item));
}

const cell = (value) => {
  const text = String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

function csv() {
  const lines = [["photo", "label", "probability", "unknown", "second", "second_probability", "error"]];
  for (const { photo, found, error } of answers) {
    const [best, second] = found?.candidates || [];
    lines.push([photo.name, found?.label, best?.probability, found?.unknown, second?.label, second?.probability, error?.message]);
  }
  return lines.map((line) => line.map(cell).join(",")).join("\r\n") + "\r\n";
}

function download() {
  const link = Object.assign(make("a"), { download: "answers.csv" });
  link.href = URL.createObjectURL(new Blob(["\ufeff", csv()], { type: "text/csv" })); // Excel reads UTF-8 by the mark
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function clear() {
  sending.clear();
  [answers, shown] = [[], null];
  $("answers").replaceChildren();
  $("try-messages").replaceChildren();
  summarize();
}

export function setUp() {
  sending = new Sending($("try-progress"), {
    most: PART, verb: "Looking", onAnswers: addAnswers,
    request: async (photos) => (await api.predict(photos)).predictions,
  });
  sending.place = $("try-messages");
  $("try-csv").addEventListener("click", download);
  $("try-clear").addEventListener("click", clear);
  $("try-order").addEventListener("change", order);
}
