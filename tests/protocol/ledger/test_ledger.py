"""The ledger: charged before sent, never refunded, one writer, refused when in doubt."""

from __future__ import annotations

import math
import os
import signal
import stat
import subprocess
import sys
import threading

import pytest

from panda_mdp.errors import BudgetError, InvalidInputError, LedgerError
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.protocol.ledger.books import (
    Allowance,
    Charge,
    Drawn,
    Entry,
    State,
    account_of,
    new_id,
)
from panda_mdp.protocol.ledger.ledger import (
    COUNT,
    KEY,
    LEDGER,
    LOCK,
    NEW_KEY,
    Ledger,
    Vault,
    file_lock,
)

DAY = 86_400
COST = Guarantee(2.0, 0.0, "km")
PLACES = "haversine km"
BOX = 128


class Clock:
    def __init__(self, now: float = 20_000.25 * DAY) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def allowance(**changes) -> Allowance:
    return Allowance(**{"epsilon": 5.0, "period_epsilon": 6.0, **changes})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ledger(tmp_path, clock) -> Ledger:
    return Ledger.open(tmp_path, allowance(), clock=clock)


def settle(ledger: Ledger, entry: Entry, state: State) -> None:
    with ledger.books() as books:
        books.settle(entry, state)


def pending(ledger: Ledger) -> list[Entry]:
    with ledger.books() as books:
        return books.pending()


def charge(
    ledger: Ledger, index: int | None = None, cost: Guarantee = COST, account: str = PLACES
) -> Entry:
    content = Drawn(report=new_id(), version=1, output=7)
    with ledger.books() as books:
        memo = None if index is None else books.memo(index, {"deployment": "d"})
        return books.charge(Charge(account, "s", "d", cost), content, BOX, memo)


def entries(ledger: Ledger) -> list[Entry]:
    with ledger.books() as books:
        return books.all()


def test_what_is_spent_adds_up_and_is_refused_at_the_limit(ledger):
    for _ in range(3):
        charge(ledger)
    with pytest.raises(BudgetError, match=r"epsilon 6 of 6 is spent .* next period \(64800 s\)"):
        charge(ledger)
    (balance,) = ledger.balances()
    assert (balance.reports, balance.spent.epsilon, balance.left_epsilon) == (3, 6.0, 0.0)
    assert balance.against_sum == Guarantee(2.0, 0.0, "km")
    assert balance.pending == 3
    assert balance.ends == 20_001 * DAY


def test_all_periods_together_are_shown(ledger, clock):
    for _ in range(3):
        charge(ledger)
        clock.now += DAY
    (balance,) = ledger.balances()
    assert (balance.reports, balance.spent.epsilon, balance.left_epsilon) == (0, 0.0, 6.0)
    assert balance.against_sum.epsilon == 0.0
    assert balance.ever == Guarantee(6.0, 0.0, "km")


def test_sums_are_of_the_numbers_as_written(tmp_path, clock):
    books = Ledger.open(tmp_path, allowance(period_epsilon=0.3), clock=clock)
    for _ in range(3):
        charge(books, cost=Guarantee(0.1, 0.0, "km"))
    with pytest.raises(BudgetError):
        charge(books, cost=Guarantee(1e-9, 0.0, "km"))


@pytest.mark.parametrize(
    ("cost", "why"),
    [
        (Guarantee(5.5, 0.0, "km"), "one release costs epsilon 5.5"),
        (Guarantee(1.0, 1e-6, "km"), "one release costs delta"),
        (Guarantee(1.0, 0.0, "m"), "per m, and the limits are per km"),
    ],
)
def test_one_release_has_limits_of_its_own(ledger, cost, why):
    with pytest.raises(BudgetError, match=why):
        charge(ledger, cost=cost)
    assert entries(ledger) == []


def test_deltas_and_numbers_of_reports_are_limited():
    allowed = allowance(delta=1e-6, period_delta=1.5e-6, reports=2)
    cost = Guarantee(1.0, 1e-6, "km")
    assert allowed.excess([], cost) is None
    assert "delta 1e-06 of 1.5e-06 is spent" in str(allowed.excess([cost], cost))
    free = Guarantee(1.0, 0.0, "km")
    assert allowed.excess([free], free) is None
    assert "2 of 2 reports" in str(allowed.excess([free, free], free))


