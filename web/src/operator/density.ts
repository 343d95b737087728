/** Shares at places as a smooth density, in shares per square km, so that maps can be compared. */

export interface Field {
  /** Cells, row by row from the south. */
  readonly values: Float64Array;
  readonly columns: number;
  readonly rows: number;
  /** The lower left corner and the size of a cell, metres. */
  readonly x: number;
  readonly y: number;
  readonly cell: number;
}

/** A grid around places, with a margin of three widths of the kernel. */
export function gridFor(xy: Float32Array, width: number): Omit<Field, "values"> {
  let box = [Infinity, Infinity, -Infinity, -Infinity];
  for (let k = 0; k < xy.length; k += 2) {
    box = [
      Math.min(box[0], xy[k]), Math.min(box[1], xy[k + 1]),
      Math.max(box[2], xy[k]), Math.max(box[3], xy[k + 1]),
    ];
  }
  const cell = Math.max(width / 3, Math.max(box[2] - box[0], box[3] - box[1]) / 220);
  const margin = 3 * width + cell;
  const [x, y] = [box[0] - margin, box[1] - margin];
  return {
    x, y, cell,
    columns: Math.ceil((box[2] + margin - x) / cell) + 1,
    rows: Math.ceil((box[3] + margin - y) / cell) + 1,
  };
}

/** Spread each share over a Gaussian; every kernel sums to its share. */
export function smooth(
  grid: Omit<Field, "values">, xy: Float32Array, places: ArrayLike<number>,
  shares: ArrayLike<number>, width: number,
): Field {
  const values = new Float64Array(grid.columns * grid.rows);
  const reach = Math.ceil((3 * width) / grid.cell);
  const kernel = new Float64Array((2 * reach + 1) ** 2);
  for (let k = 0; k < places.length; k++) {
    if (!(shares[k] > 0)) continue;
    const [px, py] = [xy[2 * places[k]], xy[2 * places[k] + 1]];
    const [column, row] = [Math.floor((px - grid.x) / grid.cell), Math.floor((py - grid.y) / grid.cell)];
    let sum = 0;
    for (let i = 0, at = 0; i <= 2 * reach; i++) {
      for (let j = 0; j <= 2 * reach; j++, at++) {
        const dy = grid.y + (row + i - reach + 0.5) * grid.cell - py;
        const dx = grid.x + (column + j - reach + 0.5) * grid.cell - px;
        kernel[at] = Math.exp(-(dx * dx + dy * dy) / (2 * width * width));
        sum += kernel[at];
      }
    }
    for (let i = 0, at = 0; i <= 2 * reach; i++) {
      const to = row + i - reach;
      for (let j = 0; j <= 2 * reach; j++, at++) {
        const from = column + j - reach;
        if (to < 0 || from < 0 || to >= grid.rows || from >= grid.columns) continue;
        values[to * grid.columns + from] += (shares[k] * kernel[at]) / sum;
      }
    }
  }
  const area = (grid.cell / 1000) ** 2;
  for (let k = 0; k < values.length; k++) values[k] /= area;
  return { ...grid, values };
}

/** The width of the kernel: half the usual distance between two outputs. */
export function kernelWidth(xy: Float32Array, outputs: ArrayLike<number>): number {
  let box = [Infinity, Infinity, -Infinity, -Infinity];
  for (let k = 0; k < outputs.length; k++) {
    const [x, y] = [xy[2 * outputs[k]], xy[2 * outputs[k] + 1]];
    box = [Math.min(box[0], x), Math.min(box[1], y), Math.max(box[2], x), Math.max(box[3], y)];
  }
  const area = Math.max(1, (box[2] - box[0]) * (box[3] - box[1]));
  return Math.max(20, 0.5 * Math.sqrt(area / Math.max(1, outputs.length)));
}

// Cividis, which all kinds of colour vision read alike.
const STOPS = [
  [254, 232, 56], [211, 193, 100], [166, 157, 117], [125, 124, 120], [87, 93, 109], [42, 63, 108],
  [0, 34, 78],
];

/** The colour of a share of the scale; dark grounds get the scale the other way round. */
export function shade(t: number, dark: boolean): [number, number, number] {
  const along = Math.min(0.9999, Math.max(0, dark ? 1 - t : t)) * (STOPS.length - 1);
  const k = Math.floor(along);
  const part = along - k;
  const mix = (c: number) => Math.round(STOPS[k][c] + part * (STOPS[k + 1][c] - STOPS[k][c]));
  return [mix(0), mix(1), mix(2)];
}

/** The field as a picture; what is nearly nothing is nearly clear. */
export function picture(field: Field, top: number, dark: boolean): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = field.columns;
  canvas.height = field.rows;
  const pen = canvas.getContext("2d");
  if (!pen) return canvas;
  const image = pen.createImageData(field.columns, field.rows);
  for (let row = 0; row < field.rows; row++) {
    for (let column = 0; column < field.columns; column++) {
      const t = field.values[row * field.columns + column] / top;
      // Pictures begin at the top.
      const at = 4 * ((field.rows - 1 - row) * field.columns + column);
      image.data.set([...shade(t, dark), 255 * Math.min(0.86, 6 * t)], at);
    }
  }
  pen.putImageData(image, 0, 0);
  return canvas;
}
