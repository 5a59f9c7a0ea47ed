"""The table of systems: one line each, and those that installed packages bring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from flashmoe_sim.io.lazy import LazyTable

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from flashmoe_sim.systems.base import System

GROUP = "flashmoe_sim.systems"  # of the entry points by which a package names its systems: name = "module:Class"


class Systems(LazyTable["type[System]"]):
    """Systems by name: this program's own, then those of installed packages, in alphabetical order.

    Looking up a name raises BadInput if a package's system has the name of another, is none, or cannot be imported.
    """

    @cached_property
    def installed(self) -> Mapping[str, EntryPoint]:
        """The entry points of installed packages. Raises Conflict for a name that is there twice."""
        from importlib.metadata import entry_points

        from flashmoe_sim.io.errors import Conflict
        from flashmoe_sim.outside import package_of

        found: dict[str, EntryPoint] = {}
        for one in entry_points(group=GROUP):
            if one.name in found or one.name in self._places:
                raise Conflict(
                    f"system {one.name!r} of {package_of(one)}: another has this name; rename or uninstall it"
                )
            found[one.name] = one
        return dict(sorted(found.items()))

    def __getitem__(self, name: str) -> type[System]:
        if name in self._places or name not in self.installed:
            return super().__getitem__(name)
        from flashmoe_sim.outside import installed_class
        from flashmoe_sim.systems.base import System

        return installed_class("system", self.installed[name], System)

    def __contains__(self, name: object) -> bool:
        return name in self._places or name in self.installed

    def __iter__(self) -> Iterator[str]:
        return iter([*self._places, *self.installed])

    def __len__(self) -> int:
        return len(self._places) + len(self.installed)


SYSTEMS = Systems(
    __package__,
    {
        "all-gpu": "all_gpu:AllGpu",
        "cpu": "cpu:Cpu",
        "placed": "placed:PlacedLayers",
        "whole-layers": "whole_layers:WholeLayers",
        "ollama-layers": "whole_layers:OllamaLayers",
        "cached": "cached:Cached",
        "qvac": "qvac:Qvac",
        "placed-ik": "placed_ik:PlacedIk",
        "cpu-ik": "cpu:CpuIk",
        "slot-bank": "slot_bank:SlotBank",
        "flash-moe": "flash_moe:FlashMoe",
        "hot-window": "hot_window:HotWindowSlots",
        "hot-cache": "hot_cache:HotCache",
        "slot-remap": "slot_remap:SlotRemap",
        "bounded-insert": "bounded_insert:BoundedInsert",
        "static-profile": "static_profile:StaticProfile",
        "ktransformers": "ktransformers:KTransformers",
        "imp": "imp:Imp",
        "nvmoe": "nvmoe:Nvmoe",
        "crow": "crow:Crow",
        "big-moe-on-edge": "big_moe_on_edge:BigMoeOnEdge",
        "turbofieldfare": "turbo_fieldfare:TurboFieldfare",
        "strata": "strata:Strata",
        "neurall": "neurall:Neurall",
        "moe-cache": "moe_cache:MoeCache",
        "ds4": "ds4:Ds4",
        "mlx": "mlx:Mlx",
        "slotstream": "slotstream:Slotstream",
        "colibri": "colibri:Colibri",
        "freetoken": "freetoken:FreeToken",
    },
)

# Programs that serve with another one's code, and other spellings; in small letters.
SERVES = {
    **dict.fromkeys(("ollama", "lm studio", "llama-server", "llama-cpp-python", "koboldcpp", "llamafile"), "llama.cpp"),
    **dict.fromkeys(("jan", "jan.ai", "gpt4all", "ramalama", "kobold", "llama-swap", "llama-cli"), "llama.cpp"),
    **dict.fromkeys(("docker model runner", "lemonade", "lemonade server", "unsloth studio", "msty"), "llama.cpp"),
    **dict.fromkeys(("oobabooga", "text-generation-webui"), "llama.cpp"),
    **dict.fromkeys(("mlx-lm", "mlx_lm", "mlx-vlm", "mlx_vlm", "vllm-mlx", "rapid-mlx", "omlx", "mtplx"), "MLX"),
    **dict.fromkeys(("mlx-swift-lm", "mlx-engine", "mlx_lm.server", "mlx_lm.generate"), "MLX"),
    **dict.fromkeys(("ik_llama", "ik_llama.cpp or llama.cpp"), "ik_llama.cpp"),
    "adrianhoehne/llama.cpp moe-hot-cache": "adrianhoehne/llama.cpp hot-cache",
}
# Engines whose placement of experts is not modelled.
_TITLES = """
AirLLM, Aphrodite, ExLlamaV3, FastLLM, FlexGen, IPEX-LLM, Krasis, LMDeploy, Lucebox, mistral.rs, MLC LLM, MNN,
MoE-Infinity, oLLM, ONNX Runtime, OpenVINO, PowerInfer, SGLang, sparkinfer, SwiftLM, TabbyAPI, TensorRT-LLM, tinygrad,
tinyserve, transformers, TRT-LLM, vLLM
"""


def plain_name(text: str) -> str:
    """Small letters and digits of a name: people write lm-studio, LM Studio and lmstudio."""
    return "".join(filter(str.isalnum, text.lower()))


NOT_MODELLED = {plain_name(title): title for title in _TITLES.replace("\n", " ").strip().split(", ")}


def parse_system(text: str) -> System:
    """A system from `slot-bank`, `slot-bank:slots=64` or `my_module:MySystem`."""
    from flashmoe_sim.parameters import parse
    from flashmoe_sim.systems.base import System

    return parse("system", text, SYSTEMS, System)
