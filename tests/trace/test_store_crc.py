import zlib

from hypothesis import given
from hypothesis import strategies as st

from flashmoe_sim.trace._store_columns import crc32_joined


@given(st.binary(), st.binary())
def test_two_pieces_as_one(first: bytes, second: bytes) -> None:
    assert crc32_joined(zlib.crc32(first), zlib.crc32(second), len(second)) == zlib.crc32(first + second)
