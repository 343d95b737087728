"""The build of the proofs can fail: one wrong statement or definition per part, each refused.

Every change below makes something false that a theorem says. Each is made by itself, to one file
beside the compiled others, and that file must no longer compile.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

PROOFS = Path(__file__).parents[2] / "proofs"

WRONG = {
    "exp, from above": (
        "Fixed",
        "squares 64 (one + Z.shiftr (Z.min l (128 * one)) 64)",
        "squares 64 (one + Z.min l (128 * one))",
    ),
    "cos, a term too many": ("Angle", "then brackets 7 0 (t * t)", "then brackets 8 0 (t * t)"),
    "pi, a digit": ("Angle", "half_pi_low : Z := 5345142", "half_pi_low : Z := 5345143"),
    "a larger earth": ("Nats", "en * 63710088 * angle_low", "en * 63710089 * angle_low"),
    "angles above": ("Nats", "angle_low (cosine_high p q)", "angle_high (cosine_low p q)"),
    "one side of a ratio": ("Check", "| Lt => b * one <=? e * a", "| Lt => true"),
    "zeros": ("Check", "| Gt => a * one <=? e * b", "| Gt => (b =? 0) || (a * one <=? e * b)"),
    "a tile's radius": ("Check", "- radius a - radius b in", "- radius a in"),
    "the lowest weights": ("Check", "(zip Z.min) (map", "(zip Z.max) (map"),
    "tiles of a matrix": ("Check", "match s with Given _ => false | _ => true end.", "true."),
    "an asymmetric matrix": (
        "Check",
        "entry (tl (snd a)) (head (snd b)) =? entry (tl (snd b)) (head (snd a))",
        "true",
    ),
    "an entry above the floor": (
        "Check",
        "| Lt => ratio_ok e x (f i) && rows_ok e f a' b",
        "| Lt => rows_ok e f a' b",
    ),
    "an entry of the other row": (
        "Check",
        "| Gt => ratio_ok e (f j) y && along b'",
        "| Gt => along b'",
    ),
    "floors of other columns": ("Check", "(f i =? g) && numbered", "numbered"),
    "row sums": ("Check", "&& (sum w =? total)", "&& (sum w <=? total)"),
    "triangles": ("Given", "1000000001 * (step + b)", "1000000002 * (step + b)"),
    "the draw's border": ("Sampler", "if u <? w then 0", "if u <=? w then 0"),
    "cumulative sums": ("Sampler", "c <=? u) (cumulative 0 row)).", "c <? u) (cumulative 0 row))."),
    "what rejection keeps": ("Sampler", "+ number (fun u => negb (accept u)) (below n) * n", "+ n"),
    "negative multipliers": ("Bound", "/\\ (forall y, 0 <= multiplier e y).", "/\\ True."),
    "the bound's growth": ("BoundFile", "r (map (Z.mul g) l)", "r (map (Z.mul one) l)"),
    "multipliers unchecked": ("BoundFile", "&& forallb (Z.leb 0) l", ""),
    "mixing more than all": ("Processing", "a q, 0 <= a <= 1 ->", "a q, 0 <= a ->"),
    "snapping once": ("Processing", "(D p p' + 2 * limit)", "(D p p' + limit)"),
    "composition for free": ("Processing", "exp (a x x' + b x x') *", "exp (a x x') *"),
    "a sum that varies for free": ("Balls", "  mdp (a + k) d (fun", "  mdp a d (fun"),
    "places that are snapped for free": (
        "Balls",
        "  <= exp (eps1 * d x x' + ((eps2 + edge) * d x x' + k)) * (A x' c",
        "  <= exp (eps1 * d x x' + (eps2 + edge) * d x x') * (A x' c",
    ),
    "an edge for free": (
        "Balls",
        "  faded x c y <= exp ((eps2 + edge) * d x x') * faded",
        "  faded x c y <= exp (eps2 * d x x') * faded",
    ),
    "exp without end": (
        "Fixed",
        "Definition exp_low (l : Z) : Z := squares 64 (one + Z.shiftr (Z.min l",
        "Definition exp_low (l : Z) : Z := squares 64 (one + Z.shiftr (Z.max l",
    ),
    "a plane without stretch": (
        "Cover",
        "distance p q <= (1 + t) * angle_between p q.\nProof",
        "distance p q <= angle_between p q.\nProof",
    ),
    "angles beyond the segment": (
        "Cover",
        "0 <= s <= 1 -> let b := along a c s in",
        "0 <= s <= 1 -> let b := along a c (2 * s) in",
    ),
    "open sets": ("Cover", "0 <= fst c * t + snd c.", "0 < fst c * t + snd c."),
    "a triangle's rate": ("MeshFile", "<=? 3 * n * (rate_num m", "<=? 4 * n * (rate_num m"),
    "a missing triangle": ("MeshFile", "=> existsb (separated m i j e) (axes m)", "=> true"),
    "a gap of nothing": ("MeshFile", "(0 <? gap)", "(0 <=? gap)"),
    "the nearest corner": (
        "Lattice",
        "  Z.max (squared i j) (Z.max",
        "  Z.min (squared i j) (Z.max",
    ),
    "what an unselected anchor tells": ("Coins", "1 - p <= exp c * (1 - q) /\\", "True /\\"),
    "a star at half of epsilon": (
        "Star",
        "  mdp epsilon d (fun x y => w y * decay x y).",
        "  mdp (epsilon / 2) d (fun x y => w y * decay x y).",
    ),
    "a star's far outputs": ("Star", "x <> y -> mu x <= cost x y) ->", "x <> y -> True) ->"),
    "an edge one way": ("Edges", "\n  && columns_ok x (row i) (row j) &&", "\n  &&"),
    "an edge of another length": ("Edges", "one / (den * unit).", "one / den."),
    "an edge's rows": ("Edges", "row_ok (row i) && row_ok (row j)", "row_ok (row i)"),
    "ways that are longer for free": (
        "Edges",
        "way edges x z (steps + rest)\n  | back",
        "way edges x z rest\n  | back",
    ),
    "half a gradient": ("Mesh", "length2 g <= eps_c * least", "length2 g <= 2 * eps_c * least"),
}


def compiles(built: Path, file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["coqc", "-q", "-Q", built, "Panda", file],
        cwd=file.parent,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_statement_does_not_compile(name, built, tmp_path):
    file, right, wrong = WRONG[name]
    text = (PROOFS / f"{file}.v").read_text(encoding="utf-8")
    assert text.count(right) == 1, "the proofs changed; change this list with them"
    path = tmp_path / f"{file}.v"
    path.write_text(text.replace(right, wrong), encoding="utf-8")
    done = compiles(built, path)
    assert done.returncode != 0
    assert "Error" in done.stderr
    assert "Syntax error" not in done.stderr, "a wrong statement is due, not a wrong sentence"
    assert "not found in the current environment" not in done.stderr


def test_the_right_statements_compile(built, tmp_path):
    """The way in which the wrong ones are compiled is not what refuses them."""
    for file in ("Sampler", "Balls"):
        path = Path(shutil.copy(PROOFS / f"{file}.v", tmp_path))
        assert compiles(built, path).returncode == 0


@pytest.mark.parametrize("gap", ["Admitted.", "admit. Qed.", "Axiom more : 0 = 1."])
def test_nothing_is_left_open(gap, built, tmp_path):
    """The build refuses a statement without a proof before it compiles anything."""
    copy = shutil.copytree(PROOFS, tmp_path / "proofs")
    with (copy / "Sums.v").open("a", encoding="utf-8") as stream:
        stream.write(
            f"\nLemma open : 0 = 1. Proof. {gap}\n" if "Axiom" not in gap else f"\n{gap}\n"
        )
    done = subprocess.run(
        [copy / "build", tmp_path / "out"],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert "leave something unproved" in done.stderr