def test_accounts_of_different_metrics_do_not_add():
    import panda_mdp as pm

    rome = pm.Domain.from_points([41.9, 41.91], [12.5, 12.5])
    london = pm.Domain.from_points([51.5, 51.51], [0.0, 0.0])
    assert account_of(rome) == account_of(london) == PLACES
    roads = pm.Domain.from_matrix([[0.0, 1.0], [1.0, 0.0]], unit="km")
    others = pm.Domain.from_matrix([[0.0, 2.0], [2.0, 0.0]], unit="km")
    assert len({account_of(roads), account_of(others), PLACES}) == 3


def test_a_second_account_has_its_own_sum(ledger):
    for account in (PLACES, "matrix km 0"):
        for _ in range(3):
            charge(ledger, account=account)
        with pytest.raises(BudgetError):
            charge(ledger, account=account)
    assert [balance.account for balance in ledger.balances()] == [PLACES, "matrix km 0"]


def test_the_same_record_is_found_within_a_period_only(ledger, clock):
    entry = charge(ledger, 3)
    with ledger.books() as books:
        found = books.find(books.memo(3, {"deployment": "d"}))
        assert found == entry
        assert books.find(books.memo(4, {"deployment": "d"})) is None
        assert books.find(books.memo(3, {"deployment": "e"})) is None
        before = books.memo(3, {"deployment": "d"})
    clock.now += DAY
    with ledger.books() as books:
        after = books.memo(3, {"deployment": "d"})
        assert books.find(after) is None
        assert books.find(before) is None
    assert before != after


def test_a_period_ends_at_its_boundary(ledger, clock):
    clock.now = 20_001 * DAY - 1e-3
    for _ in range(3):
        charge(ledger)
    with pytest.raises(BudgetError):
        charge(ledger)
    clock.now = 20_001 * DAY
    charge(ledger)
    assert ledger.balances()[0].period == 20_001


def test_a_clock_that_goes_back_stays_in_the_latest_period(ledger, clock):
    charge(ledger, 3)
    clock.now -= 3 * DAY
    with ledger.books() as books:
        assert books.period == 20_000
        assert books.find(books.memo(3, {"deployment": "d"})) is not None
    charge(ledger)
    charge(ledger)
    with pytest.raises(BudgetError, match="clock is behind"):
        charge(ledger)


def test_ended_periods_keep_their_costs_and_lose_what_was_drawn(ledger, clock):
    settle(ledger, charge(ledger, 3), "accepted")
    lost = charge(ledger, 4)
    clock.now += DAY
    (waiting,) = entries(ledger)
    assert (waiting.id, waiting.memo, waiting.box) == (lost.id, None, lost.box)
    assert pending(ledger) == [waiting]
    settle(ledger, waiting, "accepted")
    clock.now += DAY
    assert entries(ledger) == []
    (balance,) = ledger.balances()
    assert (balance.reports, balance.ever) == (0, Guarantee(4.0, 0.0, "km"))


def test_charges_stay_whatever_becomes_of_them(ledger):
    settle(ledger, charge(ledger, 1), "given_up")
    settle(ledger, charge(ledger, 2), "accepted")
    charge(ledger, 3)
    assert ledger.forget() == 3
    assert ledger.balances()[0].spent.epsilon == 6.0
    assert pending(ledger) == []
    with pytest.raises(BudgetError):
        charge(ledger, 4)


def test_a_release_without_guarantee_spends_everything(ledger):
    endless = Guarantee(math.inf, 1.0, "km")
    with pytest.raises(BudgetError):
        charge(ledger, cost=endless)
    content = Drawn(report=new_id(), version=1)
    with ledger.books() as books:
        books.charge(Charge(PLACES, "s", "d", endless, accept_no_guarantee=True), content, BOX)
    with pytest.raises(BudgetError):
        charge(ledger)
    assert ledger.balances()[0].left_epsilon == 0.0


def test_nothing_of_a_failed_transaction_remains(ledger):
    class Stop(Exception):
        pass

    with pytest.raises(Stop), ledger.books() as books:
        books.charge(Charge(PLACES, "s", "d", COST), Drawn(report=new_id(), version=1), BOX)
        raise Stop
    assert entries(ledger) == []


