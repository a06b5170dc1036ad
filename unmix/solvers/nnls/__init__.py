"""Batches of nonnegative least squares of any rank."""
