"""What takes files and leaves files: a module for each command."""
