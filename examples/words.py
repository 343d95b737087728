"""Words: perturb a text word by word, with distances between word vectors.

    python examples/words.py [FOLDER]
    python examples/words.py FOLDER glove.6B.50d.txt       # your own vectors

Without a file of vectors they are learned on the spot from Python's own documentation: counts of
words that stand near each other, as positive pointwise mutual information, reduced to 40
dimensions. Draws where one word goes (words.png).
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
from matplotlib.figure import Figure

import panda_mdp as pm
from panda_mdp import plot
from panda_mdp.plot.style import BLUE, INK, PALE, VERMILION, new_figure
from panda_mdp.space.embeddings import Embeddings, load_embeddings

SENTENCE = "the function returns a list of strings and raises an exception if the name is missing"


def main(
    out: Path = Path("out/examples"), vectors: str = "", words: int = 400, epsilon: float = 4.0
) -> Path:
    embeddings = load_embeddings(vectors, limit=words) if vectors else learn_vectors(words)
    print(embeddings)
    # The angle between vectors, in radians: epsilon is per radian.
    domain = embeddings.domain("angular")
    everything = np.arange(domain.size)
    problem = pm.Problem(domain, everything, domain.distances(), epsilon)
    table = pm.exponential(problem, tight=True)
    print(table)

    # Each word spends epsilon times its own distances; the words of a text add up.
    known = [word for word in SENTENCE.split() if word in embeddings.index]
    for _ in range(3):
        drawn = [embeddings.words[table.sample(embeddings.index[word])] for word in known]
        print(" ".join(known), "->", " ".join(drawn), sep="\n  ")
    word = next(word for word in ("string", "list", *embeddings.words) if word in embeddings.index)
    return plot.save_figure(draw(embeddings, table, word), out / "words.png")


def learn_vectors(count: int, window: int = 5, dimensions: int = 40) -> Embeddings:
    """Vectors of the most frequent words of Python's documentation."""
    tokens = re.findall(r"[a-z]{2,}", " ".join(topics.values()).lower())
    kept = [word for word, _ in Counter(tokens).most_common(count)]
    index = {word: k for k, word in enumerate(kept)}
    numbers = np.array([index.get(word, -1) for word in tokens])
    together = np.zeros((count, count))
    for step in range(1, window + 1):
        first, second = numbers[:-step], numbers[step:]
        both = (first >= 0) & (second >= 0)
        np.add.at(together, (first[both], second[both]), 1 / step)
    together += together.T
    share = together.sum(axis=1) / together.sum()
    with np.errstate(divide="ignore"):
        information = np.log(together / together.sum() / np.outer(share, share))
    left, scale, _ = np.linalg.svd(np.maximum(information, 0))
    size = min(dimensions, count - 1)
    return Embeddings(tuple(kept), left[:, :size] * np.sqrt(scale[:size]))


def draw(embeddings: Embeddings, table: pm.Mechanism, word: str) -> Figure:
    """The words nearest to a word: distance from the centre is the angle to it, area is chance."""
    record = embeddings.index[word]
    apart = table.problem.domain.distances([record])[0]
    near = np.argsort(apart)[1:41]
    # Words of like meaning stand side by side: directions are ordered by a projection.
    around = table.problem.domain.metric.embedding[near]
    _, _, main_axes = np.linalg.svd(around - around.mean(axis=0), full_matrices=False)
    flat = (around - around.mean(axis=0)) @ main_axes[:2].T
    turn = np.empty(len(near))
    turn[np.argsort(np.arctan2(flat[:, 1], flat[:, 0]))] = np.arange(len(near))
    turn *= 2 * np.pi / len(near)
    share = table.matrix[record]
    figure = new_figure(7.6, 8)
    axes = figure.add_subplot(projection="polar")
    areas = 9000 * share
    axes.scatter(turn, apart[near], s=areas[near], color=BLUE, alpha=0.7, linewidth=0)
    axes.scatter([0], [0], s=areas[record], color=VERMILION, alpha=0.7, linewidth=0)
    axes.annotate(f"{word}\n{share[record]:.0%}", (0, 0), ha="center", va="center", weight="bold")
    for k, other in enumerate(near):
        axes.annotate(
            embeddings.words[other], (turn[k], apart[other]), xytext=(0, 7),
            textcoords="offset points", ha="center", color=INK, fontsize=9,
        )  # fmt: skip
    axes.set_ylim(0, 1.08 * apart[near].max())
    axes.set_xticks([])
    axes.set_yticks([0.5, 1.0], ["0.5 rad", "1 rad"], color=PALE)
    axes.spines["polar"].set_visible(False)
    figure.suptitle(
        f"What is reported for the word '{word}': area is probability\n"
        f"{table.method}, epsilon {table.epsilon:g} per rad; all other words together "
        f"{1 - share[near].sum() - share[record]:.0%}",
        x=0.015,
        ha="left",
        color=INK,
    )
    return figure


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/examples")
    print("drawn to", main(folder, sys.argv[2] if len(sys.argv) > 2 else ""))
