"""Configuration: YAML in, one checked model out.

`load.py` reads a file, `old_spellings.py` converts every accepted spelling to the one that `model.py` knows, `config_set.py` resolves
what is in force for a project when there are several files. After `old_spellings.py` no code knows an alias. Nothing in this folder
starts a process, uses the network or checks what is installed, except names of plugins, and Git in `projects/`.
"""
