"""Pictures and pages of finished runs: a browse image beside the maps, and one HTML file that needs nothing else.

They need no more than the base installation. The browse image holds no time or path; a page shows the run's record, which does: that
of one finished run is the same bytes each time.
"""
