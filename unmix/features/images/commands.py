"""Options and the loop over scenes that commands share which write maps of scenes beside no run."""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from unmix_cli import archive, options
from unmix_cli.main import print_out

from ...settings.maps import images

Found = dict[str, Any]


def command(name: str, *own: Callable[[Any], Any]) -> Callable[[Callable[[Found], Iterator[str]]], click.Command]:
    """Return a decorator that makes a click command for scenes; the decorated function's docstring is its help."""

    def decorate(lines_of: Callable[[Found], Iterator[str]]) -> click.Command:
        @functools.wraps(lines_of)
        def each(
            cubes: tuple[Path, ...], listed: Path | None, shard: str | None, as_json: bool, **settings: Any
        ) -> int:
            import unmix

            named, find = archive.chosen_scenes(cubes, listed, shard, settings), getattr(unmix, name)
            ends = [
                f"_{one}{ending}"
                for one, image in images().items()
                if image.by == name
                for ending in archive.map_endings()
            ]
            archive.refuse_outputs_as_inputs(named, settings["out_dir"], [], ends)

            def one(_: int, cube: Path) -> None:
                found = find(cube, **settings)
                if len(named) > 1 and not as_json:
                    print_out(f"{cube}:")
                options.show({"cube": str(cube)} | found, as_json, [*lines_of(found), *found["files"]])

            return archive.for_each(named, one)

        whole = options.combine(archive.scenes, *own, options.as_json, options.declared("format"), options.of_images)
        return click.command(name)(whole(each))

    return decorate
