"""``python -m mldecoder``, and the way launchers such as torchrun start a verb."""

from mldecoder.cli import main

main()
