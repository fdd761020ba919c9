"""What the program is made of, and that what is given away is made of nothing else."""
