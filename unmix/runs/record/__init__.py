"""Describe outputs: `run.json`, the headers of the maps, and a judgement of the model."""
