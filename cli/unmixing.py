"""Options of commands that unmix scenes, in groups."""

from collections import defaultdict

from unmix.features.runs import in_runs
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
# Options of features that stand in help before an option of the core.
BEFORE: dict[str, list[str]] = defaultdict(list)
for _feature in in_runs().values():
    for _name, _one in settings_of(_feature.settings).items():
        BEFORE[_one.before].append(_name)


of_all_runs = declared(*(name for one in in_runs().values() if one.is_always for name in settings_of(one.settings)))
every = options.combine(
    declared("method", "solver"),
    library,
    declared(*BEFORE["by"], "by", "shade"),
    shade_normalize,
    declared(*BEFORE["normalize"], "normalize", "weights", "l1", "tv", "laplacian"),
    declared(*BEFORE["likelihood"], "likelihood", "background"),
    declared(*BEFORE["noise"], "noise", *BEFORE["within"], "within", *BEFORE["count"]),
    options.extraction,
    options.option("extract_mask"),
    device,
    running,
    declared("top", "ortho"),
    options.reading,
    declared("tie", "albedo", "free"),
)
