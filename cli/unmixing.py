"""Options of commands that unmix scenes, in groups."""

from unmix.features import in_runs
from unmix.settings import settings_of

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
of_endmembers, of_model, of_outputs = (
    declared(
        *(
            name
            for feature in in_runs().values()
            for name, one in settings_of(feature.settings).items()
            if one.group == group
        )
    )
    for group in ("Endmembers", "Model", "Outputs")
)
of_all_runs = declared(*(name for one in in_runs().values() if one.is_always for name in settings_of(one.settings)))
every = options.combine(
    declared("method", "solver"),
    library,
    of_endmembers,
    declared("by", "shade"),
    shade_normalize,
    declared("grains", "normalize", "weights", "l1", "l1_weights", "tv", "laplacian", "edges"),
    of_model,
    declared("allowed", "likelihood", "background"),
    declared("uncertainty", "noise", "ranges", "confidence", "simultaneous", "within"),
    of_outputs,
    options.extraction,
    options.option("extract_mask"),
    device,
    running,
    declared("top", "ortho"),
    options.reading,
    declared("tie", "albedo"),
)
