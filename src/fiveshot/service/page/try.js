// Try: what photos show, as rows that can be filtered, downloaded as CSV, and corrected.

import * as api from "./api.js";
import { $, button, fileName, inSlices, make, percent, plural, sentence } from "./elements.js";
import { partNote, partWays } from "./frame.js";
import { complain, tellGone } from "./notices.js";
import { isKnown, model, readOnly, whenChanged } from "./model.js";
import { enlarge, openerOfFile, showFile } from "./pictures.js";
import { Selection, picker, setUpBar } from "./selection.js";
import { Sending } from "./sending.js";
import { csvOf, save } from "./takehome.js";
import { between, isRight, itIs, noneOfThese, right, truth, verdictKeys, verdictLine, whenSaid } from "./verdict.js";

const PART = 8; // photos in a request: few, so that answers come soon
const LEAST = 0.01; // candidates below it are not shown
const MOST_LINES = 3;
const MOST_CHIPS = 12;
const BLOCK = 8; // rows that the browser draws or skips together: single rows take too long to decide, many rows to draw
const UNKNOWN = "\0unknown"; // no class can have this name
const UNSURE = "\0unsure";
const UNUSABLE = "\0unusable";
let answers = []; // {key, photo, found, error, item, verdict}
let byKey = new Map();
let byPhoto = new Map();
let shown = null; // the kind of answer that is shown; null for all
let sending = null;
let selection = null;
let block = null; // the block for the next row
let keys = 0;

export function take(found) {
  if (isKnown() && !model.classes) return complain(`The model knows no class yet.${readOnly ? "" : " Teach it one first."}`, $("try-messages"));
  sending.add(found.map(({ file }) => file));
}

const kindOf = (one) => (one.error ? UNUSABLE : one.found.unsure ? UNSURE : one.found.label ?? UNKNOWN);
const kindText = (kind) => ({ [UNKNOWN]: "Unknown", [UNSURE]: "Unsure", [UNUSABLE]: "Not usable" })[kind] || kind;

function addAnswers(some) {
  const fresh = [];
  for (const { photo, value, error } of some) {
    const known = byPhoto.get(photo); // asked again
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

// Adds a row at the end, or at the end of the sorted rows.
function append({ item }) {
  const from = item.parentElement;
  if (block?.isConnected && block.children.length < BLOCK) block.append(item);
  else {
    const fresh = make("ul", "block", item);
    if (block?.isConnected) block.after(fresh);
    else $("answers").prepend(fresh);
    block = fresh;
  }
  if (from && !from.children.length) from.remove();
}

function fill(one) {
  const { name } = one.photo;
  const open = openerOfFile(one.photo, () => enlargeOne(one));
  const pick = picker(name, selection.chosen.has(one.key));
  const lines = one.error ? [make("p", "error", withoutName(one.error.message, name))] : answerLines(one.found);
  const focused = one.item.contains(document.activeElement);
  const parts = [pick, open, make("div", "grow", make("p", "file muted small", fileName(name)), one.photo.box && make("p", "part muted small", partNote(one.photo)), ...lines)];
  one.item.replaceChildren(...parts, ...(one.error ? [] : [verdictLine(one)]));
  if (focused) open.focus();
}

// The name stands above the message.
const withoutName = (said, name) => (said.startsWith(`${name}: `) ? sentence(said.slice(name.length + 2)) : said);

function answerLines(found) {
  const likely = found.candidates.filter((one) => one.probability === null || one.probability >= LEAST).slice(0, MOST_LINES);
  if (found.unsure && found.between?.length) {
    return [make("p", "label unknown", `Unsure: ${found.between.join(" or ")}`), make("ul", "candidates", ...likely.map(bar))];
  }
  if (found.label === null) {
    const why = found.unknown ? "Unlike every class it knows." : "No answer is sure enough.";
    return [make("p", "label unknown", found.unknown ? "Unknown" : "Unsure"), make("p", "small", `${why} Nearest: ${likely.map((one) => one.label).join(", ")}.`)];
  }
  const head = make("p", "label", found.label);
  if (found.probability !== null) head.append(" ", make("span", "share", percent(found.probability)));
  if (found.answer === "group") head.append(make("span", "muted small", ", a group of classes"));
  const others = likely.filter((one) => one.label !== found.label);
  if (!others.length) return [head];
  return [head, track(found.probability), make("ul", "candidates", ...others.map(bar))];
}

function track(share) {
  const made = make("span", "track");
  made.style.setProperty("--share", `${100 * share}%`);
  return made;
}

function bar({ label, probability }) {
  return make("li", "", make("span", "who", label), make("span", "share", percent(probability)), track(probability));
}

function enlargeOne(one) {
  const visible = answers.filter((other) => !other.item.hidden);
  const pictures = visible.map((other) => ({
    show: showFile(other.photo), title: other.photo.name, ways: () => partWays(other.photo, () => sending.add([other.photo])),
    note: other.error ? "not usable" : [between(other).length ? `Unsure: ${between(other).join(" or ")}` : kindText(kindOf(other)), ...(other.found.label === null || other.found.probability === null ? [] : [percent(other.found.probability)])].join(", "),
  }));
  enlarge(pictures, visible.indexOf(one));
}

function summarize() {
  const counts = new Map();
  for (const one of answers) counts.set(kindOf(one), (counts.get(kindOf(one)) || 0) + 1);
  const kinds = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a));
  const special = kinds.filter((kind) => [UNKNOWN, UNSURE, UNUSABLE].includes(kind));
  const ordinary = kinds.filter((kind) => !special.includes(kind));
  const listed = [...special, ...ordinary.slice(0, MOST_CHIPS)];
  if (shown !== null && !listed.includes(shown)) listed.push(shown);
  $("try-summary").hidden = !answers.length;
  $("try-count").textContent = `${plural(answers.length, "photo")}, ${plural(ordinary.length, "class")}${ordinary.length > MOST_CHIPS ? `, the ${MOST_CHIPS} most frequent here` : ""}`;
  const looked = answers.filter((one) => one.verdict && one.found && !one.found.unsure);
  $("try-verdicts").textContent = looked.length ? `Right: ${looked.filter(isRight).length} of ${looked.length} you looked at` : "";
  const found = answers.flatMap((one) => one.found || []);
  const never = found.length > 0 && found.every((one) => !one.can_be_unknown && one.state === model.state);
  const few = found.length > 0 && model.rejection.startsWith("so far only");
  $("try-never").hidden = !never && !few;
  $("try-never").textContent = `Here ${model.rejection}.${never ? " Until then other things get the name of a class, too." : ""}`;
  $("try-again").hidden = !answers.some((one) => one.found && one.found.state !== model.state) || sending.working;
  showChips([[null, answers.length], ...listed.map((kind) => [kind, counts.get(kind) || 0])]);
}

