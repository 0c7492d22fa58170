"""The order of packed shards: each picture once an epoch, a few shards at a time, from anywhere in the middle."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mldecoder.data.pictures import TarMembers, Windows, pick, shard_windows
from mldecoder.training.ahead import ShardsAhead
from mldecoder.training.order import EpochBatches, Key, windowed


def numbers(batches: list[list[Key]]) -> list[int]:
    return [key[2] for batch in batches for key in batch]


shard_sizes = st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any)


@given(sizes=shard_sizes, window=st.integers(1, 5), seed=st.integers(0, 99))
def test_a_windowed_order_has_each_picture_once_and_few_shards_at_a_time(
    sizes: list[int], window: int, seed: int
) -> None:
    shard = np.repeat(np.arange(len(sizes)), sizes).astype(np.int32)
    order, _ = windowed(Windows(shard, window), np.random.default_rng(seed))
    assert sorted(order.tolist()) == list(range(len(shard)))
    # the obvious twin: walk along, and count shards that were begun and are not finished
    left, begun = Counter(shard.tolist()), set[int]()
    for i in order.tolist():
        begun.add(int(shard[i]))
        assert len(begun) <= window
        left[int(shard[i])] -= 1
        if not any(left[one] for one in begun):
            begun.clear()


@given(
    sizes=shard_sizes,
    window=st.integers(1, 4),
    world=st.integers(1, 3),
    accumulate=st.integers(1, 2),
    share=st.integers(1, 3),
    epoch=st.integers(0, 2),
    data=st.data(),
)
def test_any_number_of_processes_shares_an_epoch_and_goes_on_in_its_middle(
    sizes: list[int], window: int, world: int, accumulate: int, share: int, epoch: int, data: st.DataObject
) -> None:
    shard = np.repeat(np.arange(len(sizes)), sizes).astype(np.int32)
    batch = world * accumulate * share
    alone = EpochBatches(len(shard), batch, seed=5, windows=Windows(shard, window))
    alone.set_place(epoch)
    steps = list(alone)
    if len(shard) >= batch:
        assert max(Counter(numbers(steps)).values()) == 1
        assert sorted(numbers(steps) + alone.left_out()) == list(range(len(shard)))
    middle = data.draw(st.integers(0, alone.steps))
    together: list[list[Key]] = [[] for _ in range(alone.steps)]
    for rank in range(world):
        sampler = EpochBatches(
            len(shard), batch, seed=5, rank=rank, world=world, accumulate=accumulate, windows=Windows(shard, window)
        )
        sampler.set_place(epoch)
        whole = list(sampler)
        again = EpochBatches(
            len(shard), batch, seed=5, rank=rank, world=world, accumulate=accumulate, windows=Windows(shard, window)
        )
        again.set_place(epoch, middle)
        assert list(again) == whole[middle * accumulate :]
        for number, keys in enumerate(whole):
            together[number // accumulate] += keys
    assert [sorted(keys) for keys in together] == [sorted(keys) for keys in steps]


def test_each_process_reads_its_own_shards_of_a_window() -> None:
    shard, world = np.repeat(np.arange(32), 100).astype(np.int32), 4
    read = []
    for rank in range(world):
        sampler = EpochBatches(3200, 80, seed=0, rank=rank, world=world, windows=Windows(shard, 16))
        read.append(sum(len({int(shard[i]) for i in numbers(list(sampler)[half : half + 20])}) for half in (0, 20)))
    # in each of two windows neighbours share a shard or two at their border; everything everywhere would be 128
    assert sum(read) <= 32 + 2 * 2 * 2 * (world - 1)


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6), seed=st.integers(0, 99), data=st.data())
def test_every_shard_of_a_window_gives_its_pictures_at_an_even_pace(
    sizes: list[int], seed: int, data: st.DataObject
) -> None:
    shard = np.repeat(np.arange(len(sizes)), sizes).astype(np.int32)
    order, _ = windowed(Windows(shard, len(sizes)), np.random.default_rng(seed))
    first = data.draw(st.integers(0, len(order)))
    given = np.bincount(shard[order[:first]], minlength=len(sizes))
    share = first / len(order)
    assert (np.abs(given - share * np.array(sizes)) <= 1 + len(sizes)).all()


def test_a_smaller_part_of_a_set_is_windowed_too() -> None:
    base = TarMembers(["a", "b"], [0, 0, 1, 1], [0] * 4, [0] * 4, "wxyz", window=3)
    windows = shard_windows(base)
    assert windows is not None
    assert (windows.shard.tolist(), windows.size) == ([0, 0, 1, 1], 3)
    some = shard_windows(pick(base, [3, 0]))
    assert some is not None
    assert some.shard.tolist() == [1, 0]
    assert shard_windows(TarMembers(["a"], [0], [0], [0], "w")) is None


def test_the_scout_asks_for_each_shard_once_and_not_too_early() -> None:
    batches = [[i, i + 1] for i in range(0, 40, 2)]
    shard_of = (np.arange(40) // 4).astype(np.int32)
    asked: list[int] = []
    with_ahead = iter(ShardsAhead(batches, shard_of, int, asked.append, ahead=8))
    for number, batch in enumerate(with_ahead):
        assert batch == batches[number]
        assert max(asked, default=0) <= (2 * number + 8 + 1) // 4 + 1
    assert sorted(set(asked)) == sorted(asked)
