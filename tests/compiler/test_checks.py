"""What a library checks of its inputs: one assertion for any number of conditions, named by operator and line."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from service.errors import CheckFailed, IndexOutOfRange
from tests.cases.programs import executable_of, session_of

ROWS = torch.tensor([[0, 1, 2]])


class Embeds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(9, 4), nn.Embedding(5, 4)

    def forward(self, words, places):
        return {"{braces}": self.words(words) + self.places(places) + self.words(words)}["{braces}"]


def test_an_index_out_of_range_names_its_operator_and_line() -> None:
    session = session_of(Embeds(), (ROWS, ROWS.clone()))
    for words, places, module, size in ((9, 0, "words", 9), (0, 5, "places", 5), (-1, 0, "words", 9)):
        with pytest.raises(IndexOutOfRange) as caught:
            session.run([np.full((1, 3), words), np.full((1, 3), places)])
        assert f"aten.embedding.default in '{module}'" in caught.value.detail
        assert f"from 0 to {size} exclusive" in caught.value.detail
        assert "{braces}" in caught.value.detail
        assert caught.value.extensions["operator"] == "aten.embedding.default"
    assert session.run([ROWS.numpy(), ROWS.numpy()])[0].shape == (1, 3, 4)


@pytest.mark.parametrize("passes", ["generic", "course", "none"])
def test_all_checks_are_one_assertion(passes: str) -> None:
    def reads(x, index):
        for step in range(120):
            x = x + x[index * 0 + step % 3]
        return x

    executable = executable_of(reads, (torch.randn(3, 3), torch.tensor([0, 1, 2])), passes)
    assert str(executable.as_text()).count("call  relax.run.assert_op") == 1


def test_a_division_by_zero_is_a_check_of_its_own() -> None:
    session = session_of(lambda x, y: x // y, (torch.arange(6), torch.arange(6) + 1))
    with pytest.raises(CheckFailed, match="divided by zero"):
        session.run([np.arange(6), np.zeros(6, np.int64)])


def test_a_check_inside_a_branch_counts_only_where_it_is_taken() -> None:
    class Branches(nn.Module):
        def forward(self, x, index, flag):
            return torch.cond(flag, lambda x, i: x[i], lambda x, i: x[i * 0], (x, index))

    session = session_of(Branches(), (torch.randn(3), torch.tensor([1]), torch.tensor(True)))
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(session.run([x, np.array([7]), np.array(False)])[0], [0])
    with pytest.raises(IndexOutOfRange):
        session.run([x, np.array([7]), np.array(True)])
