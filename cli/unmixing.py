"""Options of commands that unmix scenes, in groups."""

from . import options
from .options import declared

classes = declared("classes", "library_scale")
library = options.combine(declared("endmembers", "select", "complete"), classes, options.across_gaps)
shade_normalize = declared("shade_normalize", "class_map")
device = declared("device", "gpu_memory")
running = options.combine(
    options.outputs,
    declared("work_dir", "skip_existing"),
    options.budget,
    declared("streams", "residual", "certificate", "max_delta", "format", "tag", "rgb", "quantize", "browse"),
)
every = options.combine(
    declared("method", "solver"),
    library,
    declared("names", "by", "shade"),
    shade_normalize,
    declared("grains", "normalize", "weights", "l1", "l1_weights", "l21", "tv", "laplacian", "edges"),
    declared("at_most", "allowed", "likelihood", "background"),
    declared("uncertainty", "noise", "ranges", "confidence", "simultaneous", "within", "monte_carlo", "draw_spectra"),
    options.extraction,
    options.option("extract_mask"),
    device,
    running,
    declared("top", "ortho"),
    options.reading,
    declared("tie", "albedo"),
)