def test_two_threads_cannot_both_spend_the_last_of_it(ledger):
    outcomes: list[str] = []

    def spend() -> None:
        try:
            charge(ledger)
            outcomes.append("charged")
        except BudgetError:
            outcomes.append("refused")

    threads = [threading.Thread(target=spend) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["charged"] * 3 + ["refused"] * 5


WORKER = """
import sys
from panda_mdp.errors import BudgetError
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.protocol.ledger.ledger import Ledger
from panda_mdp.protocol.ledger.books import Charge, Drawn
from panda_mdp.protocol.ledger.books import new_id
from panda_mdp.protocol.ledger.books import Allowance

made = Ledger.open(sys.argv[1], Allowance(epsilon=1.0, period_epsilon=20.0, period_s=10**9))
done = 0
for index in range(20):
    try:
        with made.books() as books:
            memo = books.memo(index, {})
            if books.find(memo) is None:
                books.charge(Charge("a", "s", "d", Guarantee(1.0, 0.0, "km")),
                             Drawn(report=new_id(), version=1, output=index), 128, memo)
                done += 1
                print(index, flush=True)
    except BudgetError:
        break
"""


def test_processes_share_one_set_of_books(tmp_path):
    """Three processes make the ledger at once and want the same 20 records: one draw for each."""
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    drawn = [int(line) for worker in workers for line in worker.communicate(timeout=300)[0].split()]
    assert all(worker.returncode == 0 for worker in workers)
    assert sorted(drawn) == list(range(20))


@pytest.mark.skipif(os.name != "posix", reason="kill -9 is of POSIX systems")
def test_what_was_printed_after_its_commit_survives_kill_9(tmp_path):
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    seen = [int(worker.stdout.readline()) for _ in range(5)]
    os.kill(worker.pid, signal.SIGKILL)
    rest = worker.communicate(timeout=300)[0].split()
    # The last line may have been printed inside the transaction that the kill undid.
    known = (seen + [int(line) for line in rest])[:-1]
    entries = pending(Ledger.open(tmp_path))
    assert len(entries) >= len(known) >= 4
    outputs = [entry.content.output for entry in entries if entry.content]
    assert set(known) <= set(outputs)
    assert len(set(outputs)) == len(outputs)


def test_a_ledger_that_somebody_holds_is_waited_for_and_then_refused(ledger, tmp_path, clock):
    ledger = Ledger.open(tmp_path, clock=clock, busy_s=0.2)
    with file_lock(tmp_path / LOCK), pytest.raises(LedgerError, match="another process"):
        charge(ledger)
    charge(ledger)


def test_a_missing_ledger_is_not_an_empty_one(ledger, tmp_path, clock):
    charge(ledger)
    (tmp_path / LEDGER).unlink()
    with pytest.raises(LedgerError, match=r"ledger is missing.*start over"):
        Ledger.open(tmp_path, allowance(), clock=clock)
    with pytest.raises(LedgerError, match="ledger is missing"):
        charge(ledger)
    assert not (tmp_path / LEDGER).exists()


def test_a_missing_key_is_not_made_again(ledger, tmp_path, clock):
    charge(ledger)
    (tmp_path / KEY).unlink()
    with pytest.raises(LedgerError, match="key is missing"):
        Ledger.open(tmp_path, allowance(), clock=clock)
    with pytest.raises(LedgerError, match="key is missing"):
        Ledger.open(tmp_path, clock=clock)


def test_a_crash_while_a_ledger_is_made_leaves_nothing_in_the_way(ledger, tmp_path, clock):
    """Its key has another name until all of it is there."""
    (tmp_path / KEY).rename(tmp_path / NEW_KEY)
    charge(Ledger.open(tmp_path, allowance(), clock=clock))
    assert not (tmp_path / NEW_KEY).exists()


@pytest.mark.parametrize("damage", ["cut", "noise", "bit", "empty", "foreign"])
def test_a_damaged_ledger_is_refused(ledger, tmp_path, clock, damage):
    """Whatever was changed: a cost, an entry, all of it; the file is sealed as a whole."""
    for index in range(3):
        charge(ledger, index)
    path = tmp_path / LEDGER
    data = bytearray(path.read_bytes())
    if damage == "cut":
        data = data[: len(data) // 2]
    elif damage == "noise":
        data[500:700] = os.urandom(200)
    elif damage == "bit":
        data[len(data) // 2] ^= 1
    elif damage == "empty":
        data = bytearray()
    else:
        data = bytearray(b"not a ledger")
    path.write_bytes(data)
    with pytest.raises(LedgerError, match="is damaged"):
        Ledger.open(tmp_path, clock=clock).balances()
    with pytest.raises(LedgerError, match="is damaged"):
        charge(ledger)


def test_another_ledgers_key_is_refused(ledger, tmp_path, clock):
    other = tmp_path / "other"
    Ledger.open(other, allowance(), clock=clock)
    (tmp_path / KEY).write_bytes((other / KEY).read_bytes())
    with pytest.raises(LedgerError, match="not this ledger's"):
        Ledger.open(tmp_path, clock=clock)


def test_starting_over_counts_the_running_period_as_spent(ledger, tmp_path, clock):
    charge(ledger)
    (tmp_path / LEDGER).write_bytes(b"broken")
    with pytest.raises(LedgerError):
        Ledger.open(tmp_path, clock=clock)
    again = Ledger.start_over(tmp_path, allowance(), clock=clock)
    for opened in (ledger, again):
        with pytest.raises(BudgetError, match="started over"):
            charge(opened)
    with pytest.raises(BudgetError, match="started over"):
        charge(Ledger.open(tmp_path, clock=clock))
    clock.now += DAY
    charge(again)


def test_limits_are_changed_by_name_only(ledger, tmp_path, clock):
    more = allowance(period_epsilon=8.0)
    with pytest.raises(LedgerError, match="change_allowance"):
        Ledger.open(tmp_path, more, clock=clock)
    other_process = Ledger.open(tmp_path, clock=clock)
    ledger.change_allowance(more)
    for _ in range(4):
        charge(other_process)
    with pytest.raises(LedgerError, match=r"period_s, repeats cannot be changed"):
        ledger.change_allowance(allowance(period_s=60, repeats="fresh"))


def test_without_an_allowance_there_must_be_a_ledger(tmp_path):
    with pytest.raises(LedgerError, match="client init"):
        Ledger.open(tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_files_are_their_owners_alone(ledger, tmp_path):
    charge(ledger)
    for name in (LEDGER, KEY):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    (tmp_path / KEY).chmod(0o644)
    with pytest.raises(LedgerError, match="chmod 600"):
        Ledger.open(tmp_path)


def test_the_file_holds_neither_record_nor_output_and_is_as_long_for_all(tmp_path, clock):
    """The two marks are numbers that occur nowhere else."""
    lengths = set()
    for number, (record, output) in enumerate(((987_654_321, 876_543), (1, 2))):
        folder = tmp_path / str(number)
        ledger = Ledger.open(folder, allowance(), clock=clock)
        with ledger.books() as books:
            memo = books.memo(record, {"deployment": "d"})
            content = Drawn(report=new_id(), version=1, output=output)
            books.charge(Charge(PLACES, "s", "d", COST), content, 512, memo)
        lengths.add((folder / LEDGER).stat().st_size)
        for path in folder.iterdir():
            data = path.read_bytes()
            for mark in (987_654_321, 876_543):
                assert str(mark).encode() not in data
                for width in (4, 8):
                    assert mark.to_bytes(width, "little") not in data
                    assert mark.to_bytes(width, "big") not in data
    assert len(lengths) == 1


def test_every_commit_is_synced_in_full(ledger, monkeypatch):
    """The new file before it gets its name, and the folder that has the name."""
    seen: list[str] = []
    sync = os.fsync

    def watched(handle: int) -> None:
        seen.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        sync(handle)

    monkeypatch.setattr("os.fsync", watched)
    charge(ledger)
    assert seen[:2] == ["file", "folder"] and seen[-1] == "folder"


def test_what_was_replaced_is_overwritten(ledger, tmp_path):
    """As far as a file system lets it: marks and answers that were erased leave no old copy."""
    charge(ledger, 3)
    with (tmp_path / LEDGER).open("rb") as before:
        ledger.forget()
        assert set(before.read()) == {0}


def test_a_vault_shows_and_pickles_nothing(tmp_path):
    import pickle

    vault = Vault(bytes(32))
    assert "key" not in repr(vault).lower()
    with pytest.raises(TypeError):
        pickle.dumps(vault)
    box = tmp_path / "box"
    box.write_bytes(vault.lock(b"what was drawn", "a"))
    assert vault.unlock(box, "a") == b"what was drawn"
    with pytest.raises(LedgerError, match="is damaged"):
        vault.unlock(box, "b")


def test_what_is_drawn_must_fit_its_box(ledger):
    content = Drawn(report=new_id(), version=1, output=7)
    with pytest.raises(LedgerError, match="does not fit"), ledger.books() as books:
        books.charge(Charge(PLACES, "s", "d", COST), content, 64)
    assert entries(ledger) == []


def test_no_more_is_drawn_than_the_signed_quota_takes(tmp_path):
    """Whatever the period of the ledger is; a clock that is set back begins no period anew."""
    now = [1e9]
    ledger = Ledger.open(tmp_path, allowance(period_epsilon=1e3, period_s=60), clock=lambda: now[0])

    def draw(deployment: str = "d") -> None:
        content = Drawn(report=new_id(), version=1, output=7)
        charge = Charge(PLACES, "s", deployment, COST, quota=2, quota_s=86_400)
        with ledger.books() as books:
            books.charge(charge, content, BOX)

    draw()
    now[0] += 3_600
    draw()
    now[0] += 3_600
    for back_s in (0, 86_400 * 3):
        now[0] -= back_s
        with pytest.raises(BudgetError, match="takes 2 reports in 86400 s"):
            draw()
        now[0] += back_s
    draw("another")
    now[0] += 86_400
    draw()


@pytest.mark.parametrize(
    "wrong",
    [
        {"epsilon": 0.0},
        {"period_epsilon": math.inf},
        {"delta": 1.0},
        {"reports": 0},
        {"period_s": 0},
        {"repeats": "never"},
        {"metrics": ()},
        {"metrics": ("manhattan",)},
        {"snap_km": -1.0},
    ],
)
def test_limits_must_make_sense(wrong):
    with pytest.raises(InvalidInputError):
        allowance(**wrong)


def test_an_allowance_survives_its_ledger(tmp_path):
    for number, given in enumerate(
        (
            allowance(delta=1e-7, reports=3, metrics=("haversine", "matrix")),
            allowance(snap_km=math.inf),
        )
    ):
        Ledger.open(tmp_path / str(number), given)
        assert Ledger.open(tmp_path / str(number)).allowance == given


def test_an_older_copy_of_the_book_is_noticed(ledger):
    charge(ledger, 1)
    copy = (ledger.folder / LEDGER).read_bytes()
    charge(ledger, 2)
    (ledger.folder / LEDGER).write_bytes(copy)
    with pytest.raises(LedgerError, match="older copy was put back"):
        charge(ledger, 3)


@pytest.mark.parametrize("damage", [None, b"", b"1x 1 0", b"\xff", b"9" * 5000, b"1 1 00"])
def test_a_count_that_is_gone_or_damaged_is_not_made_again(ledger, damage):
    charge(ledger, 1)
    (ledger.folder / COUNT).unlink()
    if damage is not None:
        (ledger.folder / COUNT).write_bytes(damage)
    with pytest.raises(LedgerError, match=r"count is missing|is damaged"):
        charge(ledger, 2)


def test_a_crash_after_the_commit_leaves_a_count_that_refuses_nothing(ledger):
    charge(ledger, 1)
    before = (ledger.folder / COUNT).read_bytes()
    charge(ledger, 2)
    (ledger.folder / COUNT).write_bytes(before)
    charge(ledger, 3)


def test_starting_over_with_a_short_period_does_not_shorten_the_running_one(tmp_path, clock):
    ledger = Ledger.open(tmp_path, allowance(), clock=clock)
    charge(ledger, 1)
    short = allowance(period_s=4)
    anew = Ledger.start_over(tmp_path, short, clock=clock)
    clock.now += 60
    with pytest.raises(BudgetError, match="started over"):
        charge(anew, 1)
    clock.now = 20_001 * DAY + 1
    charge(anew, 1)
