"""What JAX compiles is kept on disk, unless somebody decided otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from panda_mdp.compute.jax.device import keep_compiled

NAMES = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


@pytest.fixture
def unset() -> Iterator[None]:
    before = {name: getattr(jax.config, name) for name in NAMES}
    jax.config.update("jax_compilation_cache_dir", None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_a_folder_of_our_own(unset: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_compiled()
    folder = tmp_path / "panda-mdp" / "jax"
    assert jax.config.jax_compilation_cache_dir == str(folder) and folder.is_dir()


def test_what_the_user_set_stays(
    unset: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "ours"))
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "theirs"))
    keep_compiled()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "theirs")
    assert not (tmp_path / "ours").exists()


def test_nowhere_to_write_is_no_error(
    unset: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    keep_compiled()
    assert jax.config.jax_compilation_cache_dir is None
