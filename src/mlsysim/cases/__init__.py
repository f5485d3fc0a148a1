"""What does one pass, one training step, one serving iteration, one run consist of?"""
