"""The commands that read files and write files: a module or a folder for each."""