// While answers arrive, chips stay the same elements in the same places, so that presses and focus are not lost.
function showChips(kinds) {
  const there = $("try-kinds");
  const known = new Map(Array.from(there.children, (chip) => [chip.kind, chip]));
  const chips = kinds.map(([kind, count]) => {
    const chip = known.get(kind) || makeChip(kind);
    chip.lastChild.textContent = count.toLocaleString("en");
    chip.setAttribute("aria-pressed", String(shown === kind));
    return chip;
  });
  if (sending.working) {
    for (const chip of known.values()) if (!chips.includes(chip)) chip.remove();
    there.append(...chips.filter((chip) => chip.parentElement !== there));
  } else if (chips.some((chip, place) => chip !== there.children[place]) || chips.length < known.size) {
    const focused = chips.find((chip) => chip === document.activeElement);
    there.replaceChildren(...chips);
    focused?.focus();
  }
}

function makeChip(kind) {
  const chip = button(make("span", "who", kind === null ? "All" : kindText(kind)), "chip", () => sift(kind));
  chip.kind = kind;
  chip.append(make("span", "muted"));
  return chip;
}

function sift(kind) {
  shown = kind;
  inSlices(answers, (one) => { one.item.hidden = kind !== null && kindOf(one) !== kind; }, () => shown === kind);
  summarize();
}

function finish() {
  if ($("try-order").value === "doubtful") order();
  summarize();
}

function order() {
  const doubtful = $("try-order").value === "doubtful";
  const sureness = (one) => (one.error ? -1 : one.found.label === null ? 0 : one.found.probability ?? 1);
  const sorted = [...answers].sort((a, b) => (doubtful ? sureness(a) - sureness(b) : 0) || Number(a.key) - Number(b.key));
  answers = sorted;
  block = null; // from the top: removing thousands of rows at once would take too long
  inSlices(sorted, append, () => answers === sorted);
}

// The columns have the names that `predict --out` gives them.
function csvLines() {
  const lines = [["photo", "label", "answer", "probability", "most_like", "runner_up_1", "runner_up_1_probability", "verdict", "error"]];
  for (const one of answers) {
    const { photo, found, error, verdict } = one;
    const [first, second] = found?.candidates ?? [];
    const said = !verdict ? "" : verdict.kind === "right" ? found.label : truth(one) ?? "none of these";
    lines.push([photo.name, found?.label, found?.answer, found?.probability, first?.label, second?.label, second?.probability, said, error?.message]);
  }
  return lines;
}

function clear() {
  const left = sending.clear();
  const before = answers;
  shown = null;
  inSlices([...$("answers").children], (old) => old.remove());
  keep([]);
  selection.clear();
  $("try-messages").replaceChildren();
  tellGone("clearing Try", `Cleared ${plural(before.length + left.length, "photo")}.`, () => {
    keep([...before, ...answers]);
    if (left.length) sending.add(left);
  });
}

// Shows only these answers.
function keep(all) {
  answers = all;
  byKey = new Map(all.map((one) => [one.key, one]));
  byPhoto = new Map(all.map((one) => [one.photo, one]));
  for (const one of all) one.item.hidden = shown !== null && kindOf(one) !== shown;
  order();
  summarize();
}

// Asks about the same photos again, after the model has changed.
function again() {
  sending.add(answers.map((one) => one.photo));
  $("try-again").hidden = true;
}

export function setUp() {
  selection = new Selection($("answers"), (chosen) => tellChosen(chosen));
  const tellChosen = setUpBar($("try-bar"), () => selection);
  const chosen = () => [...selection.chosen].map((key) => byKey.get(key)).filter((one) => one?.found);
  sending = new Sending($("try-progress"), {
    most: PART, verb: "Looking", onAnswers: addAnswers, onDone: finish,
    request: async (photos) => {
      const { predictions, state } = await api.predict(photos);
      return predictions.map((one) => ({ ...one, state }));
    },
  });
  sending.place = $("try-messages");
  verdictKeys($("answers"), (key) => byKey.get(key));
  whenSaid((ones) => inSlices(ones, fill).then(summarize));
  $("try-right").addEventListener("click", () => right(chosen()));
  $("try-is").addEventListener("click", () => itIs(chosen()));
  $("try-none").addEventListener("click", () => noneOfThese(chosen()));
  $("try-again").addEventListener("click", again);
  $("try-csv").addEventListener("click", () => save(csvOf(csvLines()), "answers.csv"));
  $("try-clear").addEventListener("click", clear);
  $("try-order").addEventListener("change", order);
  whenChanged(summarize);
}
