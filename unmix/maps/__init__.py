"""Maps: the storage of their values, and images written line by line."""
