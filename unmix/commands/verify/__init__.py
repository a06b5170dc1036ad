"""`verify`: check a finished run's digests, the conditions of an optimum in pixels, and lines unmixed again."""

from .outputs import verify
from .verdict import Verdict
