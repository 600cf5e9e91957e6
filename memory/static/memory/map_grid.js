/** Which point is near: points sorted into the cells of a grid, so that a few dozen are looked at instead of all. */

const CELLS = 192;

/** `x` and `y` are between 0 and 1. */
export function makeGrid(x, y) {
  const cells = new Uint16Array(x.length);
  const starts = new Int32Array(CELLS * CELLS + 1);
  for (let k = 0; k < x.length; k++) {
    cells[k] = cellOf(y[k]) * CELLS + cellOf(x[k]);
    starts[cells[k] + 1]++;
  }
  for (let cell = 0; cell < CELLS * CELLS; cell++) starts[cell + 1] += starts[cell];
  const next = starts.slice();
  const points = new Int32Array(x.length);
  for (let k = 0; k < x.length; k++) points[next[cells[k]]++] = k;
  return { x, y, starts, points };
}

/** The nearest shown point within `reach` of a place, or -1. */
export function nearestPoint(grid, shown, px, py, reach) {
  let best = -1;
  let least = reach * reach;
  const [left, right] = [cellOf(px - reach), cellOf(px + reach)];
  for (let row = cellOf(py - reach); row <= cellOf(py + reach); row++) {
    const end = grid.starts[row * CELLS + right + 1];
    for (let place = grid.starts[row * CELLS + left]; place < end; place++) {
      const k = grid.points[place];
      if (!shown[k]) continue;
      const distance = (grid.x[k] - px) ** 2 + (grid.y[k] - py) ** 2;
      if (distance < least) [best, least] = [k, distance];
    }
  }
  return best;
}

/** The nearest shown point in a direction, by how far it is and how far aside; or -1. */
export function pointTowards(grid, shown, from, dx, dy) {
  let best = -1;
  let least = Infinity;
  for (let k = 0; k < grid.x.length; k++) {
    if (!shown[k] || k === from) continue;
    const [ax, ay] = [grid.x[k] - grid.x[from], grid.y[k] - grid.y[from]];
    const along = ax * dx + ay * dy;
    const aside = Math.abs(ax * dy - ay * dx);
    if (along <= 0 || aside > along) continue;
    const cost = along + 2 * aside;
    if (cost < least) [best, least] = [k, cost];
  }
  return best;
}

function cellOf(share) {
  return Math.max(0, Math.min(CELLS - 1, Math.floor(share * CELLS)));
}
