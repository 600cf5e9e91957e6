/**
 * Draws points into the pixels of a canvas, and names and rings onto a second one above it.
 *
 * Tens of thousands of shapes take a canvas longer than a frame lasts. So a point is a small stamp, made once for its
 * size, that is mixed into an array of pixels: 50,000 points are a few milliseconds, on any machine and without WebGL.
 */

const SHADES = 64;
const NAME_GAP = 10;
const LEAST_NAME = 12.5;
const LARGEST_NAME = 21;

/** As large as many points allow, and larger when one looks closer. */
export function radiusOf(count, zoom) {
  const all = Math.max(1.25, Math.min(6, 46 / Math.cbrt(Math.max(count, 1)) ** 1.22));
  return Math.min(9, all * zoom ** 0.42);
}

export class Pixels {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false, desynchronized: true });
    this.resize(1, 1);
  }

  resize(width, height) {
    [this.width, this.height] = [Math.max(1, width), Math.max(1, height)];
    [this.canvas.width, this.canvas.height] = [this.width, this.height];
    this.image = this.context.createImageData(this.width, this.height);
    this.pixels = new Uint32Array(this.image.data.buffer);
  }

  /** `colours`: [red, green, blue] of each cluster; `paper` behind all; points that are not shown are a shade of it. */
  draw({ points, shown, view, radius, colours, paper, faint }) {
    this.pixels.fill(packed(paper));
    const stamp = stampOf(radius);
    const { x, y, cluster } = points;
    for (const isShown of [0, 1]) {
      const strength = isShown ? 0.86 : 0.16;
      for (let k = 0; k < x.length; k++) {
        if (shown[k] !== isShown) continue;
        const px = (x[k] * view.scale + view.left + 0.5) | 0;
        const py = (y[k] * view.scale + view.top + 0.5) | 0;
        if (px < stamp.reach || py < stamp.reach || px >= this.width - stamp.reach || py >= this.height - stamp.reach) continue;
        this.#stamp(stamp, px, py, isShown ? colours[cluster[k]] : faint, strength);
      }
    }
    this.context.putImageData(this.image, 0, 0);
  }

  #stamp(stamp, px, py, [red, green, blue], strength) {
    const { pixels, width } = this;
    const { across, down, shades } = stamp;
    const at = py * width + px;
    for (let k = 0; k < shades.length; k++) {
      const place = at + down[k] * width + across[k];
      const share = shades[k] * strength;
      const there = pixels[place];
      const r = there & 255;
      const g = (there >> 8) & 255;
      const b = (there >> 16) & 255;
      pixels[place] =
        0xff000000 |
        ((b + (blue - b) * share) << 16) |
        ((g + (green - g) * share) << 8) |
        (r + (red - r) * share);
    }
  }
}

const stamps = new Map();

/** The pixels of a disk with soft edges: where each is from the middle, and how much of it the disk covers. */
function stampOf(radius) {
  const size = Math.round(radius * 4) / 4;
  if (stamps.has(size)) return stamps.get(size);
  const reach = Math.ceil(size + 0.5);
  const [across, down, shades] = [[], [], []];
  for (let dy = -reach; dy <= reach; dy++) {
    for (let dx = -reach; dx <= reach; dx++) {
      const covered = Math.round(Math.max(0, Math.min(1, size + 0.5 - Math.hypot(dx, dy))) * SHADES) / SHADES;
      if (covered > 0) {
        across.push(dx);
        down.push(dy);
        shades.push(covered);
      }
    }
  }
  const stamp = { reach, across: Int32Array.from(across), down: Int32Array.from(down), shades: Float32Array.from(shades) };
  stamps.set(size, stamp);
  return stamp;
}

function packed([red, green, blue]) {
  return (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
}

/** Names of clusters where there is room, the largest first; what does not fit comes as one looks closer. */
export function drawNames(context, { clusters, view, width, height, ink, paper, font, zoom }) {
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineJoin = "round";
  const taken = [];
  const most = Math.max(1, ...clusters.map((cluster) => cluster.shown));
  for (const cluster of clusters) {
    if (!cluster.shown) continue;
    const size = Math.min(26, (LEAST_NAME + (LARGEST_NAME - LEAST_NAME) * Math.sqrt(cluster.shown / most)) * Math.min(1.25, zoom ** 0.12)) * view.ratio;
    context.font = `600 ${size}px ${font}`;
    const lines = linesOf(cluster.name);
    const [x, y] = [cluster.x * view.scale + view.left, cluster.y * view.scale + view.top];
    const half = Math.max(...lines.map((line) => context.measureText(line).width)) / 2;
    const tall = (size * 1.15 * lines.length) / 2;
    const box = [x - half - NAME_GAP, y - tall - NAME_GAP / 2, x + half + NAME_GAP, y + tall + NAME_GAP / 2];
    if (x < 0 || y < 0 || x > width || y > height || taken.some((other) => overlaps(box, other))) continue;
    taken.push(box);
    lines.forEach((line, place) => {
      const at = y + (place - (lines.length - 1) / 2) * size * 1.15;
      context.strokeStyle = paper;
      context.lineWidth = size * 0.32;
      context.globalAlpha = 0.9;
      context.strokeText(line, x, at);
      context.globalAlpha = 1;
      context.fillStyle = ink;
      context.fillText(line, x, at);
    });
  }
}

/** The first word above the others: a name of three long words is as wide as it is tall. */
function linesOf(name) {
  const words = name.split(", ");
  return words.length < 3 ? words : [words[0], words.slice(1).join(", ")];
}

function overlaps(one, other) {
  return one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3];
}

export function drawRing(context, x, y, radius, colour, ratio) {
  context.beginPath();
  context.arc(x, y, radius + 3 * ratio, 0, 2 * Math.PI);
  context.lineWidth = 2 * ratio;
  context.strokeStyle = colour;
  context.stroke();
}
