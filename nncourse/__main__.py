"""python -m nncourse is the command line."""

import sys

from nncourse.cli import main

sys.exit(main())
