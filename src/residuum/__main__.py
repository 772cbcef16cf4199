"""`python -m residuum` is the same as `residuum`."""

from residuum.cli import main

main()
