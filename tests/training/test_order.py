import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mldecoder.errors import ConfigError
from mldecoder.training.order import EpochBatches, Key, seed_everything, seed_of


def pictures(batches: list[list[Key]]) -> list[int]:
    return [key[2] for batch in batches for key in batch]


@given(size=st.integers(1, 50), world=st.integers(1, 3), accumulate=st.integers(1, 2), share=st.integers(1, 4))
def test_processes_and_goes_share_the_steps_of_one_process(size: int, world: int, accumulate: int, share: int) -> None:
    batch = world * accumulate * share
    alone = EpochBatches(size, batch, seed=3)
    alone.set_place(2)
    expected = [sorted(key[2] for key in keys) for keys in alone]
    ranks = []
    for rank in range(world):
        sampler = EpochBatches(size, batch, seed=3, rank=rank, world=world, accumulate=accumulate)
        sampler.set_place(2)
        ranks.append(list(sampler))
        assert len(ranks[-1]) == len(sampler) == alone.steps * accumulate
    for step, together in enumerate(expected):
        goes = [ranks[rank][step * accumulate + go] for rank in range(world) for go in range(accumulate)]
        assert sorted(pictures(goes)) == together


@given(size=st.integers(8, 60), step=st.integers(0, 3))
def test_an_epoch_shows_each_picture_at_most_once_and_goes_on_in_the_middle(size: int, step: int) -> None:
    sampler = EpochBatches(size, 2, seed=0)
    sampler.set_place(1)
    whole = list(sampler)
    assert len(set(pictures(whole))) == len(pictures(whole)) == size - size % 2
    sampler.set_place(1, step)
    assert list(sampler) == whole[step:]
    sampler.set_place(2)
    assert pictures(list(sampler)) != pictures(whole)


def test_a_set_smaller_than_a_step_is_repeated() -> None:
    assert sorted(np.bincount(pictures(list(EpochBatches(3, 8, seed=0))))) == [2, 3, 3]


def test_repeats_show_fewer_pictures_more_often() -> None:
    shown = pictures(list(EpochBatches(12, 4, seed=0, repeats=3)))
    assert sorted(np.bincount(shown, minlength=12)) == [0] * 8 + [3] * 4


def test_a_batch_that_does_not_divide_is_refused_with_one_that_does() -> None:
    with pytest.raises(ConfigError, match="Use 6"):
        EpochBatches(100, 7, seed=0, world=3)


def test_seeds_are_a_function_of_the_place() -> None:
    assert seed_of(1, 2, 3) == seed_of(1, 2, 3)
    assert len({seed_of(a, b) for a in range(20) for b in range(20)}) == 400
    seed_everything(1, 2)
    first = torch.rand(2)
    seed_everything(1, 2)
    assert torch.equal(first, torch.rand(2))


@given(size=st.integers(1, 40), batch=st.integers(1, 10), repeats=st.integers(1, 3), epoch=st.integers(0, 3))
def test_what_is_left_out_of_an_epoch_is_what_does_not_come(size: int, batch: int, repeats: int, epoch: int) -> None:
    sampler = EpochBatches(size, batch, seed=0, repeats=repeats)
    sampler.set_place(epoch)
    assert sorted({*pictures(list(sampler)), *sampler.left_out()}) == list(range(size))
    assert not set(pictures(list(sampler))) & set(sampler.left_out())
