"""Write outputs: whole or not at all, journalled, locked, and self-describing."""
