"""A folder for each problem: code that serves one pixel or system, a driver for the CPU, one for CUDA."""
