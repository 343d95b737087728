"""Words: a table from vectors, and texts through it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from panda_mdp.cli.frame import progress_console, working, write_json
from panda_mdp.cli.options import (
    Epsilon,
    FromOne,
    Gap,
    Json,
    MaybePath,
    NewTable,
    NonNegative,
    Target,
    described,
)
from panda_mdp.cli.printing import show

if TYPE_CHECKING:
    from panda_mdp.space.domain import Domain

TOGETHER = 20_000
"""Lines that are drawn at a time."""
TABLE = {
    "words": "{words:,}",
    "epsilon": "{epsilon:g} {per}, audited {audited_epsilon:.6g}",
    "expected distance": "{loss_words}",
    "drawn as they are": "{kept:.1%}",
    "texts": "panda-mdp sanitise {file} FILE -o FILE; the words of a text add up",
}


@dataclass(frozen=True)
class Vectors:
    """Vectors of words in a file.

    Options:
        vectors VECTORS: A file of word vectors.
        metric: Distance of vectors, or their angle.
        names FILE: For .npy and .safetensors: the words, one per line.
        limit COUNT: Take only so many words, the first ones.
    """

    vectors: Path
    metric: Literal["euclidean", "angular"] = "euclidean"
    names: MaybePath = None
    limit: FromOne = None

    def domain(self) -> Domain:
        """The words under the distance of their vectors."""
        from panda_mdp.space.embeddings import load_embeddings

        found = load_embeddings(self.vectors, words=self.names, limit=self.limit)
        return found.domain(self.metric)


@described
def words(
    vectors: Vectors,
    out: NewTable,
    epsilon: Epsilon = 2.0,
    gap: Gap = 0.01,
    time_limit: NonNegative = 0.0,
    json: Json = None,
) -> None:
    """Make a table of words from their vectors: any word may be reported for any other.

    Vectors are text (GloVe, word2vec, fastText .vec), word2vec's .bin, or .npy or a model's
    .safetensors with --names. The expected distance of word and report is made least, certified and
    audited.

    Options:
        out FILE: Target, .pmdp.
        epsilon NUMBER: Privacy budget per unit of distance.
        gap NUMBER: Gap to the bound at which it ends.
        time_limit SECONDS: End with the best so far; 0 for no limit.
    """
    import numpy as np

    from panda_mdp.loss import distance_loss
    from panda_mdp.methods.certify import print_progress
    from panda_mdp.methods.optimal.optimal import optimal
    from panda_mdp.problem import Problem

    with working("reading the vectors"):
        domain = vectors.domain()
        every = np.arange(domain.size)
        problem = Problem(domain, every, distance_loss(domain, every), epsilon)
    table = optimal(problem, gap, time_limit=time_limit or None, progress=print_progress)
    table.save(out)
    kept = float(np.mean([table.row(k)[k] for k in every[:: max(1, domain.size // 1000)]]))
    numbers = {
        "file": str(out),
        "words": domain.size,
        "unit": domain.unit,
        "epsilon": epsilon,
        "audited_epsilon": table.audit.epsilon,
        "loss": table.loss,
        "loss_words": table.loss_words,
        "lower_bound": table.lower_bound,
        "kept": kept,
    }
    show(str(out), TABLE, json, numbers)


@described
def sanitise(table: Path, text: Path, out: Target, json: Json = None) -> None:
    """Replace every word of a text file by a draw from a table of words; a line is a text.

    Words and numbers are replaced; those that the table does not have take the row of its unknown
    word, or of the word in the middle. Blanks and punctuation stay. Prints how many words were
    drawn as they were, and what the longest line spends; never a word of the text.

    Options:
        table TABLE: A saved table of words (.pmdp).
        text FILE: The text, UTF-8.
        out FILE: Target for the text.
    """
    from panda_mdp.base.atomic import atomic_file
    from panda_mdp.errors import InvalidInputError
    from panda_mdp.frames.text import Sanitiser, TextSummary
    from panda_mdp.panda.file import load
    from panda_mdp.table.mechanism import Mechanism

    mechanism = load(table)
    if not isinstance(mechanism, Mechanism):
        raise InvalidInputError(f"{table} is a table of PAnDA; give one that `words` made")
    sanitiser, summary = Sanitiser(mechanism), TextSummary()
    with (
        progress_console().status("drawing") as status,
        text.open("rb") as stream,
        atomic_file(out) as target,
    ):
        while lines := list(islice(stream, TOGETHER)):
            try:
                texts = [line.decode() for line in lines]
            except UnicodeDecodeError:
                texts = []
            if not texts:
                raise InvalidInputError(f"{text} is not text in UTF-8; convert it first")
            target.write("".join(sanitiser.texts(texts, summary)).encode())
            status.update(f"drawing: {summary.words:,} words")
    typer.echo("\n".join([*summary.lines(), f"saved to {out}"]))
    write_json(
        json, {name: getattr(summary, name) for name in ("texts", "words", "kept", "unknown")}
    )
