"""What is written: whole or not there, journalled, locked, and what it says of itself."""
