"""`verify`: check the outputs of a finished run against its scene, by other means than made them."""

from .maps import Verdict
from .outputs import verify
