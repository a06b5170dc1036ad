"""The command line, installed as `unmix_cli`: one command a file; nothing heavy is imported before it runs."""
