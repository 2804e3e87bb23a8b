// A gallery of any number of classes: only visible cards exist, and only visible pages are fetched.

import * as api from "./api.js";
import { plural } from "./elements.js";

const PAGE = 100;
const BEYOND = 2; // rows above and below the visible ones
const SETTLED = 90; // milliseconds without scrolling before pictures are fetched

export class Gallery {
  constructor(list, { onOpen, onFound, onError }) {
    Object.assign(this, { list, onOpen, onFound, onError });
    this.search = "";
    this.fresh = null;
    this.reset();
    addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(list);
    list.addEventListener("keydown", (event) => this.move(event));
  }

  reset() {
    this.round = (this.round || 0) + 1;
    this.pages = new Map();
    this.total = null;
  }

  // Fetch the visible classes again, without flicker.
  async reload({ search = this.search, fresh = null } = {}) {
    this.search = search;
    this.fresh = fresh;
    this.reset();
    await this.fetch(0);
    if (this.total !== null) this.clear();
    this.draw();
  }

  clear() {
    const focused = this.list.contains(document.activeElement) ? document.activeElement.closest("li") : null;
    this.wanted = focused ? Number(focused.dataset.index) : null;
    this.list.replaceChildren();
  }

  async fetch(page) {
    if (this.pages.has(page)) return;
    const round = this.round;
    this.pages.set(page, null);
    try {
      const answer = await api.classes(this.search, page * PAGE, PAGE);
      if (round !== this.round) return;
      this.pages.set(page, answer.classes);
      this.total = answer.total;
      this.onFound(answer.total, this.search);
    } catch (error) {
      if (round === this.round) this.pages.delete(page); // fetched again at the next scroll, not at once
      this.onError(error);
      return;
    }
    this.draw();
  }

  measure() {
    const wide = parseInt(getComputedStyle(document.documentElement).getPropertyValue("--card"), 10) || 190;
    const width = this.list.clientWidth;
    const columns = Math.max(2, Math.floor(width / wide));
    return { columns, width: width / columns, height: Math.round((width / columns) * 0.62) + 62 };
  }

  draw() {
    if (this.total === null || !this.list.clientWidth) return; // another view is open
    const { columns, width, height } = this.measure();
    this.columns = columns;
    this.list.style.height = `${Math.ceil(this.total / columns) * height}px`;
    const top = -this.list.getBoundingClientRect().top;
    const first = Math.max(0, (Math.floor(top / height) - BEYOND) * columns);
    const last = Math.min(this.total, (Math.ceil((top + innerHeight) / height) + BEYOND) * columns);
    for (let page = Math.floor(first / PAGE); page * PAGE < last; page++) this.fetch(page);
    const there = new Map(Array.from(this.list.children, (item) => [Number(item.dataset.index), item]));
    const focused = document.activeElement?.closest?.("#gallery li");
    for (const [index, item] of there) {
      if ((index < first || index >= last) && item !== focused) item.remove();
    }
    for (let index = first; index < last; index++) {
      const entry = this.pages.get(Math.floor(index / PAGE))?.[index % PAGE];
      let item = there.get(index);
      if (!item && entry) item = this.add(index, entry);
      if (!item) continue;
      item.style.width = `${width}px`;
      item.style.height = `${height}px`;
      item.style.transform = `translate(${(index % columns) * width}px, ${Math.floor(index / columns) * height}px)`;
    }
    this.focusWanted();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.showPictures(), SETTLED);
  }

  // Cards are kept in order for the tab key.
  add(index, entry) {
    const item = document.createElement("li");
    item.dataset.index = index;
    item.setAttribute("aria-setsize", this.total);
    item.setAttribute("aria-posinset", index + 1);
    item.append(this.card(entry));
    const after = Array.from(this.list.children).find((other) => Number(other.dataset.index) > index);
    this.list.insertBefore(item, after || null);
    return item;
  }

  card(entry) {
    const card = document.createElement("button");
    card.type = "button";
    card.className = entry.name === this.fresh ? "card fresh" : "card";
    card.dataset.name = entry.name;
    const strip = document.createElement("span");
    const pictures = entry.thumbnails >= 3 ? 3 : Math.min(entry.thumbnails, 1);
    strip.className = `strip ${pictures === 0 ? "none" : pictures === 1 ? "one" : ""}`;
    if (!pictures) strip.textContent = entry.base ? "base class" : "no pictures kept";
    card.pictures = Array.from({ length: pictures }, (_, number) => ({ number, entry, strip }));
    const text = document.createElement("span");
    text.className = "text";
    const title = Object.assign(document.createElement("span"), { className: "title", textContent: entry.name });
    const count = Object.assign(document.createElement("span"), { className: "count", textContent: plural(entry.photos, "photo") });
    title.title = entry.name;
    text.append(title, count);
    card.append(strip, text);
    card.addEventListener("click", () => this.onOpen(entry));
    return card;
  }

  showPictures() {
    for (const card of this.list.querySelectorAll(".card")) {
      for (const { number, entry, strip } of card.pictures.splice(0)) {
        const image = Object.assign(document.createElement("img"), { alt: "", decoding: "async" });
        image.onerror = () => { image.hidden = true; };
        strip.append(image);
        api.showPicture(image, api.thumbnail(entry.name, number, entry.version)).catch(() => { image.hidden = true; });
      }
    }
  }

  // Arrow keys go through all classes, including those without a card yet.
  move(event) {
    const item = event.target.closest("li");
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: this.columns, ArrowUp: -this.columns };
    const ends = { Home: 0, End: this.total - 1 };
    if (!item || !(event.key in steps || event.key in ends)) return;
    event.preventDefault();
    const index = event.key in ends ? ends[event.key] : Number(item.dataset.index) + steps[event.key];
    if (index < 0 || index >= this.total) return;
    this.wanted = index;
    const { columns, height } = this.measure();
    const middle = this.list.getBoundingClientRect().top + scrollY + Math.floor(index / columns) * height;
    if (middle < scrollY || middle + height > scrollY + innerHeight) scrollTo(0, middle - innerHeight / 2 + height / 2);
    this.draw();
  }

  focusWanted() {
    if (this.wanted === null || this.wanted === undefined) return;
    const index = Math.min(this.wanted, this.total - 1);
    const card = this.list.querySelector(`li[data-index="${index}"] .card`);
    if (card) {
      this.wanted = null;
      card.focus({ preventScroll: true });
    }
  }
}
