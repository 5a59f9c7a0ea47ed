"""The CRC-32 of two pieces of data, one after the other, from the CRC-32 of each."""

from __future__ import annotations

POLYNOMIAL = 0xEDB88320  # zlib's: the highest bit is the coefficient of x^0
ONE, ONE_BYTE = 1 << 31, 1 << 23  # x^0 and x^8


def crc32_joined(first: int, second: int, second_bytes: int) -> int:
    """The `zlib.crc32` of both pieces together. second_bytes: the length of the second."""
    factor, power = ONE, ONE_BYTE
    while second_bytes:
        if second_bytes & 1:
            factor = _product(factor, power)
        power = _product(power, power)
        second_bytes >>= 1
    return _product(factor, first) ^ second


def _product(a: int, b: int) -> int:
    """The product of two polynomials over the field of 0 and 1, modulo CRC-32's polynomial."""
    product = 0
    while a:
        if a & ONE:
            product ^= b
        a = a << 1 & 0xFFFFFFFF
        b = b >> 1 ^ (POLYNOMIAL if b & 1 else 0)
    return product
