// Colours, computed: even steps of lightness are what colour-blind readers and grey prints keep.

/** Linear red, green and blue of OKLCH (Ottosson 2020): lightness and chroma from 0 to 1, hue in degrees. */
function linearOf(lightness, chroma, hue) {
  const turn = (hue * Math.PI) / 180;
  const [a, b] = [chroma * Math.cos(turn), chroma * Math.sin(turn)];
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
}

/** sRGB bytes of the same; a colour that no screen shows is made duller until one does, and keeps its lightness. */
export function rgbOf(lightness, chroma, hue) {
  let linear = linearOf(lightness, chroma, hue);
  while (chroma > 0 && linear.some((one) => one < -1e-4 || one > 1 + 1e-4)) {
    chroma = Math.max(0, chroma - 0.002);
    linear = linearOf(lightness, chroma, hue);
  }
  return linear.map((one) => {
    const value = Math.min(Math.max(one, 0), 1);
    return Math.round(255 * (value <= 0.0031308 ? 12.92 * value : 1.055 * value ** (1 / 2.4) - 0.055));
  });
}

/** 256 colours, [256 * 3] bytes: dark violet over blue and green to yellow, each lighter than the one before. */
export const SCALE = (() => {
  const table = new Uint8ClampedArray(256 * 3);
  for (let i = 0; i < 256; i += 1) {
    const t = i / 255;
    // Blue and teal have no more chroma at these lightnesses; green and yellow have.
    table.set(rgbOf(0.2 + 0.74 * t, 0.092 + 0.085 * Math.max(0, 2 * t - 1) ** 1.2, 305 - 200 * t), 3 * i);
  }
  return table;
})();

/** The same as opaque pixels of an ImageData, in this machine's order of bytes. */
export const PIXELS = (() => {
  const bytes = new Uint8ClampedArray(256 * 4);
  for (let i = 0; i < 256; i += 1) bytes.set([...SCALE.subarray(3 * i, 3 * i + 3), 255], 4 * i);
  return new Uint32Array(bytes.buffer);
})();

/** The colour of a share from 0 to 1, as bytes. */
export function shade(share) {
  const at = 3 * Math.round(255 * Math.min(Math.max(share || 0, 0), 1));
  return [SCALE[at], SCALE[at + 1], SCALE[at + 2]];
}

export const OTHER = [150, 150, 150];

const given = new Map();

/** A class keeps the colour that it got first, in all panes and layers. */
export function colourOfClass(name) {
  if (!given.has(name)) {
    const i = given.size;
    given.set(name, rgbOf([0.72, 0.55, 0.86][i % 3], [0.14, 0.15, 0.11][i % 3], 40 + 137.508 * i));
  }
  return given.get(name);
}

/** The classes that have a colour, in the order in which they got it. */
export function colouredClasses() {
  return [...given.keys()];
}

export function cssOf([r, g, b]) {
  return `rgb(${r} ${g} ${b})`;
}
