"""Keep compiled code on disk, for CPU and GPU, where nobody else can put code of theirs in its place.

Numba's own cache has eight faults that affect a program run from cron, which this package avoids:

* it checks only the file of the function, so callers of an edited function stay stale: our folder is named after a hash of
  the sources of all that the function's module imports, whose code may be compiled into it;
* it fails at import where neither the installation nor HOME is writable: we look for a folder that is, and otherwise compile
  without a cache; what an administrator has compiled for all users is loaded from a folder that we cannot write to;
* closures of the same name, compiled in several processes, may be confused: ours are named after their cells;
* two processes that compile different signatures at once may both write data file number 1, and one of them then loads
  the other's machine code: our files have the name of what is in them, and no index;
* it runs whatever code it finds there: nobody else may write to our folder, nor to any folder on the path to it;
* a file that a power failure cut off ends every later run: ours are on the disk before they have their names, and one that is not
  as it was written is written anew;
* the code of every version stays for ever: ours is removed where no process has looked for it in 90 days;
* it keeps the code of old sources as that of the new ones, where these change while a process runs: then ours keeps nothing.
"""

from .folders import cache_folder, common_folder, why_not_used
from .kept import keep
from .watch import seconds_compiling, unkept

__all__ = ["cache_folder", "common_folder", "keep", "seconds_compiling", "unkept", "why_not_used"]
