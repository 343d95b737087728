"""From fixes to visits and priors."""

from __future__ import annotations

import re
import secrets
from pathlib import Path

import numpy as np
import pytest

from panda_mdp import Domain, Problem, distance_loss, exponential, inspect
from panda_mdp.city.traces import Traces, load_traces
from panda_mdp.errors import InvalidInputError, PrivacyError


@pytest.fixture
def domain() -> Domain:
    return Domain.from_points([41.90, 41.91, 41.95], [12.49, 12.50, 12.60])


@pytest.fixture
def traces(tmp_path: Path) -> Traces:
    """Ann stays at record 0 and goes to 1; Bob is at 2 and once far away."""
    rows = [
        ("ann", 0, 41.9001, 12.4901),
        ("bob", 5, 41.9501, 12.6001),
        ("ann", 10, 41.9002, 12.4902),
        ("ann", 20, 41.9101, 12.5001),
        ("bob", 30, 45.0, 9.0),
        ("ann", 40, 41.9003, 12.4903),
    ]
    path = tmp_path / "fixes.csv"
    lines = [f"{user},{time},{lat},{lon}" for user, time, lat, lon in rows]
    path.write_text("\n".join(["user,time,lat,lon", *lines, "broken"]))
    return load_traces(path)


def test_visits_count_what_is_inside(traces: Traces, domain: Domain) -> None:
    visits = traces.visits(domain, limit_km=0.5)
    assert visits.counts.tolist() == [3, 1, 1]
    assert (visits.outside, visits.people, visits.report.malformed) == (1, 2, 1)
    assert visits.bounded.tolist() == [3, 1, 1]


def test_the_repr_of_visits_shows_no_exact_count(tmp_path: Path, domain: Domain) -> None:
    path = tmp_path / "fixes.csv"
    fixes = ["ann,41.90,12.49"] * 123 + ["bob,45.0,9.0"] * 71 + ["broken"] * 37
    path.write_text("\n".join(["user,lat,lon", *fixes]))
    visits = load_traces(path).visits(domain)
    assert (visits.counts[0], visits.outside, visits.report.malformed) == (123, 71, 37)
    # Nothing but the public parameters: 3 records, 0.5 km, 16 visits each.
    assert set(re.findall(r"\d+", repr(visits))) == {"3", "0", "5", "16"}


def test_swapped_traces_are_noticed(tmp_path: Path, domain: Domain) -> None:
    path = tmp_path / "fixes.csv"
    path.write_text("user,lat,lon\nann,12.49,41.90\nbob,12.50,41.91\nbob,41.90,12.49\n")
    with pytest.raises(InvalidInputError, match="latitude and longitude exchanged"):
        load_traces(path).visits(domain)
    columns = {"lat": "lon", "lon": "lat"}
    assert load_traces(path, columns=columns).visits(domain).counts.tolist() == [1, 1, 0]


def test_nobody_counts_for_more_than_the_bound(tmp_path: Path, domain: Domain) -> None:
    path = tmp_path / "fixes.csv"
    lines = ["user,lat,lon", *["busy,41.90,12.49"] * 500, *["busy,41.91,12.50"] * 500]
    path.write_text("\n".join([*lines, "calm,41.95,12.60"]))
    for contribution in (1, 10, 400):
        visits = load_traces(path).visits(domain, contribution=contribution)
        assert visits.counts.tolist() == [500, 500, 1]
        assert visits.bounded.sum() == contribution + 1 and visits.bounded[2] == 1
    # The sample is of all visits, not of the first: 400 of 1,000 leave none of the two out.
    assert visits.bounded[0] > 100 and visits.bounded[1] > 100
    with pytest.raises(InvalidInputError, match="contribution is 0"):
        load_traces(path).visits(domain, contribution=0)


def test_priors_carry_their_provenance(traces: Traces, domain: Domain, tmp_path: Path) -> None:
    visits = traces.visits(domain)
    problem = Problem(domain, [0, 1], distance_loss(domain, [0, 1]), epsilon=1.0)
    public = visits.public_prior(source="city's open data, 2024")
    assert public.weights.tolist() == [0.6, 0.2, 0.2]
    assert public.on(problem).prior_source == "public: city's open data, 2024"
    assert np.array_equal(public.on(problem).prior, public.weights)
    private = visits.private_prior(0.5)
    assert private.epsilon == 0.5
    assert "epsilon=0.5 per person" in private.on(problem).prior_source
    certified = exponential(private.on(problem)).save(tmp_path / "table.pmdp")
    assert inspect(certified).header["notes"]["prior_source"] == private.source
    # Exact counts beside the noisy ones would undo the noise.
    assert "5 fixes" not in private.source


def test_private_priors_need_to_know_who_is_who(tmp_path: Path, domain: Domain) -> None:
    path = tmp_path / "fixes.csv"
    path.write_text("lat,lon\n41.90,12.49\n41.91,12.50\n")
    visits = load_traces(path).visits(domain)
    assert visits.public_prior().weights.tolist() == [0.5, 0.5, 0.0]
    with pytest.raises(PrivacyError, match="2 fixes name no person"):
        visits.private_prior(1.0)


@pytest.mark.parametrize("column", ["id", "ID", "uid"])
def test_a_column_that_may_number_the_rows_names_nobody(
    tmp_path: Path, domain: Domain, column: str
) -> None:
    """One person with 10,000 rows, each with its own id, moved a count by 10,000."""
    path = tmp_path / "fixes.csv"
    rows = [f"{k},41.90,12.49" for k in range(100)]
    path.write_text("\n".join([f"{column},lat,lon", *rows]))
    visits = load_traces(path).visits(domain)
    with pytest.raises(PrivacyError, match=rf"columns=\{{'user': '{column}'\}}"):
        visits.private_prior(1.0)
    said = load_traces(path, columns={"user": column}).visits(domain)
    assert said.private_prior(1.0).epsilon == 1.0


def test_an_unmistakable_column_wins_over_a_doubtful_one(tmp_path: Path, domain: Domain) -> None:
    path = tmp_path / "fixes.csv"
    rows = [f"{k},ann,41.90,12.49" for k in range(100)]
    path.write_text("\n".join(["id,driver,lat,lon", *rows]))
    visits = load_traces(path).visits(domain)
    assert visits.people == 1 and visits.bounded.tolist() == [16, 0, 0]
    assert visits.private_prior(1.0).epsilon == 1.0


@pytest.mark.parametrize("nobody", ["", " ", "NaN", "null", "None"])
def test_a_fix_without_a_person_is_not_a_person(
    tmp_path: Path, domain: Domain, nobody: str
) -> None:
    path = tmp_path / "fixes.csv"
    path.write_text(f"user,lat,lon\nann,41.90,12.49\n{nobody},41.90,12.49\n")
    with pytest.raises(PrivacyError, match="1 fixes name no person"):
        load_traces(path).visits(domain).private_prior(1.0)


def test_visits_are_drawn_with_the_operating_system(
    tmp_path: Path, domain: Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The smallest keys stay: with keys that fall, the last visits."""
    asked = []

    def falling(count: int) -> bytes:
        asked.append(count)
        return np.arange(count // 8, 0, -1, dtype=np.uint64).tobytes()

    monkeypatch.setattr(secrets, "token_bytes", falling)
    path = tmp_path / "fixes.csv"
    path.write_text(
        "\n".join(["user,lat,lon", *["ann,41.90,12.49"] * 50, *["ann,41.91,12.50"] * 10])
    )
    visits = load_traces(path).visits(domain, contribution=10)
    assert asked == [8 * 60] and visits.bounded.tolist() == [0, 10, 0]
