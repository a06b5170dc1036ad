"""Jobs from files to files: a module for each command."""
