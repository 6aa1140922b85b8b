"""python -m nnclassroom is the command line."""

import sys

from nnclassroom.commands import main

sys.exit(main())
