/** Ways to a place without pointing at it: names, the device's position, a list, two numbers. */

import type { PlaceName } from "../core/api";
import { distanceWords } from "../core/words";
import { by, make } from "../dom";
import type { NameLayer } from "../map/names";
import { words } from "../words";

const MOST = 8;

export class Finder {
  private names: NameLayer | null = null;

  constructor(private readonly pick: (lat: number, lon: number) => void) {
    by("search").addEventListener("input", () => this.search());
    by("search").addEventListener("keydown", (event) => {
      if (event.key !== "Enter") return;
      event.preventDefault();
      by("search-results").querySelector("button")?.click();
    });
    by("by-numbers").addEventListener("submit", (event) => {
      event.preventDefault();
      this.numbers();
    });
    const here = by("here");
    here.hidden = by("here-said").hidden = !navigator.geolocation;
    here.addEventListener("click", () => this.locate());
  }

  setNames(names: NameLayer | null): void {
    this.names = names;
    by<HTMLInputElement>("search").disabled = !names;
    by("search-said").textContent = names ? "" : words().noNames;
  }

  private search(): void {
    const text = by<HTMLInputElement>("search").value;
    const found = this.names?.search(text, MOST) ?? [];
    const list = by("search-results");
    list.replaceChildren(...found.map((name) => this.entry(name)));
    list.hidden = found.length === 0;
    by("search-said").textContent = text.trim().length < 2 ? "" : words().searchCount(found.length);
  }

  private entry({ name, lat, lon }: PlaceName): HTMLElement {
    const button = make("button", { type: "button" }, name);
    button.addEventListener("click", () => {
      by("search-results").hidden = true;
      by<HTMLInputElement>("search").value = name;
      by("search-said").textContent = "";
      this.pick(lat, lon);
    });
    return make("li", {}, button);
  }

  private numbers(): void {
    const numbers = by<HTMLInputElement>("numbers").value.split(/[,;\s]+/).filter(Boolean);
    const [lat, lon] = numbers.map(Number);
    const right = numbers.length === 2 && Number.isFinite(lat) && Number.isFinite(lon);
    by("numbers-said").textContent = right ? "" : words().numbersWrong;
    if (right) this.pick(lat, lon);
  }

  /** Asked for by the person, each time; nothing is kept. */
  private locate(): void {
    const said = by("here-said");
    said.dataset.said = "yes";
    said.textContent = words().hereWait;
    navigator.geolocation.getCurrentPosition(
      ({ coords }) => {
        said.textContent = words().hereOff(distanceWords(coords.accuracy / 1000));
        this.pick(coords.latitude, coords.longitude);
      },
      () => {
        said.textContent = words().hereFailed;
      },
      { enableHighAccuracy: true, maximumAge: 0, timeout: 30_000 },
    );
  }
}
