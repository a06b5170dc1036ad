"""Pictures and pages of finished runs: a browse image beside the maps, and one HTML file that needs nothing else.

They need no more than the base installation, hold no time or path, and are the same bytes each time.
"""
