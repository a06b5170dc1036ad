"""Solve problems that are given as arrays and answered by arrays: a module for each problem."""
