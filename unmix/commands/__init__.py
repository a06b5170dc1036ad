"""From files to files: a module or a folder for each command."""
