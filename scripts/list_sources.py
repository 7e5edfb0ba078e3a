"""Lists the files below a folder whose names match a pattern, one per line, sorted.

usage: list_sources.py FOLDER PATTERN      (** in the pattern stands for any number of folders)

The Meson files read their source lists from here and scripts/build reconfigures when a list has changed, so that adding a
file to the project means adding the file.
"""
import pathlib
import sys

root = pathlib.Path(sys.argv[1])
for path in sorted(root.glob(sys.argv[2])):
    print(path.relative_to(root).as_posix())
