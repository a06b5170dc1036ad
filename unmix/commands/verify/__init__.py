"""`verify`: check the digests of a finished run, the conditions of an optimum in some pixels, and lines unmixed again."""

from .outputs import verify
from .verdict import Verdict
