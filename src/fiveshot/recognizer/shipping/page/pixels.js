// A photo as the network takes it: the squares that fiveshot's Python code makes, pixel by pixel.
//
// A canvas may smooth as it likes, so photos are resized here: first rows, then columns, each rounded to 8 bits, with
// the filters that Pillow has. The same photo then gives the same numbers in every browser.

const FILTERS = {
  bilinear: { support: 1, weigh: (x) => Math.max(0, 1 - Math.abs(x)) },
  bicubic: { support: 2, weigh: bicubic },
  lanczos: { support: 3, weigh: (x) => (Math.abs(x) < 3 ? sinc(x) * sinc(x / 3) : 0) },
};
const STRIP = 128; // rows that are read from a photo at a time, so that a large one takes little memory

function bicubic(x) {
  const a = -0.5;
  const t = Math.abs(x);
  if (t < 1) return ((a + 2) * t - (a + 3)) * t * t + 1;
  return t < 2 ? ((t - 5) * t + 8) * t * a - 4 * a : 0;
}

const sinc = (x) => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));

// Python rounds halves to the even neighbor.
function roundHalfEven(x) {
  const below = Math.floor(x);
  if (x - below !== 0.5) return Math.round(x);
  return below % 2 ? below + 1 : below;
}

// For `count` of the points that a line of `from` becomes when it is resized to `to`: which pixels count, and how much.
function taps(from, to, first, count, { support, weigh }) {
  const scale = from / to;
  const stretch = Math.max(scale, 1); // a smaller picture averages over more pixels
  const found = [];
  for (let place = first; place < first + count; place += 1) {
    const center = (place + 0.5) * scale;
    const start = Math.max(0, Math.trunc(center - support * stretch + 0.5));
    const end = Math.min(from, Math.trunc(center + support * stretch + 0.5));
    const weights = Float64Array.from({ length: end - start }, (_, i) => weigh((i + start - center + 0.5) / stretch));
    const total = weights.reduce((sum, one) => sum + one, 0);
    found.push({ start, weights: weights.map((one) => one / total) });
  }
  return found;
}

// Which part of a photo of this size a view shows: the size it is resized to, and the corner of the square in it.
export function place(view, size, width, height, rounding) {
  if (view.resize_both_sides_to) return { width: size, height: size, left: 0, top: 0 };
  const short = Math.min(width, height);
  const [wide, tall] = [width, height].map((side) => Math.trunc((view.resize_short_side_to * side) / short));
  const round = rounding === "down" ? Math.floor : roundHalfEven;
  return { width: wide, height: tall, left: round((wide - size) / 2), top: round((tall - size) / 2) };
}

// Makes the squares of all views of a photo; `readRows(top, count)` returns so many of its rows in RGBA.
export function squares(readRows, width, height, input) {
  if (input.squash_both_sides_to) {
    const side = input.squash_both_sides_to;
    const whole = resized([{ width: side, height: side, left: 0, top: 0 }], side, readRows, width, height, input.interpolation)[0];
    const rgba = (top, count) => withAlpha(whole.subarray(3 * side * top, 3 * side * (top + count)));
    return squares(rgba, side, side, { ...input, squash_both_sides_to: null });
  }
  const size = input.shape.at(-1);
  const places = input.views.map((view) => place(view, size, width, height, input.rounding));
  const made = resized(places, size, readRows, width, height, input.interpolation);
  return made.map((square, number) => (input.views[number].mirrored ? mirrored(square, size) : square));
}

function withAlpha(rgb) {
  const rgba = new Uint8ClampedArray((rgb.length / 3) * 4);
  for (let from = 0, to = 0; from < rgb.length; from += 3, to += 4) rgba.set(rgb.subarray(from, from + 3), to);
  return rgba;
}

function resized(places, size, readRows, width, height, interpolation) {
  const filter = FILTERS[interpolation];
  const across = places.map((one) => taps(width, one.width, one.left, size, filter));
  const rows = places.map(() => new Uint8ClampedArray(height * size * 3));
  for (let top = 0; top < height; top += STRIP) {
    const count = Math.min(STRIP, height - top);
    const strip = readRows(top, count);
    rows.forEach((whole, number) => resizeRows(strip, width, count, across[number], whole.subarray(top * size * 3)));
  }
  return places.map((one, number) => resizeColumns(rows[number], size, taps(height, one.height, one.top, size, filter)));
}

function resizeRows(rgba, width, count, points, out) {
  let to = 0;
  for (let row = 0; row < count; row += 1) {
    for (const { start, weights } of points) {
      let [red, green, blue] = [0, 0, 0];
      let from = 4 * (row * width + start);
      for (const weight of weights) {
        red += weight * rgba[from];
        green += weight * rgba[from + 1];
        blue += weight * rgba[from + 2];
        from += 4;
      }
      out[to] = Math.floor(red + 0.5); // the array holds 0 to 255 and keeps within
      out[to + 1] = Math.floor(green + 0.5);
      out[to + 2] = Math.floor(blue + 0.5);
      to += 3;
    }
  }
}

function resizeColumns(rows, size, points) {
  const line = 3 * size;
  const out = new Uint8ClampedArray(points.length * line);
  const sums = new Float64Array(line);
  points.forEach(({ start, weights }, row) => {
    sums.fill(0);
    weights.forEach((weight, i) => {
      const from = (start + i) * line;
      for (let x = 0; x < line; x += 1) sums[x] += weight * rows[from + x];
    });
    for (let x = 0; x < line; x += 1) out[row * line + x] = Math.floor(sums[x] + 0.5);
  });
  return out;
}

function mirrored(square, size) {
  const out = new Uint8ClampedArray(square.length);
  for (let row = 0; row < size; row += 1) {
    for (let x = 0; x < size; x += 1) {
      const from = 3 * (row * size + x);
      out.set(square.subarray(from, from + 3), 3 * (row * size + size - 1 - x));
    }
  }
  return out;
}

// The numbers that the graph takes, (views, 3, size, size).
export function normalized(views, { mean, std }) {
  const plane = views[0].length / 3;
  const out = new Float32Array(views.length * 3 * plane);
  views.forEach((square, number) => {
    for (let channel = 0; channel < 3; channel += 1) {
      const to = (3 * number + channel) * plane;
      for (let i = 0; i < plane; i += 1) out[to + i] = (square[3 * i + channel] / 255 - mean[channel]) / std[channel];
    }
  });
  return out;
}
