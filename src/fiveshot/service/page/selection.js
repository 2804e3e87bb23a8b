// Select several photos: with the mouse and Shift, with the keyboard, with a finger.

import { inSlices, make, plural } from "./elements.js";

const HELD = 450; // milliseconds of a long press

// Items are the children of a list with `data-key`, each with a checkbox `.pick` and a button `.open`.
export class Selection {
  constructor(list, onChange) {
    Object.assign(this, { list, onChange, chosen: new Set(), anchor: null });
    list.addEventListener("click", (event) => this.click(event), true);
    list.addEventListener("keydown", (event) => this.key(event));
    list.addEventListener("pointerdown", (event) => this.press(event));
    for (const kind of ["pointerup", "pointercancel", "pointermove"]) {
      list.addEventListener(kind, (event) => { if (kind !== "pointermove" || moved(this.began, event)) clearTimeout(this.held); });
    }
    list.addEventListener("contextmenu", (event) => { if (this.byTouch) event.preventDefault(); });
  }

  items() {
    return Array.from(this.list.querySelectorAll("[data-key]")).filter((item) => !item.hidden);
  }

  // Selects or deselects items: the state changes at once, the page in slices.
  set(items, yes) {
    for (const { dataset } of items) this.chosen[yes ? "add" : "delete"](dataset.key);
    inSlices(items, (item) => {
      const chosen = this.chosen.has(item.dataset.key);
      item.classList.toggle("chosen", chosen);
      item.querySelector(".pick").checked = chosen;
    });
    this.onChange(this.chosen);
  }

  // Everything between the last touched item and this one gets the same state as this one.
  reach(item, yes, far) {
    const items = this.items();
    const from = far && this.anchor ? items.indexOf(this.anchor) : -1;
    const to = items.indexOf(item);
    const range = from < 0 ? [item] : items.slice(Math.min(from, to), Math.max(from, to) + 1);
    this.anchor = item;
    this.set(range, yes);
  }

  click(event) {
    const item = event.target.closest("[data-key]");
    if (!item) return;
    if (this.justHeld) { // the click that ends a long press
      this.justHeld = false;
      return swallow(event);
    }
    if (event.target.matches(".pick")) return this.reach(item, event.target.checked, event.shiftKey);
    if (!event.target.closest(".open")) return;
    const several = event.shiftKey || event.ctrlKey || event.metaKey || (this.byTouch && this.chosen.size);
    if (!several) return;
    swallow(event);
    this.reach(item, event.shiftKey || !this.chosen.has(item.dataset.key), event.shiftKey);
  }

  press(event) {
    this.byTouch = event.pointerType === "touch";
    this.justHeld = false;
    this.began = event;
    const item = event.target.closest("[data-key]");
    if (!this.byTouch || !item || !event.target.closest(".open")) return;
    clearTimeout(this.held);
    this.held = setTimeout(() => {
      this.justHeld = true;
      this.reach(item, !this.chosen.has(item.dataset.key), false);
    }, HELD);
  }

  key(event) {
    if (event.target.matches("input[type=text], textarea, select")) return;
    const item = event.target.closest("[data-key]");
    const all = event.key === "a" && (event.ctrlKey || event.metaKey);
    if (all) this.all();
    else if (event.key === "Escape" && this.chosen.size) this.clear();
    else if (item && event.key === " " && event.target.matches(".open")) this.reach(item, !this.chosen.has(item.dataset.key), event.shiftKey);
    else if (item && event.target.matches(".open, .pick") && this.walk(item, event)) { /* went on */ }
    else return;
    swallow(event);
  }

  walk(item, event) {
    const items = this.items();
    const here = items.indexOf(item);
    const ends = { Home: items[0], End: items.at(-1) };
    const aside = { ArrowRight: items[here + 1], ArrowLeft: items[here - 1] };
    const down = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!(event.key in ends || event.key in aside || down)) return false;
    const next = down ? overOrUnder(items, here, down) : ends[event.key] || aside[event.key];
    if (!next) return true;
    if (event.shiftKey) {
      this.anchor ||= item;
      this.reach(next, true, true);
    }
    next.querySelector(".open").focus();
    return true;
  }

  all() {
    this.set(this.items(), true);
  }

  clear() {
    this.anchor = null;
    this.set([...this.list.querySelectorAll("[data-key]")].filter((item) => this.chosen.has(item.dataset.key)), false);
    this.chosen.clear(); // including items that are no longer there
    this.onChange(this.chosen);
  }
}

// The item directly below or above an item.
function overOrUnder(items, here, step) {
  const place = (one) => one.getBoundingClientRect();
  const { top, left } = place(items[here]);
  let best = null;
  let row = null;
  for (let index = here + step; items[index]; index += step) {
    const found = place(items[index]);
    if (Math.abs(found.top - top) < 4) continue;
    row ??= found.top;
    if (Math.abs(found.top - row) >= 4) break;
    if (!best || Math.abs(found.left - left) < Math.abs(place(best).left - left)) best = items[index];
  }
  return best;
}

// The checkbox of an item.
export function picker(name, checked = false) {
  const pick = Object.assign(make("input", "pick"), { type: "checkbox", title: "Select", checked });
  pick.setAttribute("aria-label", `Select ${name}`);
  return pick;
}

const swallow = (event) => { event.preventDefault(); event.stopPropagation(); };
const moved = (began, event) => !began || Math.hypot(event.clientX - began.clientX, event.clientY - began.clientY) > 10;

// A bar with actions for the selected items; it is visible while something is selected.
export function setUpBar(bar, selection, one = "photo") {
  const [count, none, all] = [".count", ".none", ".all"].map((kind) => bar.querySelector(kind));
  none.addEventListener("click", () => selection().clear());
  all?.addEventListener("click", () => selection().all());
  return (chosen) => {
    bar.hidden = !chosen.size;
    count.textContent = `${plural(chosen.size, one)} selected`;
  };
}
