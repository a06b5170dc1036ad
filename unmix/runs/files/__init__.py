"""The files of a run: while they are written, where it was interrupted, and once they are complete."""
