"""The command line."""

import gc

# What a command makes mostly lives until it ends, its modules first: looking for garbage finds none, and takes 40 ms for 100,000 objects.
gc.set_threshold(500_000)
