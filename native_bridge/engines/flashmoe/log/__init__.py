"""The log of a run of the patched runtime, read into a `RunLog`."""

from native_bridge.engines.flashmoe.log.failure import exhausted_of, failure_of, overflow_of
from native_bridge.engines.flashmoe.log.parse import parse_log, read_log

__all__ = ["exhausted_of", "failure_of", "overflow_of", "parse_log", "read_log"]
