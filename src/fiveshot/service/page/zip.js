// A ZIP archive of files, stored as they are. The archive refers to the files: they are read one after the other,
// and no photo is copied into memory.

const TABLE = Uint32Array.from({ length: 256 }, (_, value) => {
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
  return value;
});
const MOST_BYTES = 2 ** 32 - 1; // larger archives are of another kind
const MOST_FILES = 2 ** 16 - 1;
const UTF8 = 0x800; // the names are UTF-8
const VERSION = 20;

// Returns an archive of {name, file}; `tell` is called with the number of files that were read.
export async function zipped(entries, tell = () => {}) {
  const size = entries.reduce((sum, { file }) => sum + file.size + 1024, 0);
  if (size > MOST_BYTES || entries.length > MOST_FILES) {
    throw new Error("These photos are too many for one ZIP file (4 GB). Sort fewer at a time, or use the command: fiveshot sort MODEL FOLDER --into DIR.");
  }
  const parts = [];
  const directory = [];
  let offset = 0;
  for (const [place, { name, file }] of entries.entries()) {
    tell(place);
    const path = new TextEncoder().encode(name);
    const common = [[VERSION, 2], [UTF8, 2], [0, 2], ...time(new Date(file.lastModified)), [await checksum(file), 4], [file.size, 4], [file.size, 4], [path.length, 2], [0, 2]];
    const head = bytes([[0x04034b50, 4], ...common]);
    directory.push(bytes([[0x02014b50, 4], [VERSION, 2], ...common, [0, 2], [0, 2], [0, 2], [0, 4], [offset, 4]]), path);
    parts.push(head, path, file);
    offset += head.length + path.length + file.size;
  }
  const length = directory.reduce((sum, part) => sum + part.length, 0);
  const count = entries.length;
  const end = bytes([[0x06054b50, 4], [0, 2], [0, 2], [count, 2], [count, 2], [length, 4], [offset, 4], [0, 2]]);
  return new Blob([...parts, ...directory, end], { type: "application/zip" });
}

// Numbers as little-endian bytes: [value, how many bytes].
function bytes(fields) {
  const made = new Uint8Array(fields.reduce((sum, [, width]) => sum + width, 0));
  let place = 0;
  for (const [value, width] of fields) {
    for (let byte = 0; byte < width; byte++) made[place++] = (value >>> (8 * byte)) & 255;
  }
  return made;
}

// Time and date of MS-DOS, which begins in 1980 and has steps of two seconds.
function time(when) {
  const clock = (when.getHours() << 11) | (when.getMinutes() << 5) | (when.getSeconds() >> 1);
  const day = (Math.max(0, when.getFullYear() - 1980) << 9) | ((when.getMonth() + 1) << 5) | when.getDate();
  return [[clock, 2], [day, 2]];
}

// CRC-32 of a file.
async function checksum(file) {
  let sum = -1;
  const reader = file.stream().getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return ~sum >>> 0;
    for (const byte of value) sum = TABLE[(sum ^ byte) & 255] ^ (sum >>> 8);
  }
}
