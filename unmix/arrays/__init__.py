"""What takes arrays and gives arrays: a module for each problem."""
