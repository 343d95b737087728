/**
 * Reads `.pmdp` files: a sealed zip archive of a certificate and NumPy arrays (docs/format.md).
 * Lengths are checked before anything is inflated; sums find damage, and audits decide.
 */

import { type Bytes, hex } from "./bytes";
import { FormatError } from "./errors";
import { inflate } from "./table";

const SEAL = "panda-mdp sha256 ";
const SEAL_LENGTH = SEAL.length + 64;
const END = 22;
/** "\x93NUMPY", version 1.0. */
const MAGIC = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59, 1, 0];
const MOST_BYTES = 2 ** 30;

interface Member {
  readonly method: number;
  readonly packed: number;
  readonly size: number;
  readonly at: number;
}

export class Archive {
  private constructor(
    private readonly file: Bytes, private readonly members: ReadonlyMap<string, Member>,
  ) {}

  static async open(file: Bytes): Promise<Archive> {
    const body = file.subarray(0, file.length - SEAL_LENGTH) as Bytes;
    const seal = new TextDecoder().decode(file.subarray(body.length));
    if (body.length < END || !seal.startsWith(SEAL)) throw new FormatError("otherFormat");
    const sum = hex(new Uint8Array(await crypto.subtle.digest("SHA-256", body)));
    if (seal.slice(SEAL.length) !== sum) throw new FormatError("checksum");
    const view = new DataView(file.buffer, file.byteOffset, file.length);
    const end = body.length - END;
    const members = new Map<string, Member>();
    try {
      if (view.getUint32(end, true) !== 0x06054b50) throw new RangeError();
      let at = view.getUint32(end + 16, true);
      for (let left = view.getUint16(end + 10, true); left > 0; left--) {
        if (view.getUint32(at, true) !== 0x02014b50) throw new RangeError();
        const length = view.getUint16(at + 28, true);
        const name = new TextDecoder().decode(file.subarray(at + 46, at + 46 + length));
        members.set(name, {
          method: view.getUint16(at + 10, true),
          packed: view.getUint32(at + 20, true),
          size: view.getUint32(at + 24, true),
          at: view.getUint32(at + 42, true),
        });
        at += 46 + length + view.getUint16(at + 30, true) + view.getUint16(at + 32, true);
      }
    } catch {
      throw new FormatError("damaged", "the archive's list cannot be read");
    }
    const total = [...members.values()].reduce((sum_, { size }) => sum_ + size, 0);
    if (total > MOST_BYTES) throw new FormatError("tooLarge");
    return new Archive(file, members);
  }

  async bytes(name: string): Promise<Bytes> {
    const member = this.members.get(name);
    if (!member) throw new FormatError("damaged", `${name} is missing`);
    const view = new DataView(this.file.buffer, this.file.byteOffset + member.at);
    const start = member.at + 30 + view.getUint16(26, true) + view.getUint16(28, true);
    const packed = this.file.slice(start, start + member.packed);
    const plain = member.method === 0 ? packed : await inflate(packed, member.size, "deflate-raw");
    if (plain.length !== member.size) throw new FormatError("damaged", `${name} is short`);
    return plain;
  }

  async json<T>(name: string): Promise<T> {
    try {
      return JSON.parse(new TextDecoder().decode(await this.bytes(name))) as T;
    } catch (error) {
      if (error instanceof FormatError) throw error;
      throw new FormatError("damaged", `${name} is not JSON`);
    }
  }

  private async array(name: string, kind: "<i8" | "<f8", shape: readonly number[]): Promise<ArrayBuffer> {
    const bytes = await this.bytes(`arrays/${name}.npy`);
    const length = bytes.length > 10 ? bytes[8] + 256 * bytes[9] : 0;
    const head = new TextDecoder().decode(bytes.subarray(10, 10 + length));
    const said = shape.length === 1 ? `${shape[0]},` : shape.join(", ");
    const right = MAGIC.every((byte, k) => bytes[k] === byte) && head.includes(`'descr': '${kind}'`)
      && head.includes("'fortran_order': False") && head.includes(`'shape': (${said})`);
    const data = bytes.slice(10 + length);
    if (!right || data.length !== 8 * shape.reduce((a, b) => a * b, 1)) {
      throw new FormatError("damaged", `${name} has another shape`);
    }
    return data.buffer;
  }

  async integers(name: string, ...shape: number[]): Promise<BigInt64Array> {
    return new BigInt64Array(await this.array(name, "<i8", shape));
  }

  async floats(name: string, ...shape: number[]): Promise<Float64Array> {
    return new Float64Array(await this.array(name, "<f8", shape));
  }

  /** Records of a domain of this size. */
  async records(name: string, count: number, size: number): Promise<Int32Array> {
    const given = await this.integers(name, count);
    if (given.some((record) => record < 0n || record >= BigInt(size))) {
      throw new FormatError("damaged", `${name} holds no records`);
    }
    return Int32Array.from(given, Number);
  }
}
