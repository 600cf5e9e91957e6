/**
 * Draws points into the pixels of a canvas, and names and rings onto a second one above it.
 *
 * A canvas draws tens of thousands of shapes slowly where there is no graphics processor. So a point is a small stamp,
 * made once for its size, that is mixed into an array of pixels: one way for every machine, and without WebGL.
 */

const SHADES = 64;
const NAME_GAP = 10;
const LEAST_NAME = 12.5;
const LARGEST_NAME = 19;
const NARROW = 560;

/** As large as many points allow, and larger when one looks closer. */
export function radiusOf(count, zoom) {
  const all = Math.max(1.25, Math.min(6, 52 / Math.cbrt(Math.max(count, 1)) ** 1.22));
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
        this.#stamp(stamp, px, py, isShown ? (colours[cluster[k]] ?? faint) : faint, strength);
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

/**
 * Names of clusters where there is room, the largest first; what does not fit comes as one looks closer. The most telling
 * word stands above the others, which a narrow map leaves out.
 */
export function drawNames(context, { clusters, view, width, height, ink, soft, paper, font, zoom }) {
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.lineJoin = "round";
  const taken = [];
  const most = Math.max(1, ...clusters.map((cluster) => cluster.shown));
  const isNarrow = width / view.ratio < NARROW && zoom < 2;
  for (const cluster of clusters) {
    if (!cluster.shown) continue;
    const size = (LEAST_NAME + (LARGEST_NAME - LEAST_NAME) * Math.sqrt(cluster.shown / most)) * Math.min(1.3, zoom ** 0.12) * view.ratio;
    const [first, ...others] = cluster.name.split(", ");
    const lines = [{ text: first, font: `600 ${size}px ${font}`, colour: ink, tall: size * 1.2 }];
    if (others.length && !isNarrow) lines.push({ text: others.join(" · "), font: `400 ${size * 0.76}px ${font}`, colour: soft, tall: size * 0.95 });
    for (const line of lines) {
      context.font = line.font;
      line.width = context.measureText(line.text).width;
    }
    const [half, tall] = [Math.max(...lines.map((line) => line.width)) / 2, lines.reduce((sum, line) => sum + line.tall, 0)];
    const edge = 6 * view.ratio;
    const x = Math.max(half + edge, Math.min(width - half - edge, cluster.x * view.scale + view.left));
    const y = cluster.y * view.scale + view.top;
    const isNear = Math.abs(x - cluster.x * view.scale - view.left) < half && y > 0 && y < height;
    const box = [x - half - NAME_GAP, y - tall / 2 - NAME_GAP / 2, x + half + NAME_GAP, y + tall / 2 + NAME_GAP / 2];
    if (!isNear || taken.some((other) => overlaps(box, other))) continue;
    taken.push(box);
    let top = y - tall / 2;
    for (const line of lines) {
      drawName(context, line, x, top + line.tall / 2, paper);
      top += line.tall;
    }
  }
}

function drawName(context, { text, font, colour, tall }, x, y, paper) {
  context.font = font;
  context.strokeStyle = paper;
  context.lineWidth = tall * 0.26;
  context.globalAlpha = 0.82;
  context.strokeText(text, x, y);
  context.globalAlpha = 1;
  context.fillStyle = colour;
  context.fillText(text, x, y);
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
