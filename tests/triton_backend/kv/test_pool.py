"""The block pool: every block is free or held, and a broken account says how it is broken."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.errors import EngineError
from triton_backend.kv.pool import BlockPool


def test_all_blocks_but_the_reserved_one_can_be_allocated() -> None:
    pool = BlockPool(5, 4)
    assert sorted(pool.allocate(4)) == [1, 2, 3, 4]
    assert (pool.num_free, pool.num_used) == (0, 4)


def test_asking_for_more_than_is_free_takes_nothing() -> None:
    pool = BlockPool(5, 4)
    pool.allocate(2)
    with pytest.raises(EngineError, match="3 blocks were asked of the KV pool; 2 are free"):
        pool.allocate(3)
    assert pool.num_free == 2


def test_the_block_released_first_is_given_first() -> None:
    pool = BlockPool(5, 4)
    pool.allocate(4)
    pool.release([3, 1])
    pool.release([2])
    assert pool.allocate(3) == [3, 1, 2]


def test_releasing_what_nobody_holds_is_an_error() -> None:
    pool = BlockPool(5, 4)
    blocks = pool.allocate(1)
    pool.release(blocks)
    for block in (*blocks, 0, 4):
        with pytest.raises(EngineError, match=f"block {block} was released, but nobody holds it"):
            pool.release([block])


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_a_started_block_counts_whole(tokens: int, blocks: int) -> None:
    assert BlockPool(5, 4).blocks_for(tokens) == blocks


def test_an_untouched_and_a_used_pool_are_whole() -> None:
    pool = BlockPool(5, 4)
    pool.check_integrity([])
    tables = [pool.allocate(1), [], pool.allocate(2)]
    pool.check_integrity(tables)


def test_a_lost_block_is_named() -> None:
    pool = BlockPool(5, 4)
    pool.allocate(2)
    with pytest.raises(
        EngineError, match="at block 2: in 0 tables, 1 references, 0 times in the f"
    ):
        pool.check_integrity([[1]])


def test_a_block_in_two_tables_with_one_reference_is_named() -> None:
    pool = BlockPool(5, 4)
    pool.allocate(1)
    with pytest.raises(EngineError, match="at block 1: in 2 tables, 1 references, 0 times"):
        pool.check_integrity([[1], [1]])


def test_a_held_block_in_the_free_list_is_named() -> None:
    pool = BlockPool(5, 4)
    pool.allocate(1)
    pool._free.append(1)
    with pytest.raises(EngineError, match="at block 1: in 1 tables, 1 references, 1 times"):
        pool.check_integrity([[1]])


def test_the_reserved_block_must_not_be_held() -> None:
    with pytest.raises(EngineError, match="at block 0: in 1 tables, 0 references, 0 times"):
        BlockPool(5, 4).check_integrity([[0]])


def test_a_table_with_a_block_of_no_pool_breaks_the_sum() -> None:
    with pytest.raises(EngineError, match=r"4 free \+ 1 held \+ 1 reserved != 5 blocks"):
        BlockPool(5, 4).check_integrity([[9]])


@given(num_blocks=st.integers(2, 40), seed=st.integers(0, 2**32))
def test_any_mix_of_allocation_and_release_keeps_the_account(num_blocks: int, seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311
    pool = BlockPool(num_blocks, 4)
    tables: list[list[int]] = []
    for _ in range(40):
        if tables and rng.random() < 0.5:
            pool.release(tables.pop(rng.randrange(len(tables))))
        else:
            tables.append(pool.allocate(rng.randint(0, pool.num_free)))
        pool.check_integrity(tables)
        assert pool.num_used == sum(map(len, tables)) == num_blocks - 1 - pool.num_free
    for table in tables:
        pool.release(table)
    assert pool.num_used == 0


def test_a_shared_block_is_free_when_its_last_holder_gave_it_back() -> None:
    pool = BlockPool(5, 4)
    blocks = pool.allocate(2)
    pool.share(blocks)
    assert [pool.num_references(block) for block in blocks] == [2, 2]
    pool.release(blocks)
    assert pool.num_free == 2
    pool.check_integrity([blocks])
    pool.release(blocks)
    assert pool.num_free == 4


def test_sharing_what_nobody_holds_is_an_error() -> None:
    pool = BlockPool(5, 4)
    for block in (0, 3):
        with pytest.raises(EngineError, match=f"block {block} was shared, but nobody holds it"):
            pool.share([block])
