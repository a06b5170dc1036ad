"""``python -m unmix``: the command line."""

from unmix_cli.main import main

if __name__ == "__main__":
    main()
