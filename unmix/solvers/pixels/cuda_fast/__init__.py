"""The fast path on a GPU, up to 32 endmembers: products, search and certificate."""
