// When a photo is called unknown: the share of known photos that may be called unknown by mistake.

import * as api from "./api.js";
import { $, afterwards, percent, plural } from "./elements.js";
import { change, complain } from "./notices.js";
import { model, readOnly, whenChanged } from "./model.js";

const RATES = [0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3];
const text = (rate) => `${Number((100 * rate).toPrecision(3))} %`;
let rates = RATES; // including the present rate, if it is another one
let round = 0;

function show() {
  const rate = model.false_rejection;
  $("strictness").hidden = readOnly || !model.classes || rate === undefined || rate === null;
  if ($("strictness").hidden) return;
  rates = [...new Set([...RATES, rate])].sort((a, b) => a - b);
  $("rate").max = String(rates.length - 1);
  $("rate").value = String(rates.indexOf(rate));
  if ($("strictness").open) look();
}

const chosen = () => rates[Number($("rate").value)];

async function look() {
  const mine = ++round;
  const rate = chosen();
  $("rate-text").textContent = text(rate);
  $("rate").setAttribute("aria-valuetext", text(rate));
  try {
    const found = await api.rejection(rate);
    if (mine !== round) return;
    $("rate-note").textContent = `${found.rejected.toLocaleString("en")} of ${plural(found.photos, "learned photo")}`
      + `${found.photos ? ` (${percent(found.rejected / found.photos)})` : ""} would be called unknown.`;
  } catch (error) {
    if (mine === round) complain(error, $("try-messages"));
  }
}

async function set() {
  const rate = chosen();
  if (rate === model.false_rejection) return;
  await change([() => api.setModel({ false_rejection: rate })], `About ${text(rate)} of known photos may be called unknown from now on.`, { place: $("try-messages") });
}

export function setUpStrictness() {
  $("rate").addEventListener("input", afterwards(60, look));
  $("rate").addEventListener("change", afterwards(600, set)); // arrow keys go step by step
  $("strictness").addEventListener("toggle", () => { if ($("strictness").open) look(); });
  whenChanged(show);
}
