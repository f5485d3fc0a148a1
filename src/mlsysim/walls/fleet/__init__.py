"""Fleet (14 to 16): what many accelerators lose to each other."""
