"""``python -m relaxd`` is the command line."""

from relaxd.cli import main

main()
