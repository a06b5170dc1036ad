"""`verify`: check the outputs of a finished run against its scene, by other means than made them."""

from .maps import Verdict
from .outputs import stem_of_outputs, verify

__all__ = ["Verdict", "stem_of_outputs", "verify"]
