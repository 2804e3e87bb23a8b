// Helpers of the views: elements, texts for numbers, and work in slices.

export const $ = (id) => document.getElementById(id);

export function make(kind, className, ...children) {
  const element = document.createElement(kind);
  if (className) element.className = className;
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

export function button(text, className, onClick, label) {
  const made = make("button", className, text);
  made.type = "button";
  if (label) made.setAttribute("aria-label", label);
  if (onClick) made.addEventListener("click", onClick);
  return made;
}

export function message(kind, strong, ...rest) {
  const box = make("div", `message ${kind}`);
  if (strong) box.append(make("strong", "", strong), " ");
  box.append(...rest);
  return box;
}

// The name of a file, which may be broken after a mark.
export const fileName = (name) => make("span", "name", ...name.split(/([_-]+)/).flatMap((part, place) => (place % 2 ? [part, make("wbr")] : [part])));

export const plural = (count, one) =>
  `${count.toLocaleString("en")} ${one}${count === 1 ? "" : one.endsWith("s") ? "es" : "s"}`;
export const percent = (share) => {
  const hundredths = 100 * share;
  if (hundredths > 0 && hundredths < 1) return "under 1 %";
  return `${hundredths > 99 && hundredths < 100 ? "over 99" : Math.round(hundredths)} %`;
};
const ID = /^[ps]\d+\b/; // of a learned photo or a sighting
// A text of the service as a sentence. An id or the name of a file is not changed, even at the beginning of a sentence.
export function sentence(text, names = []) {
  const trimmed = String(text).trim();
  if (!trimmed) return "";
  const begun = ID.test(trimmed) || names.some((name) => trimmed.startsWith(name)) ? trimmed : trimmed[0].toUpperCase() + trimmed.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
export const quoted = (names, most = 5) => {
  const more = names.length > most ? ` and ${plural(names.length - most, "other")}` : "";
  return names.slice(0, most).map((name) => `“${name}”`).join(", ") + more;
};

export function grouped(items, keyOf) {
  const groups = new Map();
  for (const item of items) {
    const key = keyOf(item);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(item);
  }
  return groups;
}

const SLICE = 8; // milliseconds; a frame has sixteen
const rest = () => new Promise((resolve) => setTimeout(resolve));

// Does long work in slices, so that the page never freezes; `still` can end it early.
export async function inSlices(items, work, still = () => true) {
  let until = performance.now() + SLICE;
  for (const item of items) {
    work(item);
    if (performance.now() < until) continue;
    await rest();
    if (!still()) return;
    until = performance.now() + SLICE;
  }
}

// Calls the function after a moment without further calls.
export function afterwards(milliseconds, work) {
  let timer;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
}
