/** Tables that are private at every point of an area (`.pmdp`), and draw at the point. */

import {
  audit, type AuditOptions, type AuditResult, HALF, type OwnAudit, rowOf, type Told, TOTAL, type Weights,
  weightsFrom,
} from "./audit";
import type { Place } from "./area";
import type { Bytes } from "./bytes";
import { Container, type Header } from "./container";
import { FormatError, SnapError } from "./errors";
import { identityOf } from "./identity";
import { type Located, Mesh, vertexOf } from "./mesh";
import { Haversine } from "./metric";
import { choose } from "./sampler";

const UNITS = 2 ** 30;
const MOST_ENTRIES = 30_000_000;

type MeshHeader = Header & Required<Pick<Header, "mesh">>;

export class EverywhereTable {
  private constructor(
    readonly header: MeshHeader, readonly mesh: Mesh, readonly outputs: Int32Array,
    readonly weights: Weights, private readonly open: Container,
  ) {}

  /** SHA-256 over everything that has a meaning. */
  identity(): Promise<string> {
    return identityOf(this.open);
  }

  get metric(): Haversine {
    return this.mesh.places;
  }

  get epsilon(): number {
    return this.header.epsilon;
  }

  static async read(file: Bytes): Promise<EverywhereTable> {
    const archive = await Container.open(file);
    const { header } = archive;
    const { domain, mesh } = header;
    if (!mesh || header.selection || domain.kind !== "haversine" || header.outputs.kind !== "records") {
      throw new FormatError("otherFormat");
    }
    const [size, m] = [archive.length("lat"), archive.length("outputs")];
    if (!(mesh.spacing > 0)) throw new FormatError("damaged", "the mesh has no spacing");
    if (size * m > MOST_ENTRIES) throw new FormatError("tooLarge");
    const metric = new Haversine(await archive.floats("lat", size), await archive.floats("lon", size));
    const at = Array.from(await archive.integers("mesh_vertices", size, 2), Number);
    const area = await archive.floats("mesh_area", archive.length("mesh_area"), 2);
    const pairs = (values: ArrayLike<number>) =>
      Array.from({ length: values.length / 2 }, (_, k) => [values[2 * k], values[2 * k + 1]] as const);
    return new EverywhereTable(
      { ...header, mesh }, new Mesh(mesh.middle, mesh.spacing, pairs(at), pairs(area), metric),
      await archive.records("outputs", size, m), weightsFrom(await archive.integers("weights", size, m), size, m),
      archive,
    );
  }

  /** Where a place lies in the mesh; the refusal does not name it. */
  locate({ lat, lon }: Place): Located {
    const found = this.mesh.locate(lat, lon);
    if (!found) throw new SnapError("outside");
    return found;
  }

  /** A vertex of the place's triangle, and a column of its row: another vertex for each draw. */
  draw(place: Place, word: () => bigint): number {
    const vertex = vertexOf(this.locate(place), word());
    return choose(rowOf(this.weights, vertex), word());
  }

  /** Pr[report | place]. */
  shares(place: Place): Float64Array {
    const { vertices, weights } = this.locate(place);
    const { low, high, outputs: m } = this.weights;
    return Float64Array.from({ length: m }, (_, y) => vertices.reduce((sum, vertex, k) => {
      const at = vertex * m + y;
      return sum + ((weights[k] / UNITS) * (high[at] * HALF + low[at])) / TOTAL;
    }, 0));
  }

  /** All pairs of vertices, and every point of every triangle. */
  async audit(options: AuditOptions): Promise<AuditResult & { triangles: number }> {
    const found = await audit({ metric: this.metric, outputs: this.outputs, epsilon: this.epsilon }, this.weights, options);
    const { epsilon, triangles } = this.mesh.rate(this.weights);
    return {
      ...found, holds: found.holds && epsilon <= this.epsilon, epsilon: Math.max(found.epsilon, epsilon), triangles,
    };
  }

  /** What the law of a place allows against vertices within some distances of it. */
  own(place: Place, distances: readonly number[]): OwnAudit {
    const mine = this.shares(place);
    const { low, high, outputs: m, size } = this.weights;
    const told: Told[] = distances.map((distance) => {
      let [guess, records]: [number | null, number] = [null, 0];
      for (let x = 0; x < size; x++) {
        if (this.metric.distanceFrom(place.lat, place.lon, x) > distance) continue;
        let variation = 0;
        for (let y = 0; y < m; y++) {
          variation += Math.abs(mine[y] - (high[x * m + y] * HALF + low[x * m + y]) / TOTAL);
        }
        guess = Math.max(guess ?? 0, 0.5 + variation / 4);
        records++;
      }
      return { distance, guess, records };
    });
    const { epsilon } = this.mesh.rate(this.weights);
    return { holds: epsilon <= this.epsilon, epsilon, pairs: size, told };
  }
}
