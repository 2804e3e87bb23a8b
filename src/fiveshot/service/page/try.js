// Try: what photos show, as rows that can be sifted, taken along as CSV, and put right.

import * as api from "./api.js";
import { $, button, inSlices, make, percent, plural } from "./elements.js";
import { partNote, partWays } from "./frame.js";
import { complain } from "./notices.js";
import { model, whenChanged } from "./model.js";
import { enlarge, ofFile, showFile } from "./pictures.js";
import { Selection, setUpBar } from "./selection.js";
import { Sending } from "./sending.js";
import { isRight, itIs, noneOfThese, right, truth, verdictKeys, verdictLine, whenSaid } from "./verdict.js";

const PART = 8; // photos of a request: few, so that answers come soon
const LEAST = 0.01; // a candidate below it is not worth a line
const MOST_LINES = 3;
const MOST_CHIPS = 12;
const BLOCK = 20; // rows that the browser draws or leaves out together: to decide it for each row takes too long
const UNKNOWN = "\0unknown"; // no class can be called so
const UNUSABLE = "\0unusable";
let answers = []; // {key, photo, found, error, item, verdict}
let byKey = new Map();
let byPhoto = new Map();
let shown = null; // the kind of answer that is shown; null is all
let sending = null;
let selection = null;
let keys = 0;

export function take(found) {
  if (!model.classes) return complain("The model knows no class yet. Teach it one first.", $("try-messages"));
  sending.add(found.map(({ file }) => file));
}

const kindOf = (one) => (one.error ? UNUSABLE : one.found.label === null ? UNKNOWN : one.found.label);
const kindText = (kind) => ({ [UNKNOWN]: "Unknown", [UNUSABLE]: "Not usable" })[kind] || kind;

function addAnswers(some) {
  const fresh = [];
  for (const { photo, value, error } of some) {
    const known = byPhoto.get(photo); // asked about again
    const one = known || { key: String(keys++), photo, verdict: null };
    [one.found, one.error] = [value, error];
    if (!known) {
      one.item = make("li", "answer");
      one.item.dataset.key = one.key;
      fresh.push(one);
      byKey.set(one.key, one);
      byPhoto.set(photo, one);
    }
    fill(one);
    one.item.hidden = shown !== null && kindOf(one) !== shown;
  }
  answers.push(...fresh);
  fresh.forEach(append);
  summarize();
}

function append({ item }) {
  const last = $("answers").lastElementChild;
  if (last && last.children.length < BLOCK) last.append(item);
  else $("answers").append(make("ul", "block", item));
}

function fill(one) {
  const { name } = one.photo;
  const open = button(ofFile(one.photo), "open", () => enlargeOne(one), `Enlarge ${name}`);
  const pick = Object.assign(make("input", "pick"), { type: "checkbox", title: "Select", checked: selection.chosen.has(one.key) });
  pick.setAttribute("aria-label", `Select ${name}`);
  const lines = one.error ? [make("p", "error", one.error.message)] : answerLines(one.found);
  const focused = one.item.contains(document.activeElement);
  const parts = [open, pick, make("div", "grow", make("p", "file muted small", name), one.photo.box && make("p", "part muted small", partNote(one.photo)), ...lines)];
  one.item.replaceChildren(...parts, ...(one.error ? [] : [verdictLine(one)]));
  if (focused) open.focus();
}

function answerLines(found) {
  const likely = found.candidates.filter((one) => one.probability >= LEAST).slice(0, MOST_LINES);
  if (found.label === null) {
    const why = found.unknown ? "Unlike every class it knows." : "No answer is sure enough.";
    return [make("p", "label unknown", found.unknown ? "Unknown" : "Unsure"), make("p", "small", `${why} Nearest: ${likely.map((one) => one.label).join(", ")}.`)];
  }
  const head = make("p", "label", found.label, " ", make("span", "share", percent(found.probability)));
  if (found.answer === "group") head.append(make("span", "muted small", ", a group of classes"));
  const others = likely.filter((one) => one.label !== found.label);
  if (!others.length) return [head];
  return [head, track(found.probability), make("ul", "candidates", ...others.map(bar))];
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
    show: showFile(other.photo), title: other.photo.name, ways: () => partWays(other.photo, () => sending.add([other.photo])),
    note: other.error ? "not usable" : `${kindText(kindOf(other))}${other.found.label === null ? "" : `, ${percent(other.found.probability)}`}`,
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
  const looked = answers.filter((one) => one.verdict && one.found);
  $("try-verdicts").textContent = looked.length ? `${looked.filter(isRight).length} of ${looked.length} you looked at are right` : "";
  $("try-again").hidden = !answers.some((one) => one.found && one.found.state !== model.state) || sending.working;
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
  const sureness = (one) => (one.error ? -1 : one.found.label === null ? 0 : one.found.probability);
  const sorted = [...answers].sort((a, b) => (doubtful ? sureness(a) - sureness(b) : 0) || Number(a.key) - Number(b.key));
  answers = sorted;
  $("answers").replaceChildren();
  inSlices(sorted, append, () => answers === sorted);
}

const cell = (value) => {
  const text = String(value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

function csv() {
  const lines = [["photo", "label", "probability", "unknown", "second", "second_probability", "verdict", "error"]];
  for (const one of answers) {
    const { photo, found, error, verdict } = one;
    const second = found?.candidates[1];
    const said = !verdict ? "" : verdict.kind === "right" ? found.label : truth(one) ?? "none of these";
    lines.push([photo.name, found?.label, found?.probability, found?.unknown, second?.label, second?.probability, said, error?.message]);
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
  [answers, shown, byKey, byPhoto] = [[], null, new Map(), new Map()];
  selection.clear();
  $("answers").replaceChildren();
  $("try-messages").replaceChildren();
  summarize();
}

// Asks about the same photos once more, after the model has changed.
function again() {
  sending.add(answers.map((one) => one.photo));
  $("try-again").hidden = true;
}

export function setUp() {
  selection = new Selection($("answers"), (chosen) => tellChosen(chosen));
  const tellChosen = setUpBar($("try-bar"), () => selection);
  const chosen = () => [...selection.chosen].map((key) => byKey.get(key)).filter((one) => one?.found);
  sending = new Sending($("try-progress"), {
    most: PART, verb: "Looking", onAnswers: addAnswers, onDone: summarize,
    request: async (photos) => {
      const { predictions, state } = await api.predict(photos);
      return predictions.map((one) => ({ ...one, state }));
    },
  });
  sending.place = $("try-messages");
  verdictKeys($("answers"), (key) => byKey.get(key));
  whenSaid((one) => { fill(one); summarize(); });
  $("try-right").addEventListener("click", () => right(chosen()));
  $("try-is").addEventListener("click", () => itIs(chosen()));
  $("try-none").addEventListener("click", () => noneOfThese(chosen()));
  $("try-again").addEventListener("click", again);
  $("try-csv").addEventListener("click", download);
  $("try-clear").addEventListener("click", clear);
  $("try-order").addEventListener("change", order);
  whenChanged(summarize);
}
