"""The figures of reports, notebooks and papers: Vega-Lite charts that notebooks show and `save` writes.

Needs the extra `report`. `style.styled` can change the theme and width of any figure.
"""

from flashmoe_sim.report.figures.compared import systems
from flashmoe_sim.report.figures.gains import gains
from flashmoe_sim.report.figures.hits import hit_curves
from flashmoe_sim.report.figures.judged import judged
from flashmoe_sim.report.figures.measured import predicted_measured
from flashmoe_sim.report.figures.save import save
from flashmoe_sim.report.figures.speed import speeds, speeds_by_depth, waterfall
from flashmoe_sim.report.figures.style import config, styled
from flashmoe_sim.report.figures.use import drift, misses_by_layer, popularity, reuse_distances

__all__ = [
    "config",
    "drift",
    "gains",
    "hit_curves",
    "judged",
    "misses_by_layer",
    "popularity",
    "predicted_measured",
    "reuse_distances",
    "save",
    "speeds",
    "speeds_by_depth",
    "styled",
    "systems",
    "waterfall",
]
