"""``python -m unmix``: the command line."""

from unmix_cli.start import program

if __name__ == "__main__":
    program()
