"""What the choice of a backend asks of JAX before it looks for devices."""

import os

import pytest

from panda_mdp.compute.pairs import accelerator

PREALLOCATE, ALLOCATOR = "XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_PYTHON_CLIENT_ALLOCATOR"


@pytest.mark.parametrize(
    ("told", "then"),
    [
        ({}, {PREALLOCATE: "false"}),
        ({PREALLOCATE: "true"}, {PREALLOCATE: "true"}),
        ({ALLOCATOR: "platform"}, {ALLOCATOR: "platform"}),
    ],
)
def test_memory_is_taken_as_needed_unless_jax_was_told(told, then, monkeypatch) -> None:
    pytest.importorskip("jax")
    for name in (PREALLOCATE, ALLOCATOR):
        # Set first, so that the end of the test restores what there was.
        monkeypatch.setenv(name, told.get(name, ""))
        if name not in told:
            monkeypatch.delenv(name)
    accelerator()
    assert {
        name: os.environ[name] for name in (PREALLOCATE, ALLOCATOR) if name in os.environ
    } == then
